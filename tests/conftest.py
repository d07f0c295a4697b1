"""What every test shares: the hypothesis profiles, the event loops that engine tests run on, and what is measured."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
# A round of `make soak`, which does many with seeds of their own.
settings.register_profile("soak", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts something in the background has it ignore SIGINT, and so would what tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


BLACK_BOX = {"crash", "e2e", "soak"}
"""Directories whose tests drive processes that coverage does not follow. It does not follow the tests either: what they
call of ours others call too, and the tracer more than doubles what it takes to check all that a server says."""


def pytest_collection_finish() -> None:
    """Look no more for garbage among the thousands of tests: each full collection went through all of them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test that drives processes unmeasured."""
    measured = Coverage.current() if item.path.parent.name in BLACK_BOX else None
    if measured is None:
        return (yield)
    measured.stop()
    try:
        return (yield)
    finally:
        measured.start()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops: a leaked task or generator that one forgives, the other does not."""
    return str(request.param)
