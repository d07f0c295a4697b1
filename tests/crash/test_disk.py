"""A disk without room, a store that is damaged or cannot be had: typed errors, and nothing lost or invented."""

from __future__ import annotations

import marshal
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crash.ledger import settle, still_usable
from e2e.driver import CallFailed, Server, compatible, said
from e2e.fixtures import Start
from engine.rules import check_log
from fake.provider import FakeProvider, calls, partial, text, wait_for
from soak.room import no_room

UNUSABLE = {"store_full", "store_unavailable", "session_corrupt"}


def whole_log(server: Server, session_id: str) -> list[dict[str, Any]]:
    log = [entry["event"] for entry in server.log(session_id)]
    check_log(log)
    return log


def test_without_room_nothing_is_admitted_and_reading_works(server: Server, workspace: Path) -> None:
    session_id = server.create(workspace)
    still_usable(server, session_id)
    before = whole_log(server, session_id)
    with no_room(server):
        for n in range(5):
            error = server.refused("turn/submit", sessionId=session_id, input=said(f"lost {n}"))
            assert error["data"]["kind"] in UNUSABLE
            assert error["data"]["retryable"]
        assert server.refused("session/create", workspace=str(workspace))["data"]["kind"] in UNUSABLE
        assert server.call("ping") == {}
        assert whole_log(server, session_id) == before
    still_usable(server, session_id)
    log = whole_log(server, session_id)
    assert log[: len(before)] == before
    assert "lost" not in str(log)


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["mid-text", "before a tool", "in a tool", "last answer"])
def test_a_turn_that_finds_no_room_is_settled_when_there_is_some(
    start: Start, workspace: Path, fake: FakeProvider, phase: str
) -> None:
    (workspace / "wait").mkdir()
    answers = {
        "mid-text": partial("some text ") + wait_for("go") + text("and more " * 2000, chunks=20),
        "before a tool": wait_for("go") + calls([("bash", {"command": "touch ran"})]),
        "in a tool": calls([("bash", {"command": "touch began; while [ -e wait ]; do sleep 0.02; done"})]),
        "last answer": wait_for("go") + text("all"),
    }
    fake.script(answers[phase])
    server = start(env={"HAMES_LIMIT_CHUNK_MS": "10"})
    session_id = server.create(workspace)
    other = server.create(workspace)
    turn_id = server.submit(session_id)
    queued = server.submit(session_id, "behind it")
    fake.wait_for_requests(1)
    if phase == "in a tool":
        server.wait_event("tool.started")
    if phase == "mid-text":
        server.wait_event("message.chunk")
    with no_room(server):
        fake.gate("go").open()
        (workspace / "wait").rmdir()
        error = server.refused("turn/submit", sessionId=other, input=said("lost"))
        assert error["data"]["kind"] in UNUSABLE
        waited = server.call("turn/wait", sessionId=session_id, turnId=turn_id, timeoutMs=500)
        assert waited["why"] == "timeout"
        assert server.call("ping") == {}
    turn = server.finish(session_id, turn_id)
    assert turn["status"] == "failed"
    assert turn["outcome"]["error"]["kind"] in UNUSABLE
    assert not (workspace / "ran").exists(), "no tool runs that is not recorded"
    assert server.finish(session_id, queued)["status"] == "completed"
    whole_log(server, session_id)
    still_usable(server, other)


def test_a_turn_that_finds_no_room_goes_on_in_another_process(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(partial("some text ") + wait_for("go") + text("more"), text("whole"))
    server = start(env={"HAMES_LIMIT_CHUNK_MS": "10"})
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    server.wait_event("message.chunk")
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (512, 512))
    fake.gate("go").open()
    server.refused("session/update", sessionId=session_id, title="lost")
    before = whole_log(server, session_id)
    server.kill()
    second = start()
    second.call("session/resume", sessionId=session_id)
    assert second.finish(session_id, turn_id)["status"] == "completed"
    assert whole_log(second, session_id)[: len(before)] == before


# --- a store that cannot be had -------------------------------------------------------------------------------


def assert_lives_without_store(server: Server, session_id: str, workspace: Path) -> None:
    """Typed errors, and a server that answers what needs no store."""
    asked: list[tuple[str, dict[str, Any]]] = [
        ("session/list", {}),
        ("session/get", {"sessionId": session_id}),
        ("turn/submit", {"sessionId": session_id, "input": said("lost")}),
        ("session/create", {"workspace": str(workspace)}),
        ("events/read", {"sessionId": session_id}),
    ]
    for method, params in asked:
        error = server.refused(method, **params)
        assert error["data"]["kind"] in UNUSABLE, (method, error)
        assert error["message"]
    assert server.call("ping") == {}
    assert server.call("capabilities/describe")


@pytest.mark.parametrize("place", ["below a file", "where nothing can be made"])
def test_a_store_that_cannot_be_made_is_a_typed_error(start: Start, home: Path, workspace: Path, place: str) -> None:
    (home / "file").write_text("in the way")
    store = str(home / "file" / "store") if place == "below a file" else "/proc/hames-store"
    server = start(env={"HAMES_HOME": store})
    assert_lives_without_store(server, "s-1", workspace)
    if place == "below a file":
        (home / "file").unlink()
        (home / "file").mkdir()
        still_usable(server, server.create(workspace))


def _shorten(path: Path, part: float) -> None:
    # The log of changes ends in room for more, and to lose that is no damage.
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(data[: int(len(data) * part)])


