"""`hames describe`: what this build can do, as JSON. Needs no key, no store and no workspace, and starts nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from hames.commands.exits import COMPLETED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are no options: the answer is the whole document."""


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the answer of `capabilities/describe`."""
    from hames.commands.local import LocalClient, run_with_client
    from hames.commands.pretty import pretty
    from hames.commands.streams import Streams

    async def body(client: LocalClient, streams: Streams) -> int:
        streams.text(pretty(await client.request("capabilities/describe")))
        return COMPLETED

    return run_with_client(body, environ, needs_store=False)
