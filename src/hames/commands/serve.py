"""`hames serve`: the server on stdin and stdout."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Mapping
from functools import partial


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `serve`."""
    parser.add_argument(
        "--framing", choices=["auto", "line", "header"], default="auto", help="how frames are told apart"
    )
    parser.add_argument(
        "--on-disconnect",
        choices=["cancel", "drain"],
        default="cancel",
        help="what running turns do when the client is gone",
    )
    parser.add_argument(
        "--no-follow-parent", action="store_true", help="go on when the parent process dies but the pipe stays open"
    )


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Serve until the client is gone. The process then ends at once: a thread may hang in a full pipe."""
    from hames.commands.hiding import hide_secrets
    from hames.commands.sparing import spare_imports
    from hames.config import about_store, about_transport, home_path, load_config
    from hames.server.greeting import agree, greet_early
    from hames.server.stdio import claim_stdio

    # Until all is loaded there is no garbage worth looking for; see `app.preload`.
    gc.disable()
    stdio = claim_stdio()
    spare_imports()
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    # The thread that writes a burst of deltas would wait 5 ms for each turn beside a loop that makes them.
    sys.setswitchinterval(0.001)

    config = load_config(environ)
    hide_secrets()
    limits = config.limits
    store, transport = about_store(home_path(environ)), about_transport(limits, arguments.framing)
    opening = greet_early(
        stdio,
        arguments.framing,
        limits=limits,
        result_of=partial(agree, limits=limits, store=store, transport=transport),
    )

    import anyio

    from hames.app import make_host
    from hames.server.serve import serve_stdio

    async def main() -> None:
        await serve_stdio(
            stdio,
            lambda tasks: make_host(config, environ, tasks, framing=arguments.framing),
            opening=opening,
            on_disconnect=arguments.on_disconnect,
            follow_parent=not arguments.no_follow_parent,
        )

    anyio.run(main)
    os._exit(0)
