"""`hames verify`: whether a store, a session of it or an export is what was written.

Rule: it only looks, and live processes go on beside it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hames.commands.exits import COMPLETED, FOUND

if TYPE_CHECKING:
    from hames.archive.findings import Finding
    from hames.store.verify import StoreReport

PROGRESS_S = 0.2
"""Between two notes of how far it is: as often as a person reads them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `verify`."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--session", metavar="ID", help="only this session of the store")
    what.add_argument("--export", metavar="FILE", help="an export instead of the store; needs neither store nor key")
    parser.add_argument("--json", action="store_true", help="one JSON record on stdout")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Look, tell, and end with the exit code of what was found."""
    from hames.protocol.errors import HamesError

    try:
        record = _look(arguments, environ)
    except HamesError as error:
        from hames.commands.record import exit_code_of, failure_record, print_record

        code = exit_code_of(error.kind)
        if not arguments.json:
            raise
        print_record(failure_record(error.message, error.data(), code))
        return code
    tell(record, as_json=arguments.json)
    return int(record["exitCode"])


def _look(arguments: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, Any]:
    if arguments.export is not None:
        return _look_at_export(arguments.export, environ)
    return _look_at_store(arguments.session, environ)


def _look_at_store(session_id: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    from hames.commands.stores import require_store
    from hames.config import home_path, load_config

    require_store(environ)
    return store_record(look_at(home_path(environ), load_config(environ).limits, session_id))


def look_at(directory: Path, limits: Mapping[str, int], session_id: str | None) -> StoreReport:
    """As `verify_store`, with progress on a terminal."""
    from hames.store.verify import verify_store

    with _Progress() as progress:
        return verify_store(directory, limits, session_id=session_id, progress=progress)


def store_record(report: StoreReport) -> dict[str, Any]:
    """What to print of a store."""
    record = record_of("store", report.path, report.findings, verdict=verdict_of(report.kinds))
    record["mendable"] = report.is_mendable
    return record | {**report.store, **report.counts, "more": report.more, "notes": report.notes}


def _look_at_export(name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    from hames.archive.verify import verify_archive
    from hames.config import home_path
    from hames.protocol.errors import Refused
    from hames.store.snapshots import keyed_digest

    key = b""
    # Only the store that made it has the key that its seal is proved by.
    with suppress(OSError):
        key = (home_path(environ) / "key").read_bytes()
    try:
        with open(Path(name), "rb") as stream:
            report = verify_archive(stream, keyed=partial(keyed_digest, key) if key else None)
    except OSError as error:
        raise Refused("invalid_config", f"{name} cannot be read: {error.strerror}.") from error
    record = record_of("export", name, report.findings, verdict=report.verdict)
    record |= {"sessionId": report.session_id, "events": report.events, "cursor": report.cursor}
    notes = {
        True: ["authentic: its seal is of the store here"],
        False: ["its seal is not of the store here: another one made it"],
        None: [],
    }[report.authentic if report.verdict == "good" else None]
    return record | {"authentic": report.authentic, "more": report.more, "notes": notes}


def verdict_of(kinds: Collection[str]) -> str:
    """`good`, or of several kinds of damage the one that stands first among the exit codes."""
    return next((kind for kind in FOUND if kind in kinds), "good")


def record_of(what: str, path: str, findings: Sequence[Finding], *, verdict: str) -> dict[str, Any]:
    """What to print of `what` at `path`."""
    return {
        "status": verdict,
        "exitCode": FOUND.get(verdict, COMPLETED),
        "what": what,
        "path": path,
        "findings": [{"kind": each.kind, "where": each.where, "message": each.message} for each in findings],
    }


def tell(record: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a record, or the text of it."""
    from hames.commands.output import emit
    from hames.commands.visible import one_line
    from hames.protocol.jsontext import dumps

    if as_json:
        emit(dumps(record).decode() + "\n")
        return
    lines = [f"{record['what']} {record['path']}: {record['status']}"]
    names = ("version", "epoch", "commits", "sessions", "events", "turns", "blobs")
    facts = [f"{name} {record[name]}" for name in names if name in record]
    lines += [f"  {', '.join(facts)}"] if facts else []
    lines += [f"  {note}" for note in record.get("notes", [])]
    for each in record["findings"]:
        lines.append(f"  {each['kind']:<10}  {one_line(each['where'], 200)}: {one_line(each['message'], 500)}")
    lines += [f"  and {record['more']} more"] if record.get("more") else []
    if record["what"] == "store" and record["findings"]:
        lines.append(f"  {_advice(record)}")
    emit("\n".join(lines) + "\n")


def _advice(record: Mapping[str, Any]) -> str:
    if record["mendable"]:
        return "`hames repair` keeps what proves itself, and makes a backup first"
    return "no repair mends that: do what is said above, or restore a backup of the directory"


class _Progress:
    """How far it is, on a terminal alone; the line is gone at the end."""

    def __init__(self) -> None:
        self._shown_at = time.monotonic()
        self._write: Callable[[str], object] | None = sys.stderr.write if sys.stderr.isatty() else None
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._write is not None and now - self._shown_at >= PROGRESS_S:
            self._shown_at, self._shown = now, True
            self._write(f"\r{done} of {total} events")
            sys.stderr.flush()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._write is not None:
            self._write("\r\x1b[K")
            sys.stderr.flush()
