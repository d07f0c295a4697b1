"""The checks by name, and how they are made: each in a thread of its own, so that one that hangs is left behind.

Rule: a limit is that of a check alone; all of them together take as long as the longest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from hames.core.records import record
from hames.core.redaction import redact
from hames.doctor.case import Case, Finding, Problem
from hames.doctor.machine import check_config, check_install, check_python, check_sqlite, check_terminal
from hames.doctor.models import check_model, check_models
from hames.doctor.state import check_directory, check_filesystem, check_leftovers, check_space, check_store
from hames.doctor.trials import check_framing, check_providers, check_sandbox


@record
class Check:
    """One row: its published name, what makes it, and how long that may take, in seconds."""

    name: str
    examine: Callable[[Case], Finding]
    limit_s: float = 5.0


@record
class Row:
    """What a check found, after how many milliseconds."""

    name: str
    finding: Finding
    took_ms: float


CHECKS: tuple[Check, ...] = (
    Check("python", check_python),
    Check("install", check_install),
    Check("config", check_config),
    Check("directory", check_directory),
    Check("filesystem", check_filesystem),
    Check("space", check_space),
    Check("sqlite", check_sqlite),
    Check("store", check_store, limit_s=10),
    Check("leftovers", check_leftovers),
    Check("sandbox", check_sandbox, limit_s=15),
    Check("model", check_model),
    Check("models", check_models),
    Check("providers", check_providers, limit_s=15),
    Check("framing", check_framing, limit_s=15),
    Check("terminal", check_terminal),
)


def examine(case: Case, checks: Sequence[Check] = CHECKS) -> Iterator[Row]:
    """Make all checks at once; their rows in the order of the table, each as soon as those before it are there."""
    began = monotonic()
    answers = [_begin(check, case) for check in checks]
    for check, answer in zip(checks, answers, strict=True):
        try:
            finding, ended = answer.get(timeout=max(0.0, began + check.limit_s - monotonic()))
        except Empty:
            what = f"It was not done after {check.limit_s:.0f} s."
            problem = Problem("fail", what, "Something it looked at hangs: a disk, a mount, a process.")
            finding, ended = Finding("no answer", (problem,)), monotonic()
        yield Row(check.name, without_secrets(finding, case), (ended - began) * 1000)


def _begin(check: Check, case: Case) -> SimpleQueue[tuple[Finding, float]]:
    answer: SimpleQueue[tuple[Finding, float]] = SimpleQueue()

    def run() -> None:
        try:
            finding = check.examine(case)
        # The border of this thread: a defect of one check is one row, and hides no other.
        except Exception as error:
            what = f"The check itself failed: {type(error).__name__}: {error}"
            finding = Finding("not known", (Problem("fail", what, "Report it; the other rows stand."),))
        answer.put((finding, monotonic()))

    threading.Thread(target=run, name=f"hames-doctor-{check.name}", daemon=True).start()
    return answer


def without_secrets(finding: Finding, case: Case) -> Finding:
    """`finding` with no configured key in any of its texts: a net, below what each check takes care of."""
    texts: Any = [finding.seen, [[p.what, p.advice] for p in finding.problems], dict(finding.details)]
    for secret in case.secrets:
        texts = redact(texts, secret)
    seen, told, details = texts
    problems = tuple(
        replace(problem, what=what, advice=advice)
        for problem, (what, advice) in zip(finding.problems, told, strict=True)
    )
    return Finding(seen, problems, details)
