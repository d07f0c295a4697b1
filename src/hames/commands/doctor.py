"""`hames doctor`: one page on whether this installation works, and what to do where it does not."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hames import __version__
from hames.commands.exits import COMPLETED, FAILED
from hames.commands.output import emit
from hames.commands.visible import visible

if TYPE_CHECKING:
    from hames.doctor.table import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `doctor`."""
    parser.add_argument("--json", action="store_true", help="print one JSON record instead of a page")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Make every check and print its row as soon as it is there; 1 if one failed."""
    from hames.doctor.case import case_of
    from hames.doctor.table import examine

    began = perf_counter()
    rows = []
    for row in examine(case_of(environ)):
        rows.append(row)
        if not arguments.json:
            emit(as_text(row))
    counts = Counter(row.finding.status for row in rows)
    seconds = perf_counter() - began
    if arguments.json:
        from hames.protocol.jsontext import dumps

        emit(dumps(as_record(rows, seconds)).decode() + "\n")
    else:
        emit(f"{counts['ok']} ok, {counts['warn']} warn, {counts['fail']} fail, in {seconds:.1f} s\n")
    return FAILED if counts["fail"] else COMPLETED


def as_text(row: Row) -> str:
    """A row for people: what was seen, then each problem with what to do."""
    lines = [f"{row.finding.status:<5} {row.name:<11} {row.finding.seen}"]
    for problem in row.finding.problems:
        lines += [f"{'':<6}! {problem.what}", f"{'':<8}{problem.advice}"]
    return "".join(f"{visible(line)}\n" for line in lines)


def as_record(rows: Sequence[Row], seconds: float) -> dict[str, Any]:
    """All rows for programs. Names of checks and members stay."""
    statuses = {row.finding.status for row in rows}
    return {
        "status": "fail" if "fail" in statuses else "warn" if "warn" in statuses else "ok",
        "version": __version__,
        "seconds": round(seconds, 3),
        "checks": [
            {
                "name": row.name,
                "status": row.finding.status,
                "seen": row.finding.seen,
                "problems": [{"status": p.status, "what": p.what, "advice": p.advice} for p in row.finding.problems],
                "details": _plain(dict(row.finding.details)),
                "ms": round(row.took_ms, 1),
            }
            for row in rows
        ],
    }


def _plain(value: Any) -> Any:
    """Measured numbers without digits that mean nothing."""
    match value:
        case float():
            return round(value, 1)
        case Mapping():
            return {name: _plain(item) for name, item in value.items()}
        case _:
            return value
