"""`hames bench`: the figures of this build beside the floors of this machine, and whether they keep their bounds."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

from hames.commands.exits import COMPLETED, FAILED
from hames.commands.output import emit
from hames.protocol.errors import Refused


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bench`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="only these rows, or groups of rows")
    parser.add_argument("--short", action="store_true", help="fewer repetitions: half a minute instead of two at most")
    parser.add_argument(
        "--bound",
        action="append",
        metavar="NAME=VALUE",
        default=[],
        help="hold a row to another bound; may be given again",
    )
    parser.add_argument(
        "--directory", metavar="PATH", help="where stores are made and measured, on the disk in question"
    )


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Measure, print, and fail if a bound is missed."""
    from hames.bench.report import COLUMNS, as_json, as_text, missed, rows
    from hames.bench.table import chosen
    from hames.protocol.jsontext import dumps

    try:
        names = chosen(arguments.only)
        bounds = dict(_bound(text) for text in arguments.bound)
    except ValueError as error:
        raise Refused("invalid_config", f"{error}.") from error
    if arguments.directory is not None and not os.access(arguments.directory, os.W_OK | os.X_OK):
        raise Refused("invalid_config", f"{arguments.directory[:200]!r} is not a directory that can be written to.")
    started = perf_counter()
    if not arguments.json:
        emit(f"{COLUMNS}\n")
    with tempfile.TemporaryDirectory(
        prefix="hames-bench-", dir=arguments.directory, ignore_cleanup_errors=True
    ) as directory:
        found = rows(
            Path(directory).resolve(),
            names,
            short=arguments.short,
            bounds=bounds,
            on_row=lambda row: None if arguments.json else emit(f"{as_text(row)}\n"),
        )
    seconds = perf_counter() - started
    if arguments.json:
        emit(dumps(as_json(found, short=arguments.short, seconds=seconds)).decode() + "\n")
    else:
        emit(f"{len(found)} rows in {seconds:.1f} s\n")
    names_missed = missed(found)
    if names_missed:
        sys.stderr.write(f"hames: bounds missed: {', '.join(names_missed)}\n")
    return FAILED if names_missed else COMPLETED


def _bound(text: str) -> tuple[str, float]:
    """A row and its bound.

    Raises:
        ValueError: not `NAME=VALUE`, no such row, or not a number.
    """
    from hames.bench.table import GATES

    name, _, value = text.partition("=")
    if name not in GATES:
        raise ValueError(f"a bound is NAME=VALUE, and there is no row {name!r}; there are: {', '.join(GATES)}")
    return name, float(value)
