"""`hames tools`: the tools that a session can have. Needs no key and no workspace, and starts nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from hames.commands.exits import COMPLETED
from hames.commands.visible import one_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How they are printed."""
    parser.add_argument("--json", action="store_true", help="the answer of tools/list, with descriptions and schemas")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the answer of `tools/list`."""
    from hames.commands.local import LocalClient, run_with_client
    from hames.commands.pretty import pretty
    from hames.commands.streams import Streams

    async def body(client: LocalClient, streams: Streams) -> int:
        answer = await client.request("tools/list")
        streams.text(pretty(answer) if arguments.json else "".join(map(_row, answer["tools"])))
        return COMPLETED

    return run_with_client(body, environ, needs_store=False)


def _row(tool: Mapping[str, Any]) -> str:
    offered = tool["offered"]
    to = ", ".join(offered["families"]) or "nobody unasked"
    facts = [f"to {to}", *(["in strict mode too"] if offered["strict"] else [])]
    facts += [f"needs {offered['needs']}"] if "needs" in offered else []
    first = one_line(tool["description"].partition(". ")[0].rstrip(".") + ".", 100)
    return f"{tool['name']:<16} {tool['effect']:<8} {first}\n{'':<25} {'; '.join(facts)}\n"
