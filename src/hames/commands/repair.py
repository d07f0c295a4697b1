"""`hames repair`: a damaged store is made good again, of what proves itself; the backup comes first.

Rule 1: a store that is good is not touched, nor is one where nothing is wrong that a repair mends.
Rule 2: nothing is done without a word: `--yes`, or an answer on a terminal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hames.commands.exits import COMPLETED, FAILED, LOSSES, USAGE

if TYPE_CHECKING:
    from hames.store.repair import RepairReport
    from hames.store.verify import StoreReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `repair`."""
    parser.add_argument("--session", metavar="ID", help="only this session")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="one JSON record on stdout")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Look, ask, repair, look again."""
    from hames.commands.stores import require_store
    from hames.config import home_path, load_config
    from hames.protocol.errors import HamesError

    try:
        require_store(environ)
        limits = load_config(environ).limits
        return _run(arguments, home_path(environ), limits)
    except HamesError as error:
        from hames.commands.record import exit_code_of, failure_record, print_record

        if not arguments.json:
            raise
        code = exit_code_of(error.kind)
        print_record(failure_record(error.message, error.data(), code))
        return code


def _run(arguments: argparse.Namespace, directory: Path, limits: Mapping[str, int]) -> int:
    from hames.commands.verify import look_at, store_record, tell
    from hames.protocol.errors import Refused
    from hames.store.repair import finish_cut_repair, refuse_company, repair_store

    refuse_company(directory)
    finish_cut_repair(directory, limits)
    before = _look(directory, limits, arguments.session)
    if not before.is_mendable:
        record = store_record(before)
        tell({**record, "notes": [*before.notes, "nothing to do"]}, as_json=arguments.json)
        return int(record["exitCode"])
    if not arguments.yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()) or arguments.json:
            raise Refused("invalid_config", "Not a terminal, so nobody can be asked: say --yes to repair the store.")
        tell(store_record(before), as_json=False)
        sys.stderr.write("Repair it? A backup is made first. [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return USAGE
    report = repair_store(directory, limits, session_id=arguments.session)
    after = look_at(directory, limits, arguments.session)
    _tell(_record(report, after), as_json=arguments.json)
    return _code(report, after)


def _look(directory: Path, limits: Mapping[str, int], session_id: str | None) -> StoreReport:
    """As `verify.look_at`; where the disk has no room even for that, how much a repair needs is told."""
    from hames.commands.verify import look_at
    from hames.protocol.errors import HarnessFault
    from hames.store.room import lacking

    try:
        return look_at(directory, limits, session_id)
    except HarnessFault as fault:
        if fault.kind != "store_full":
            raise
        raise lacking(directory) from fault


def _code(report: RepairReport, after: StoreReport) -> int:
    if not after.is_good:
        return FAILED
    return LOSSES if report.loses else COMPLETED


def _record(report: RepairReport, after: StoreReport) -> dict[str, Any]:
    from hames.commands.verify import store_record
    from hames.core.artifacts import artifact_id

    looked = store_record(after)
    sessions = [
        {
            "sessionId": each.session_id,
            "reason": each.reason,
            **({"left": each.left} if each.left else {"lastGoodSeq": each.last_good_seq, "lost": each.lost}),
            **({"gone": True} if each.gone else {}),
        }
        for each in report.salvaged
    ]
    return {
        "status": "repaired" if after.is_good else "left",
        "exitCode": _code(report, after),
        "path": looked["path"],
        "backup": report.backup,
        "epoch": report.epoch,
        "rebuilt": report.rebuilt,
        "historyLost": report.history_lost,
        "removedRows": report.removed,
        "mended": {what: count for what, count in sorted(report.mended.items()) if count},
        "artifactsLost": [artifact_id(digest) for digest in report.contents_lost],
        "sessions": sessions,
        "findings": looked["findings"],
    }


def _tell(record: Mapping[str, Any], *, as_json: bool) -> None:
    from hames.commands.output import emit
    from hames.commands.visible import one_line
    from hames.protocol.jsontext import dumps

    if as_json:
        emit(dumps(record).decode() + "\n")
        return
    lines = [f"store {record['path']}: {record['status']}, epoch {record['epoch']}", f"  backup {record['backup']}"]
    if record["historyLost"]:
        lines.append("  the last commits of the whole store are lost; each session says so in its log")
    if record["removedRows"]:
        lines.append(f"  {record['removedRows']} events belonged to no session and are in the backup only")
    lines += [f"  mended, nothing lost: {count} {what}" for what, count in record["mended"].items()]
    lines += [f"  lost, found nowhere: artifact {artifact}" for artifact in record["artifactsLost"]]
    for each in record["sessions"]:
        if "left" in each:
            what = f"left as it is: {each['left']}"
        elif "gone" in each:
            what = "not even its first event proves itself: all of it is in the backup only"
        elif each["lost"] == 0:
            what = f"whole, {each['lastGoodSeq']} events"
        else:
            lost = "an unknown number" if each["lost"] is None else each["lost"]
            what = f"{each['lastGoodSeq']} events kept, {lost} lost"
        lines.append(f"  session {each['sessionId']}: {what}")
    lines += [
        f"  still {each['kind']}  {one_line(each['where'], 200)}: {one_line(each['message'], 500)}"
        for each in record["findings"]
    ]
    emit("\n".join(lines) + "\n")
