"""Power cuts: the files of a server are taken back to what some moment had made sure, and what it had told must stand.

Rule 1: the trace must explain the files as they are; so nothing is done to them that is not recorded.
Rule 2: the proof that losses would be found: with SQLite's syncs switched off, they are.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import anyio
import apsw

from crash.ledger import settle, still_usable
from crash.whole import references, whole_events
from e2e.driver import Server, compatible, said
from engine.rules import check_log
from fake.provider import FakeProvider, text
from hames.protocol.errors import HamesError
from soak.checks import check_store
from soak.disk import SCENERY, Disk, Record, read_trace
from soak.kills import ENVIRONMENT
from soak.load import Model, make_workspace
from soak.place import Place, with_paths
from soak.told import Telling, Told
from store.play import World, check_chain, folded, parse, submission, take

SESSIONS = 3
TURNS = 12
SERVER_EVERY = 25
"""Of the images, one in so many is given to a whole server too."""

INPUT_WORDS = (1, 200, 4_000, 12_000)
"""Some stand in the log, some beside it, some in files of their own."""

SMALL_RESERVE = {"HAMES_LIMIT_RESERVE_BYTES": "65536"}
"""Every image has it."""

CHECKPOINT_PAGES = 60
"""In place of 1,024: so that checkpoints and restarts of the WAL are among what is cut."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a cut cost, or how the store could not be used after it."""

    place: int
    why: str


@dataclass(frozen=True, slots=True)
class Life:
    """A recorded server: what was durable when it began, what it did, and what others had told before it."""

    base: Path
    records: list[Record]
    earlier: Told


