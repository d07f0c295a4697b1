"""The library without `async`: the same names, from any thread, and a clean end."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crash.waits import until
from e2e.driver import TIMEOUT_S
from hames.embedded import connect, connect_sync
from hames_client import ConnectionLost, Events, HamesClient, HamesError, Session
from hames_client.sync import SyncClient, SyncEvents, SyncSession, spawn_sync

LONG = "wait 600000\nsay never"
INNER = {"over", "spawn", "follow", "subscribe", "unsubscribe"}
"""Of the client: how it is made, and what sessions and iterations ask of it."""

PUT_IN = {"attached", "detached", "received", "delta", "ended"}
"""Of an iteration: what the client calls."""


def names(of: type, without: set[str] = frozenset()) -> set[str]:  # type: ignore[assignment]
    """The public methods of a class, and what its instances are asked for."""
    return {name for name in dir(of) if not name.startswith("_")} - without


def started(session: SyncSession, text: str) -> str:
    """Admit a turn and wait until the model works on it; its id."""
    turn_id: str = session.submit(text)["turn"]["turnId"]
    next(event for event in session.events() if event["type"] == "model.requested")
    return turn_id


def test_every_method_has_its_row_with_the_same_parameters() -> None:
    for sync, own, inner in (
        (SyncClient, HamesClient, INNER),
        (SyncSession, Session, set()),
        (SyncEvents, Events, PUT_IN),
    ):
        assert names(own, inner) <= names(sync)
        for name in names(own, inner):
            method = getattr(own, name)
            if inspect.iscoroutinefunction(method):
                assert getattr(sync, name).method is method
                assert getattr(sync, name).__doc__ == method.__doc__


def test_a_turn_runs_and_its_events_come_in_order(environ: Mapping[str, str], workspace: Path) -> None:
    deltas: list[str] = []
    with connect_sync(environ=environ) as client:
        session = client.create_session(workspace, model="offline", title="first")
        turn_id = session.submit("say hello")["turn"]["turnId"]
        waited = session.wait(turn_id)
        seqs = []
        with session.events(on_delta=lambda delta: deltas.append(delta["text"])) as events:
            for event in events:
                seqs.append(event["seq"])
                if event["type"] == "turn.completed":
                    break
        assert events.session_id == session.id
        assert events.cursor == session.read_events()["headCursor"]
        assert client.resume_session(session.id).id == session.id
        assert client.session(session.id).get()["session"]["title"] == "first"
        assert session.answer is not None
        assert (client.pid, client.server["transport"]["kind"]) == (None, "memory")

    assert waited["turn"]["outcome"]["text"] == "hello"
    assert seqs == list(range(1, len(seqs) + 1))


def test_it_is_used_from_many_threads_at_once(environ: Mapping[str, str], workspace: Path) -> None:
    with connect_sync(environ=environ) as client, ThreadPoolExecutor(20) as threads:

        def work(number: int) -> str:
            session = client.create_session(workspace, model="offline")
            turn = session.wait(session.submit(f"say {number}")["turn"]["turnId"])["turn"]
            return str(turn["outcome"]["text"])

        assert list(threads.map(work, range(40))) == [str(number) for number in range(40)]


def test_a_refusal_comes_as_it_is(environ: Mapping[str, str]) -> None:
    with connect_sync(environ=environ) as client, pytest.raises(HamesError) as refused:
        client.session("none").get()
    with pytest.raises(HamesError) as wrong, connect_sync(environ=environ, settings={"modle": "x"}):
        pass

    assert refused.value.kind == "session_not_found"
    assert wrong.value.kind == "invalid_config"


@pytest.mark.parametrize(("opens", "name"), [(connect_sync, "connect_sync"), (spawn_sync, "spawn_sync")])
def test_an_argument_that_is_none_is_told_of_the_function_that_was_called(
    opens: Callable[..., object], name: str
) -> None:
    with pytest.raises(TypeError) as wrong:
        opens(setting={})

    assert str(wrong.value) == f"{name}() got an unexpected keyword argument 'setting'"


def test_an_exception_of_the_block_comes_out_as_it_is_and_ends_what_runs(
    environ: Mapping[str, str], workspace: Path
) -> None:
    mine = LookupError("mine")
    caught = None

    try:
        with connect_sync(environ=environ, on_close="drain") as client:
            session = client.create_session(workspace, model="offline")
            turn_id = started(session, LONG)
            raise mine
    except LookupError as error:
        caught = error
    with connect_sync(environ=environ) as client:
        turn = client.session(session.id).get_turn(turn_id)["turn"]

    assert caught is mine
    assert turn["status"] == "cancelled"


def test_with_drain_the_end_waits_for_what_runs(environ: Mapping[str, str], workspace: Path) -> None:
    with connect_sync(environ=environ, on_close="drain") as client:
        session = client.create_session(workspace, model="offline")
        turn_id = started(session, "wait 300\nsay last")
    with connect_sync(environ=environ) as client:
        turn = client.session(session.id).get_turn(turn_id)["turn"]

    assert (turn["status"], turn["outcome"]["text"]) == ("completed", "last")


def test_who_waits_in_another_thread_hears_of_the_end_and_so_does_who_comes_later(
    environ: Mapping[str, str], workspace: Path
) -> None:
    ended: list[BaseException | None] = []
    with connect_sync(environ=environ) as client:
        session = client.create_session(workspace, model="offline")
        turn_id = session.submit(LONG)["turn"]["turnId"]
        events = session.events()
        next(events)

        def wait() -> None:
            try:
                for _ in events:
                    pass
            except ConnectionLost as lost:
                ended.append(lost)

        waiting = threading.Thread(target=wait)
        waiting.start()
    waiting.join(TIMEOUT_S)
    with pytest.raises(ConnectionLost, match="closed"):
        session.wait(turn_id)
    with pytest.raises(ConnectionLost, match="closed"):
        next(events)

    assert not waiting.is_alive()
    assert len(ended) == 1


def test_an_iteration_that_is_closed_by_another_thread_ends(environ: Mapping[str, str], workspace: Path) -> None:
    with connect_sync(environ=environ) as client:
        events = client.create_session(workspace, model="offline").events()
        first = next(events)
        taken: list[Any] = []
        waiting = threading.Thread(target=lambda: taken.extend(events))
        waiting.start()
        events.close()
        waiting.join(TIMEOUT_S)

    assert first["type"] == "session.created"
    assert (waiting.is_alive(), taken) == (False, [])


def test_a_callback_that_calls_the_client_is_told_so(environ: Mapping[str, str], workspace: Path) -> None:
    raised: list[str] = []
    with connect_sync(environ=environ) as client:
        session = client.create_session(workspace, model="offline")

        def call(delta: object) -> None:
            try:
                client.ping()
            except RuntimeError as error:
                raised.append(str(error))

        with session.events(on_delta=call) as events:
            next(events)
            session.submit("wait 500\nsay hello")  # a preview that comes at once may find its reader behind
            for event in events:
                if event["type"] == "turn.completed":
                    break

    assert "callback" in raised[0]


def test_nothing_is_left_of_it(environ: Mapping[str, str], workspace: Path) -> None:
    before = set(threading.enumerate())
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with connect_sync(environ=environ) as client:
            client.create_session(workspace, model="offline")

    # One that loads modules ahead is left to end by itself.
    until(lambda: not set(threading.enumerate()) - before, "its threads are gone")
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 3


def test_a_spawned_server_too(environ: Mapping[str, str], workspace: Path) -> None:
    with spawn_sync(env=environ) as client:
        assert client.pid is not None
        session = client.create_session(workspace, model="offline")
        turn = session.wait(session.submit("say hello")["turn"]["turnId"])["turn"]

    assert turn["outcome"]["text"] == "hello"


INTERRUPTED = """
import sys, hames
try:
    with hames.connect_sync(on_close="drain") as client:
        session = client.create_session({workspace!r}, model="offline", session_id="s-1")
        session.submit("wait 600000", turn_id="t-1")
        next(event for event in session.events() if event["type"] == "model.requested")
        print("waiting", flush=True)
        {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


@pytest.mark.parametrize("wait", ['session.wait("t-1")', "list(session.events())", "pass"])
def test_ctrl_c_ends_the_call_that_waits_and_the_block(environ: Mapping[str, str], workspace: Path, wait: str) -> None:
    program = INTERRUPTED.format(workspace=str(workspace), wait=wait)
    child = subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"waiting\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=TIMEOUT_S)
    with connect_sync(environ=environ) as client:
        turn = client.session("s-1").get_turn("t-1")["turn"]

    assert (child.returncode, out, err) == (130, b"interrupted\n", b"")
    assert turn["status"] == "cancelled"


def test_importing_the_package_loads_nothing_of_it() -> None:
    program = """
import sys, typing
before = set(sys.modules)
import hames
assert set(sys.modules) - before <= {"hames", "__future__"}, set(sys.modules) - before
assert "connect" in hames.__all__
try:
    hames.conect
except AttributeError as error:
    print(error)
from hames import connect, connect_sync, HamesClient, HamesError
assert "pydantic" not in sys.modules and "apsw" not in sys.modules and "httpx" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S)

    assert (done.returncode, done.stdout, done.stderr) == (0, "module 'hames' has no attribute 'conect'\n", "")


def test_the_names_of_the_package_are_those_of_the_library() -> None:
    import hames
    import hames.embedded

    assert set(hames.__all__) == {*hames.embedded.__all__, "__version__"}
    assert hames.connect is connect
    assert hames.connect_sync is connect_sync
