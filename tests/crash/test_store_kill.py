"""A process killed at any point: nothing acknowledged is lost, no gap, the head is the last event."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from store.play import World, check_chain, folded, take, whole
from store.process import other

KILLS = 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for kill in range(KILLS // 2):
        world = World("sqlite", tmp_path / f"store-{kill}")
        with other(world.directory) as writer:
            writer.tell("flood", sessions=4)
            acks = [writer.hear() for _ in range(chance.randrange(1, 400))]
            acks += writer.kill()
        acked = {ack["session"]: ack["seq"] for ack in acks}

        anyio.run(check, world, acked)

        with closing(sqlite3.connect(world.directory / "store.db")) as connection:
            assert connection.execute("pragma integrity_check").fetchone() == ("ok",)


async def check(world: World, acked: dict[str, int]) -> None:
    """What was acknowledged is there, whole and proven, and goes on."""
    async with world.open() as store:
        for session_id, seq in acked.items():
            loaded = await store.load(session_id)
            entries = await whole(store, session_id)
            assert [entry["event"]["seq"] for entry in entries] == list(range(1, loaded.state.seq + 1))
            assert loaded.state.seq >= seq
            assert loaded.state == folded(session_id, entries)
            check_chain(session_id, (await store.read(session_id, limit=10**6, max_bytes=2**30)).lines)
            assert await take(store, session_id) == 2