def cuts(place: Place) -> str:
    """A round: `place.size` cuts, half of them in the life of a server on what an earlier cut had left."""
    chance = place.chance()
    workspace = make_workspace(place.directory)
    with FakeProvider() as fake:
        first = record_life(place, fake, workspace, "first")
        losses = list(lose_power(place, first, chance, fake, count=place.size // 2))
        left, told = left_by_a_cut(place, first, chance)
        second = record_life(place, fake, workspace, "second", left=left, earlier=told)
        losses += lose_power(place, second, chance, fake, count=place.size - place.size // 2)
        assert losses == [], f"{len(losses)} of {place.size} cuts: {losses[:3]}"
        assert fake.refusals == []
    return f"{place.size} cuts of lives of {len(first.records)} and {len(second.records)} records"


def losses_without_syncs(place: Place, synchronous: str, *, forget: Callable[[Record], bool] = lambda _: False) -> int:
    """How many of `place.size` cuts cost something that was told when SQLite syncs less, or when the disk did not do
    some of what was recorded: the proof of the method."""
    workspace = make_workspace(place.directory)
    with FakeProvider() as fake:
        life = record_life(place, fake, workspace, "first", synchronous=synchronous)
        life = replace(life, records=[record for record in life.records if not forget(record)])
        return len(list(lose_power(place, life, place.chance(), fake, count=place.size)))


def record_life(
    place: Place,
    fake: FakeProvider,
    workspace: Path,
    name: str,
    *,
    synchronous: str = "full",
    left: Path | None = None,
    earlier: Told | None = None,
) -> Life:
    """A server works under load on what was `left` and ends in good order; its trace, held against its files."""
    home, base, trace = place.home(name), place.home(f"{name}-base"), place.directory / f"{name}-trace"
    if left is not None:
        for copy in (home, base):
            shutil.copytree(left, copy, dirs_exist_ok=True)
    earlier = earlier or Told()
    fake.answer = Model(place.seed, large=True)
    options = ["--synchronous", synchronous, "--checkpoint-pages", str(CHECKPOINT_PAGES)]
    via = [sys.executable, "-m", "soak.recorded", *options, str(trace), str(home)]
    env = compatible(fake.url, **ENVIRONMENT, **SMALL_RESERVE, PYTHONPATH=with_paths()["PYTHONPATH"])
    with Server(home, env=env, via=via) as server:
        _work(server, workspace, name, sorted(earlier.sessions), place.chance())
    records = list(read_trace(trace))
    _check_explained(place.directory / f"{name}-replayed", base, records, home)
    return Life(base, records, earlier)


def _work(server: Server, workspace: Path, name: str, there: list[str], chance: random.Random) -> None:
    for session_id in there:
        server.call("session/resume", sessionId=session_id, subscribe={})
    sessions = [*there, *(server.create(workspace, f"{name}-{n}") for n in range(SESSIONS))]
    for n in range(TURNS):
        words = f"text {n} " * chance.choice(INPUT_WORDS)
        server.send("turn/submit", sessionId=sessions[n % len(sessions)], input=said(words))
    for session_id in sessions:
        settle(server, session_id)


def _check_explained(replayed: Path, base: Path, records: list[Record], home: Path) -> None:
    disk = Disk(base)
    for record in records:
        disk.play(record)
    disk.write_whole(replayed)
    told, real = _files(replayed), _files(home)
    assert told.keys() == real.keys(), "every file that is there was recorded, and no other"
    different = [name for name in real if real[name] != told[name]]
    assert different == [], f"the trace does not explain {different}"


def _files(root: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(root.rglob("*")):
        inner = path.relative_to(root)
        if path.is_file() and path.name != "store.db-shm" and not any(p.startswith(SCENERY) for p in inner.parts):
            found[str(inner)] = path.read_bytes()
    return found


def left_by_a_cut(place: Place, life: Life, chance: random.Random) -> tuple[Path, Told]:
    """What one cut under load left, and what had been told by then."""
    telling = Telling(life.records, life.earlier)
    moment = chance.randrange(telling.first() + 1, len(life.records) + 1)
    disk = Disk(life.base)
    for record in life.records[:moment]:
        disk.play(record)
    left = place.directory / "left"
    disk.write_after_cut(left, chance)
    return left, telling.before(moment)


def lose_power(place: Place, life: Life, chance: random.Random, fake: FakeProvider, *, count: int) -> Iterator[Loss]:
    """Cut the power `count` times, and say what was lost."""
    telling = Telling(life.records, life.earlier)
    disk = Disk(life.base)
    at = 0
    for number, moment in enumerate(_moments(life.records, telling.first(), chance, count)):
        for record in life.records[at:moment]:
            disk.play(record)
        at = moment
        home, kept = place.directory / "cut", place.directory / "kept"
        for old in (home, kept):
            shutil.rmtree(old, ignore_errors=True)
        disk.write_after_cut(home, random.Random(f"{place.seed} {number}"))
        shutil.copytree(home, kept)
        told = telling.before(moment)
        try:
            anyio.run(_check, home, told)
            if number % SERVER_EVERY == 0:
                _check_served(kept, told, fake)
        except (AssertionError, HamesError, apsw.Error) as error:
            shutil.copytree(home, place.directory / f"lost-{moment}", dirs_exist_ok=True)
            yield Loss(moment, f"{type(error).__name__}: {error!s:.600}")


def _moments(records: list[Record], first: int, chance: random.Random, count: int) -> list[int]:
    """Where the power goes: one in five before anything is told, the others under load."""
    early = count // 5
    chosen = [chance.randrange(first + 1) for _ in range(early)]
    chosen += [chance.randrange(first + 1, len(records) + 1) for _ in range(count - early)]
    return sorted(chosen)


async def _check(home: Path, told: Told) -> None:
    """What was told is there, whole and proven, and goes on."""
    world = World("sqlite", home / "store")
    async with world.open() as store:
        for session_id in sorted(told.sessions):
            loaded = await store.load(session_id)
            page = await store.read(session_id, limit=10**6, max_bytes=2**30)
            check_chain(session_id, page.lines)
            lines = page.lines.split(b"\n")[:-1]
            assert page.count == loaded.state.seq == len(lines), "no gap, and the head is the last event"
            for seq, (cursor, event) in told.events.get(session_id, {}).items():
                assert seq <= len(lines), f"event {seq} of {session_id} was told and is lost: {len(lines)} are there"
                assert lines[seq - 1] == b'"cursor":"%b","event":%b' % (cursor.encode(), event), "an event changed"
            entries = parse(page.lines)
            assert loaded.state == folded(session_id, entries)
            queued = {entry["event"]["turnId"] for entry in entries if entry["event"]["type"] == "turn.queued"}
            lost = {turn for session, turn in told.turns if session == session_id} - queued
            assert lost == set(), f"{lost} were admitted and are lost"
            for reference in references(entries):
                piece = {"offset": 0, "length": reference["sizeBytes"]}
                content = await store.read_artifact(session_id, reference["artifact"], **piece)
                assert sha256(content).hexdigest() == reference["sha256"], f"{reference} is not what it names"
            await take(store, session_id)
            await store.commit(session_id, submission("t-after")).wait()
    connection = apsw.Connection(str(home / "store/store.db"))
    try:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


def _check_served(home: Path, told: Told, fake: FakeProvider) -> None:
    fake.answer = lambda _body: text("yes")
    with Server(home, env=compatible(fake.url)) as server:
        for session_id in sorted({*told.sessions, server.create(make_workspace(home))}):
            settle(server, session_id)
            still_usable(server, session_id)
            check_log(whole_events(server, session_id, [entry["event"] for entry in server.log(session_id)]))
        assert "Traceback" not in server.stderr
    check_store(home)
