"""`hames run`: one turn of a new or an older session, without anybody there to ask. Programs branch on its exit code.

Rule 1: with `--json` or `--jsonl` there is exactly one record on stdout, last, on every path, also where nothing ran.
Rule 2: an interrupted run cancels its turn and lets it settle; a second signal leaves at once, and recovery settles.
Rule 3: stdin is read only where no prompt is given.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from hames.commands.exits import INTERRUPTED, TERMINATED
from hames.commands.record import exit_code_of, failure_record, interrupted_record, print_record
from hames.commands.visible import visible
from hames.core.limits import LIMITS
from hames.protocol.errors import HamesError, Refused

if TYPE_CHECKING:
    from hames.commands.turn import Request

MAX_STDIN_BYTES = LIMITS["inputBytes"].maximum
"""Most that is read of a prompt from stdin: no turn takes more."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    parser.add_argument("prompt", nargs="?", help="what to do; absent or `-`: stdin, at most 4 MiB")
    parser.add_argument(
        "--model", metavar="MODEL", help="`<provider>/<model>` or `offline`; with --session it replaces the session's"
    )
    parser.add_argument("--workspace", metavar="DIR", help="the directory to work in (default: the current one)")
    parser.add_argument("--session", metavar="ID", help="go on with this session instead of a new one")
    parser.add_argument(
        "--id", metavar="ID", help="id of the new session (default: one is made up); not with --session"
    )
    parser.add_argument("--title", metavar="TEXT", help="title of the new session; not with --session")
    parser.add_argument(
        "--steps", metavar="N", type=_positive, help="most model requests; one more, without tools, asks for an answer"
    )
    parser.add_argument("--timeout-ms", metavar="N", type=_positive, help="most milliseconds from the turn's start")
    parser.add_argument(
        "--cost-micros", metavar="N", type=_positive, help="most that the turn costs, in millionths of a US dollar"
    )
    parser.add_argument(
        "--tools",
        metavar="NAMES",
        help="tools of the new session, with commas between (see `hames tools`), or `none`; not with --session",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON record at the end, and nothing else")
    form.add_argument("--jsonl", action="store_true", help="print every event as a line of JSON, then the record")


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**53):
        raise argparse.ArgumentTypeError(f"must be a whole number of 1 or more, not {text[:40]!r}")
    return int(text)


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the turn to its end."""
    as_json = arguments.json or arguments.jsonl
    signal.signal(signal.SIGTERM, _terminate)
    try:
        request = _request(arguments)

        import anyio

        from hames.commands.hiding import hide_secrets
        from hames.commands.sparing import spare_imports
        from hames.commands.turn import run_turn
        from hames.config import load_config

        config = load_config(environ)
        hide_secrets()
        spare_imports()
        return anyio.run(run_turn, request, config, environ)
    except HamesError as error:
        record = failure_record(error.message, error.data(), exit_code_of(error.kind))
        sys.stderr.write(f"hames: {visible(error.message)}\n")
    except _Terminated:
        record = interrupted_record(TERMINATED, "SIGTERM")
    except KeyboardInterrupt:
        record = interrupted_record(INTERRUPTED, "SIGINT")
    if as_json:
        print_record(record)
    return int(record["exitCode"])


class _Terminated(BaseException):
    """SIGTERM came before there was a turn that could be cancelled."""


def _terminate(number: int, frame: object) -> NoReturn:
    raise _Terminated


def _request(arguments: argparse.Namespace) -> Request:
    from hames.commands.turn import Request

    if arguments.session is not None:
        for name in ("id", "title", "tools"):
            if getattr(arguments, name) is not None:
                raise Refused("invalid_config", f"--{name} is for a new session; session {arguments.session} has one.")
    workspace = arguments.workspace
    if workspace is None and arguments.session is None:
        workspace = "."
    wished = {"steps": arguments.steps, "wallTimeMs": arguments.timeout_ms, "costMicros": arguments.cost_micros}
    return Request(
        prompt=_prompt(arguments.prompt),
        workspace=None if workspace is None else os.path.realpath(workspace),
        session_id=arguments.session,
        model=arguments.model,
        new_id=arguments.id,
        title=arguments.title,
        tools=None if arguments.tools is None else _tools(arguments.tools),
        limits={name: value for name, value in wished.items() if value is not None},
        form="jsonl" if arguments.jsonl else "json" if arguments.json else "text",
    )


def _tools(text: str) -> tuple[str, ...]:
    names = tuple(name for name in map(str.strip, text.split(",")) if name)
    if not names:
        raise Refused("invalid_config", "--tools names no tool: write `none` for a session without any.")
    return () if names == ("none",) else names


def _prompt(given: str | None) -> str:
    """The prompt, from the command line or stdin.

    Raises:
        Refused: `invalid_config`: there is none, it is too large, or it is not text.
    """
    if given is None and os.isatty(0):
        raise Refused("invalid_config", "There is no prompt: give one, or `-` to type it.")
    raw = os.fsencode(given) if given not in (None, "-") else _stdin()
    try:
        prompt = raw.decode()
    except UnicodeDecodeError as error:
        raise Refused("invalid_config", f"The prompt is not UTF-8 at byte {error.start}.") from error
    if not prompt.strip():
        raise Refused("invalid_config", "The prompt is empty.")
    return prompt


def _stdin() -> bytes:
    with os.fdopen(os.dup(0), "rb") as stdin:
        raw = stdin.read(MAX_STDIN_BYTES + 1)
    if len(raw) > MAX_STDIN_BYTES:
        raise Refused(
            "invalid_config",
            f"The prompt on stdin has more than {MAX_STDIN_BYTES} bytes (limits.inputBytes). "
            "Put large material in a file.",
        )
    return raw
