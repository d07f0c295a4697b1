"""Another process on a store: does what it is told by lines of JSON on stdin, answers each with a line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from hames.protocol.errors import HamesError
from hames.store import SqliteStore
from store.damage import close_in_passing
from store.play import LIMITS, chunk, creation, running, submission, take


def say(**answer: Any) -> None:
    """One line to who listens."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def flood(store: SqliteStore, sessions: int) -> None:
    """Commit without end, in batches of several sessions; say the seq of every commit once it is durable."""
    fences = {f"s-{n}": await running(store, f"s-{n}") for n in range(sessions)}
    at = 0
    while True:
        tickets = [
            (session_id, store.commit(session_id, chunk(fence, "t-1", at, "x" * (1 + at * 37 % 9000))))
            for session_id, fence in fences.items()
            for _ in range(1 + at % 4)
        ]
        for session_id, ticket in tickets:
            say(session=session_id, seq=(await ticket.wait()).state.seq)
        at += 1


def hold(_: Any) -> None:
    """Stay within a transaction, and so within the gate, until a line comes."""
    say(held=True)
    sys.stdin.readline()


async def obey(store: SqliteStore, order: dict[str, Any]) -> None:
    """Do one thing and say how it went."""
    session_id = order.get("session", "s-1")
    match order["do"]:
        case "create":
            made = await store.commit(session_id, creation(store, session_id)).wait()
            say(seq=made.state.seq)
        case "run":
            say(fence=await running(store, session_id))
        case "submit":
            say(seq=(await store.commit(session_id, submission(order["turn"])).wait()).state.seq)
        case "load":
            say(seq=(await store.load(session_id)).state.seq)
        case "claim":
            say(fence=await take(store, session_id))
        case "chunk":
            say(seq=(await store.commit(session_id, chunk(order["fence"], "t-1", 0)).wait()).state.seq)
        case "changed":
            say(seq=await store.changed(session_id, order["after"]))
        case "stray":
            close_in_passing(Path(sys.argv[1]))
            say(strayed=True)
        case "hold":
            await store._give(hold).wait()
            say(held=False)
        case "flood":
            await flood(store, order["sessions"])


async def main(directory: str) -> None:
    """Open the store and obey until stdin ends."""
    store = SqliteStore(Path(directory), limits=LIMITS, reaper=lambda: None)
    await store.open()
    say(owner=store._running.owners.owner_id if store._running else None)
    while line := await anyio.to_thread.run_sync(sys.stdin.readline):
        try:
            await obey(store, json.loads(line))
        except HamesError as error:
            say(kind=error.kind, **error.details)
    await store.aclose()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
