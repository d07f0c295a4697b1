"""`hames models`: the models of a provider, and what is known of them; the provider is asked for its list."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from hames.commands.exits import COMPLETED
from hames.commands.visible import in_a_row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whose, and how they are printed."""
    parser.add_argument("provider", nargs="?", help="its name (default: that of the configured model)")
    parser.add_argument("--json", action="store_true", help="the answer of models/list")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the answer of `models/list`."""
    from hames.commands.local import LocalClient, run_with_client
    from hames.commands.notes import unnamed_model
    from hames.commands.pretty import pretty
    from hames.commands.streams import Streams
    from hames.config import load_config
    from hames.naming import OFFLINE

    config = load_config(environ)
    wish = {} if arguments.provider is None else {"provider": arguments.provider}

    async def body(client: LocalClient, streams: Streams) -> int:
        answer = await client.request("models/list", wish)
        rows = [_row(answer["provider"], model) for model in answer["models"]]
        if answer["provider"] == OFFLINE and arguments.provider is None and config.get("model") is None:
            streams.note(unnamed_model({"provider": OFFLINE}, config))
        streams.text(pretty(answer) if arguments.json else "".join(rows))
        return COMPLETED

    return run_with_client(body, environ, needs_store=False)


def _row(provider: str, model: Mapping[str, Any]) -> str:
    facts = [f"from {model['source']}"]
    facts += [f"{model['contextTokens']:,} tokens"] if "contextTokens" in model else []
    facts += [f"{model['outputTokens']:,} in an answer"] if "outputTokens" in model else []
    facts += [f"trained up to {model['cutoff']}"] if "cutoff" in model else []
    facts += [word for word in ("thinks", "images") if model.get(word)]
    facts += ["priced"] if "rateCard" in model else []
    name = f"{provider}/{in_a_row(model['name'])}"
    return f"{name:<48} {', '.join(facts)}\n"
