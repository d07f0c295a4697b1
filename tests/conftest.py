"""What every test shares: the hypothesis profiles, the event loops that engine tests run on, and what is measured."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from pkgutil import walk_packages

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

import hames

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
# A round of `make soak`, which does many with seeds of their own.
settings.register_profile("soak", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts something in the background has it ignore SIGINT, and so would what tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


PURE = {"core", "protocol"}
"""Directories whose tests are measured whole: what they test is covered whole."""

BLACK_BOX = {"cli", "crash", "e2e", "fuzz", "soak"}
"""Directories whose tests drive processes that coverage does not follow. It does not follow the tests either: what they
call of ours others call too, and the tracer more than doubles what it takes to check all that a server says."""

FOLLOWED = {"client", "server"}
"""Directories whose tests start processes that are measured as well."""


def pytest_collection_finish() -> None:
    """Look no more for garbage among the thousands of tests: each full collection went through all of them."""
    gc.collect()
    gc.freeze()


def pytest_collection() -> None:
    """Import all that is measured, since what is imported with a test is not."""
    if Coverage.current() is not None:
        for module in walk_packages(hames.__path__, "hames."):
            if not module.name.endswith(".__main__"):
                import_module(module.name)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, object, object]:
    """Import tests unmeasured, save those that make something of ours while they are imported."""
    with nullcontext() if collector.path.parent.name in PURE else unmeasured():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure a test, and the processes that it starts, where that may find lines that others do not."""
    with ExitStack() as undone:
        if item.path.parent.name not in FOLLOWED:
            undone.enter_context(pytest.MonkeyPatch.context()).delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        if not is_measured(item):
            undone.enter_context(unmeasured())
        return (yield)


def is_measured(item: pytest.Item) -> bool:
    """Outside `PURE` neither a property, whose examples go where examples went, nor a test's run on the other loop."""
    directory = item.path.parent.name
    if directory in PURE or directory in BLACK_BOX:
        return directory in PURE
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    is_again = parameters.get("anyio_backend") == "trio" or item.get_closest_marker("unmeasured") is not None
    return not is_again and not getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


@contextmanager
def unmeasured() -> Iterator[None]:
    """Lift the tracer, which doubles what Python costs."""
    measured = Coverage.current()
    if measured is None:
        yield
        return
    measured.stop()
    try:
        yield
    finally:
        measured.start()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops: a leaked task or generator that one forgives, the other does not."""
    return str(request.param)
