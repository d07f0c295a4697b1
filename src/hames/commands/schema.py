"""`hames schema`: the protocol's JSON Schemas, printed or written. They are generated from the messages themselves."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hames.commands.exits import COMPLETED, FAILED, USAGE
from hames.commands.output import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `schema`."""
    parser.add_argument(
        "name", nargs="?", metavar="METHOD_OR_EVENT", help="like turn/submit, turn.completed, delta or error"
    )
    parser.add_argument("--write", metavar="DIR", type=Path, help="write schemas/ and protocol/openrpc.json below DIR")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the index, or the schemas of one name; or write all of them."""
    if arguments.write is not None and arguments.name is not None:
        sys.stderr.write("hames: --write writes every schema: leave the name out.\n")
        return USAGE
    if arguments.write is not None:
        return _write(arguments.write)
    return _print(arguments.name)


def _print(name: str | None) -> int:
    from hames.commands.pretty import pretty
    from hames.protocol.jsontext import loads
    from hames.protocol.schema import documents, index

    if name is None:
        emit(pretty(index()))
        return COMPLETED
    places = named(index(), name)
    if not places:
        sys.stderr.write(f"hames: nothing is called {name[:80]!r}; `hames schema` prints the index of all names.\n")
        return USAGE
    files = documents()
    schemas = {role: loads(files[f"schemas/{place}"]) for role, place in places.items()}
    emit(pretty(schemas if len(schemas) > 1 else next(iter(schemas.values()))))
    return COMPLETED


def named(index: Mapping[str, Any], name: str) -> dict[str, str]:
    """The schema files of a method (`params` and `result`), notification, event type or `error`, below `schemas/`.

    By their role; empty if nothing has the name.
    """
    found: dict[str, str] = {}
    for rows in index.values():
        for row in rows if isinstance(rows, list) else []:
            if name in (row.get("name"), row.get("type")):
                found |= {role: place for role, place in row.items() if str(place).endswith(".json")}
    if name == "error":
        found["schema"] = "error.json"
    return found


def _write(root: Path) -> int:
    from hames.generate import write

    try:
        root.mkdir(parents=True, exist_ok=True)
        changed = write(root)
    except OSError as error:
        sys.stderr.write(f"hames: {root} cannot be written: {error.strerror}.\n")
        return FAILED
    emit("".join(f"{path}\n" for path in changed))
    return COMPLETED
