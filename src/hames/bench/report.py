"""Measures the groups that were asked for, one after the other, and says what came of it, as text or as JSON."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from hames import __version__
from hames.bench.bed import Bed
from hames.bench.driver import BenchFailed, python
from hames.bench.table import GATES, Figure, Row, broken, judge
from hames.protocol.errors import HamesError, HarnessFault

COLUMNS = f"{'row':<21}{'figure':>12} {'unit':<10}{'best':>11}{'floor':>11}{'ratio':>8}  {'bound':<14}{'n':>6}  ok"


def rows(
    directory: Path,
    names: Sequence[str],
    *,
    short: bool,
    bounds: Mapping[str, float],
    on_row: Callable[[Row], object] = lambda row: None,
) -> list[Row]:
    """The rows called `names`, measured in `directory`; `on_row` is told of each as it is there."""
    found: list[Row] = []
    groups = dict.fromkeys(GATES[name].group for name in names)
    with _model(directory) as port:
        bed = Bed(directory, port, short=short)
        for group in groups:
            wanted = [name for name in names if GATES[name].group == group]
            for row in _measured(bed, group, wanted, bounds):
                found.append(row)
                on_row(row)
    return found


def _measured(bed: Bed, group: str, wanted: Sequence[str], bounds: Mapping[str, float]) -> Iterator[Row]:
    try:
        figures: list[Figure] = import_module(f"hames.bench.{group}").measure(bed, wanted)
    except (BenchFailed, HamesError, OSError) as failure:
        for name in wanted:
            yield broken(name, str(failure) or type(failure).__name__, bounds)
        return
    for figure in figures:
        if figure.name in wanted:
            yield judge(figure, bounds)


@contextmanager
def _model(directory: Path) -> Iterator[int]:
    """The model's process; its port."""
    argv = python("-m", "hames.bench.model")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=directory) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline()
            if not port:
                raise HarnessFault("internal", "The model of the benchmark did not start.")
            yield int(port)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def missed(found: Sequence[Row]) -> list[str]:
    """The rows that missed their bound, or could not be measured."""
    return [row.name for row in found if row.ok is False]


def as_text(row: Row) -> str:
    """One line of the table."""
    if row.value is None:
        return f"{row.name:<21}{'-':>12} {row.unit:<10}  {row.failure}"
    figures = "".join(f"{_number(value):>11}" for value in (row.best, row.floor))
    bound = ""
    if row.bound is not None:
        bound = f"{'<=' if GATES[row.name].most else '>='} {_number(row.bound)}{' x' if row.of == 'ratio' else ''}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    ok = {None: "", True: "ok", False: "MISSED"}[row.ok]
    return f"{row.name:<21}{_number(row.value):>12} {row.unit:<10}{figures}{ratio:>8}  {bound:<14}{row.n:>6}  {ok}"


def as_json(found: Sequence[Row], *, short: bool, seconds: float) -> dict[str, Any]:
    """The whole report; members without a value are left out."""
    return {
        "hames": __version__,
        "python": platform.python_version(),
        "platform": f"{sys.platform}-{platform.machine()}",
        "cpus": os.cpu_count(),
        "short": short,
        "seconds": round(seconds, 1),
        "rows": [
            {name: value for name, value in asdict(row).items() if value is not None}
            | {"meaning": GATES[row.name].meaning}
            for row in found
        ],
        "missed": missed(found),
    }


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
