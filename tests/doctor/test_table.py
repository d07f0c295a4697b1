"""How checks are made: within their limits, apart from one another, without secrets."""

from __future__ import annotations

import threading

from doctor.conftest import MakeCase
from hames.doctor.case import Case, Finding, Problem
from hames.doctor.table import CHECKS, Check, examine, without_secrets

KEY = "sk-secret-0123456789"


def test_a_check_that_hangs_is_told_and_keeps_no_other(case: MakeCase) -> None:
    let_go = threading.Event()

    def hang(_: Case) -> Finding:
        let_go.wait()
        return Finding("too late")

    slow, quick = examine(case(), [Check("slow", hang, limit_s=0.05), Check("quick", lambda _: Finding("fine"))])
    let_go.set()

    assert (slow.finding.seen, slow.finding.status) == ("no answer", "fail")
    assert (quick.finding.seen, quick.finding.status) == ("fine", "ok")


def test_a_check_that_is_defective_is_one_row(case: MakeCase) -> None:
    def broken(_: Case) -> Finding:
        raise KeyError("nothing")

    bad, good = examine(case(), [Check("broken", broken), Check("good", lambda _: Finding("fine"))])

    assert bad.finding.status == "fail"
    assert "KeyError" in bad.finding.problems[0].what
    assert good.finding.status == "ok"


def test_the_worst_problem_is_the_status() -> None:
    warning, failure = Problem("warn", "a", "b"), Problem("fail", "c", "d")

    assert Finding("x").status == "ok"
    assert Finding("x", (warning,)).status == "warn"
    assert Finding("x", (failure, warning)).status == "fail"


def test_a_secret_is_taken_out_of_every_text(case: MakeCase) -> None:
    told = Finding(f"a {KEY}", (Problem("warn", f"b {KEY}", f"c {KEY}"),), {"d": [KEY], KEY: 1})

    shown = without_secrets(told, case(HAMES_COMPATIBLE_API_KEY=KEY))

    assert KEY not in repr(shown)
    assert shown.status == "warn"


def test_every_check_has_a_name_of_its_own_and_a_limit() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(0 < check.limit_s <= 15 for check in CHECKS)
