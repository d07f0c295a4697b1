"""`hames sessions export` and `delete`: a session put into a file of its own, and one removed for ever.

Rule 1: a file is there whole or not at all, and none is overwritten.
Rule 2: nothing is deleted without a word: `--yes`, or an answer on a terminal.
"""

from __future__ import annotations

import argparse
import os
import sys
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from hames.commands.exits import COMPLETED, USAGE
from hames.commands.local import LocalClient, run_with_client
from hames.commands.streams import Streams
from hames.commands.visible import one_line
from hames.protocol.errors import Refused
from hames.protocol.jsontext import dumps


def add_export(parser: argparse.ArgumentParser) -> None:
    """The options of `export`."""
    parser.add_argument("session", metavar="ID")
    parser.add_argument("-o", "--output", metavar="FILE", help="a new file; default: ID.tar in this directory")
    parser.add_argument("--json", action="store_true", help="the answer of session/export, with the path")


def add_delete(parser: argparse.ArgumentParser) -> None:
    """The options of `delete`."""
    parser.add_argument("session", metavar="ID")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def export(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Export a session into a file."""
    path: str = arguments.output or f"{arguments.session}.tar"
    if os.path.lexists(path):
        raise Refused("invalid_config", f"{path} is there already; remove it, or name another file with -o.")

    async def body(client: LocalClient, streams: Streams) -> int:
        exported = await client.request("session/export", {"sessionId": arguments.session})
        try:
            await _save(client, arguments.session, exported, path)
        except OSError as error:
            raise Refused("invalid_config", f"{path} cannot be written: {error.strerror}.") from error
        if arguments.json:
            streams.line(dumps({**exported, "path": path}))
        else:
            streams.text(f"{path}: {exported['events']} events, {exported['sizeBytes']} bytes\n")
        return COMPLETED

    return run_with_client(body, environ)


async def _save(client: LocalClient, session_id: str, exported: Mapping[str, Any], path: str) -> None:
    part = f"{path}.part"
    with _new_file(part) as file:
        try:
            await _copy(client, session_id, exported, file)
            file.flush()
            os.fsync(file.fileno())
            os.rename(part, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise


def _new_file(path: str) -> BinaryIO:
    """A file for its user alone, wherever it is: it holds what the session holds."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))


async def _copy(client: LocalClient, session_id: str, exported: Mapping[str, Any], file: BinaryIO) -> None:
    wish = {"sessionId": session_id, "artifact": exported["artifact"], "encoding": "base64", "offset": 0}
    while wish["offset"] < exported["sizeBytes"]:
        piece = await client.request("artifact/read", wish)
        file.write(b64decode(piece["data"]))
        wish["offset"] = piece["nextOffset"]


def delete(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Delete a session, once somebody said so."""
    if not arguments.yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refused("invalid_config", "Not a terminal, so nobody can be asked: say --yes to delete the session.")
        code = _ask(arguments.session, environ)
        if code != COMPLETED:
            return code

    async def body(client: LocalClient, streams: Streams) -> int:
        await client.request("session/delete", {"sessionId": arguments.session})
        streams.text(f"{arguments.session} is deleted\n")
        return COMPLETED

    return run_with_client(body, environ)


def _ask(session_id: str, environ: Mapping[str, str]) -> int:
    found: list[Mapping[str, Any]] = []

    async def body(client: LocalClient, streams: Streams) -> int:
        found.append((await client.request("session/get", {"sessionId": session_id}))["session"])
        return COMPLETED

    code = run_with_client(body, environ)
    if not found:
        return code
    session = found[0]
    title = f" “{one_line(session['title'], 60)}”" if session.get("title") else ""
    turns = f"{session['turns']} turn{'' if session['turns'] == 1 else 's'}"
    sys.stderr.write(f"Delete session {session_id}{title}, {turns}, for ever? [y/N] ")
    sys.stderr.flush()
    return COMPLETED if sys.stdin.readline().strip().lower() in ("y", "yes") else USAGE