def _scribble(path: Path, start: int, length: int) -> None:
    data = bytearray(path.read_bytes())
    data[start : start + length] = b"\xa5" * length
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "database of zero bytes": lambda store: (store / "store.db").write_bytes(b""),
    "database is garbage": lambda store: (store / "store.db").write_bytes(b"garbage " * 4096),
    "database cut in half": lambda store: _shorten(store / "store.db", 0.5),
    "header scribbled": lambda store: _scribble(store / "store.db", 0, 100),
    "database deleted": lambda store: (store / "store.db").unlink(),
    "log of changes deleted": lambda store: (store / "store.db-wal").unlink(),
    "log of changes cut in half": lambda store: _shorten(store / "store.db-wal", 0.5),
    "log of changes is garbage": lambda store: _scribble(store / "store.db-wal", 0, 10_000),
    "key deleted": lambda store: (store / "key").unlink(),
    "key cut": lambda store: _shorten(store / "key", 0.5),
}


@dataclass(frozen=True)
class Killed:
    """What a server left that was killed after a turn: copied by each test that damages it."""

    store: Path
    workspace: Path
    env: dict[str, str | None]
    session_id: str
    log: list[dict[str, Any]]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    home, workspace = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("workspace")
    with FakeProvider() as fake:
        env: dict[str, str | None] = {**compatible(fake.url)}
        first = Server(home, env=env)
        try:
            session_id = first.create(workspace)
            still_usable(first, session_id)
            log = whole_log(first, session_id)
        finally:
            first.kill()
        yield Killed(home / "store", workspace, env, session_id, log)
    assert fake.refusals == []


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_store_is_refused_untouched_and_works_again_when_it_is_restored(
    start: Start, home: Path, killed: Killed, damage: Callable[[Path], object]
) -> None:
    session_id, workspace, before = killed.session_id, killed.workspace, killed.log
    store, backup = home / "store", home / "backup"
    _copy(killed.store, store)
    _copy(store, backup)
    if damage in (DAMAGE["database cut in half"], DAMAGE["database is garbage"], DAMAGE["header scribbled"]):
        _checkpoint(store)
        _copy(store, backup)
    damage(store)
    second = start(env=killed.env)
    assert_lives_without_store(second, session_id, workspace)
    second.stop()
    _copy(backup, store)
    third = start(env=killed.env)
    settle(third, session_id)
    assert whole_log(third, session_id)[: len(before)] == before
    still_usable(third, session_id)


def _copy(source: Path, target: Path) -> None:
    """A backup, or its restoration; sockets are no part of it, also that of a reaper which is about to end."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock", "*.socket"))


def _checkpoint(store: Path) -> None:
    """All changes into the database file, so that damage to it cannot be made good from the log of changes."""
    with closing(sqlite3.connect(store / "store.db")) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")


def test_damage_to_one_session_leaves_the_others_whole(start: Start, home: Path, workspace: Path) -> None:
    first = start()
    sessions = [first.create(workspace, f"s{n}") for n in range(3)]
    for session_id in sessions:
        still_usable(first, session_id)
    logs = {session_id: whole_log(first, session_id) for session_id in sessions}
    first.kill()
    with closing(sqlite3.connect(home / "store" / "store.db")) as connection, connection:
        changed = connection.execute(
            "update event set line = replace(line, 'still there?', 'never said!!') where id >> 40 ="
            " (select n from session where id = 's1') and line like '%still there?%'"
        )
        assert changed.rowcount == 1
    second = start()
    with pytest.raises(CallFailed) as failed:
        second.log("s1")
    assert failed.value.error["data"]["kind"] == "session_corrupt"
    assert failed.value.error["data"]["details"]["seq"] == 2
    for session_id in ("s0", "s2"):
        assert whole_log(second, session_id) == logs[session_id]
        still_usable(second, session_id)


def test_waiting_for_a_turn_of_a_damaged_session_comes_to_an_end(start: Start, home: Path, workspace: Path) -> None:
    first = start()
    session_id = first.create(workspace)
    still_usable(first, session_id)
    first.kill()
    with closing(sqlite3.connect(home / "store" / "store.db")) as connection, connection:
        connection.execute("update event set line = replace(line, 'still there?', 'never said!!')")
    second = start()
    response = second.ask("turn/submit", sessionId=session_id, input=said("on"))
    if "result" in response:  # the head proved itself; what is damaged comes out when the turn is to run
        turn_id = response["result"]["turn"]["turnId"]
        response = second.ask("turn/wait", sessionId=session_id, turnId=turn_id, timeoutMs=10_000)
    assert response["error"]["data"]["kind"] == "session_corrupt", "nobody will run it, and who waits is told why"


def test_a_full_disk_leaves_no_half_of_a_compiled_module_behind(start: Start, workspace: Path, tmp_path: Path) -> None:
    cache = tmp_path / "compiled"
    server = start(env={"PYTHONPYCACHEPREFIX": str(cache), "HAMES_MODEL": "offline"})
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id, "say hello"))

    with no_room(server):
        for method in ("ping", "health/check", "models/list", "tools/list", "rpc.discover"):
            server.call(method)
        server.ask("artifact/list", sessionId=session_id)
        server.ask("session/export", sessionId=session_id)

    compiled = [path.read_bytes() for path in cache.rglob("*.pyc")]
    assert compiled
    for each in compiled:
        marshal.loads(each[16:])  # its head has 16 bytes (PEP 552)
