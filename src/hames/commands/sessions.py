"""`hames sessions`: what is in the store. Nothing of a session runs for it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any

from hames.commands.exits import COMPLETED
from hames.commands.local import LocalClient, run_with_client
from hames.commands.pretty import pretty
from hames.commands.session_ends import add_delete, add_export, delete, export
from hames.commands.streams import Streams
from hames.commands.telling import model_name
from hames.commands.unfolding import head_of
from hames.commands.visible import in_a_row, one_line
from hames.protocol.jsontext import dumps

ROOM_BYTES = 1024 * 1024
"""Output that may wait for its reader until the next page is asked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of `sessions`."""
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    list_ = actions.add_parser("list", help="newest first")
    list_.add_argument("--workspace", metavar="DIR", help="only those of this directory")
    list_.add_argument("--query", metavar="TEXT", help="only those with this in their title or id")
    list_.add_argument("--json", action="store_true", help="one JSON object a line")
    show = actions.add_parser("show", help="one session, its turns and what it used")
    show.add_argument("session", metavar="ID")
    show.add_argument("--json", action="store_true", help="the answer of session/get, with its view")
    add_export(actions.add_parser("export", help="put one into a file that proves itself"))
    add_delete(actions.add_parser("delete", help="remove one for ever"))


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Do the action that was typed."""
    actions = {"show": _show, "export": export, "delete": delete}
    if arguments.action in actions:
        return actions[arguments.action](arguments, environ)
    wish: dict[str, Any] = {}
    if arguments.workspace is not None:
        wish["workspace"] = os.path.realpath(arguments.workspace)
    if arguments.query is not None:
        wish["query"] = arguments.query

    async def body(client: LocalClient, streams: Streams) -> int:
        page: Mapping[str, Any] = {"nextPage": None}
        while "nextPage" in page:
            page = await client.request("session/list", wish)
            for session in page["sessions"]:
                if arguments.json:
                    streams.line(dumps(session))
                else:
                    streams.text(_row(session))
            wish["page"] = page.get("nextPage")
            await streams.room(ROOM_BYTES)
        return COMPLETED

    return run_with_client(body, environ)


def _show(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    async def body(client: LocalClient, streams: Streams) -> int:
        answer = await client.request("session/get", {"sessionId": arguments.session, "view": True})
        streams.text(pretty(answer) if arguments.json else _page(answer))
        return COMPLETED

    return run_with_client(body, environ)


def _state(session: Mapping[str, Any]) -> str:
    if session["status"] == "closed":
        return "closed"
    if "runningTurnId" in session:
        return "running" if session.get("owner", {}).get("alive") else "interrupted"
    return "held" if "held" in session["queue"] else "queued" if session["queue"]["length"] else "idle"


def _row(session: Mapping[str, Any]) -> str:
    title = one_line(session.get("title", ""), 40)
    turns = f"{session['turns']} turn{'' if session['turns'] == 1 else 's'}"
    columns = [f"{session['sessionId']:<24}", f"{_state(session):<11}", f"{turns:<9}", session["updatedAt"][:19] + "Z"]
    named = in_a_row(model_name(session["model"]))
    return "  ".join([*columns, named, in_a_row(session["workspace"], 4_096), title]).rstrip() + "\n"


def _page(answer: Mapping[str, Any]) -> str:
    session, view = answer["session"], answer["view"]
    facts = {
        "session": session["sessionId"],
        "title": session.get("title"),
        "state": _state(session),
        "workspace": session["workspace"],
        "model": model_name(session["model"]),
        "created": session["createdAt"],
        "updated": session["updatedAt"],
        "cursor": session["cursor"],
        "owner": _owner(session.get("owner")),
        "sandbox": f"{answer['snapshot']['sandbox']['backend']}, not guaranteed: "
        + ", ".join(answer["snapshot"]["assurance"]["reduced"]),
        "usage": _usage(view["usage"]["inclusive"]),
        "cost": _cost(view["usage"]["inclusive"]),
    }
    lines = [f"{name:<10} {value}" for name, value in facts.items() if value is not None]
    lines.append(f"{'turns':<10} {session['turns']}, newest first")
    lines += [f"  {turn['turnId']:<24}  {turn['status']:<10} {_end_of(turn)}".rstrip() for turn in view["turns"]]
    return "\n".join(lines) + "\n"


def _owner(owner: Mapping[str, Any] | None) -> str | None:
    return f"process {owner['pid']} on {owner['host']}" if owner is not None and owner["alive"] else None


def _usage(total: Mapping[str, Any]) -> str:
    counters = ", ".join(f"{name} {count}" for name, count in sorted(total["counters"].items()))
    reported = f"reported by {total['reported']} of {total['requests']} model requests"
    return f"{counters} ({reported})" if counters else reported


def _cost(total: Mapping[str, Any]) -> str | None:
    """One line: what the provider said, else what was estimated, else why nobody can say."""
    cost = total.get("cost", {})
    if "reported" in cost:
        return f"{cost['reported']['amount']} {cost['reported']['currency']}, as the provider reported it"
    if "estimated" in cost:
        estimated = cost["estimated"]
        cards = ", ".join(f"{card['name']} {card['version']}" for card in estimated["rateCards"])
        return f"about {estimated['amount']} {estimated['currency']}, estimated by list prices ({cards})"
    return f"not known ({total['costReason']})" if "costReason" in total else None


def _end_of(turn: Mapping[str, Any]) -> str:
    outcome = turn.get("outcome", {})
    if "error" in outcome:
        return f"{outcome['error']['kind']}: {one_line(outcome['error']['message'], 100)}"
    return one_line(head_of(outcome.get("text") or outcome.get("cause") or ""), 100)
