"""The Python client against `hames serve`: what a client is promised, over deaths of the server."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import anyio
import pytest

import hames_client.client
from e2e.processes import unmeasured
from hames.archive.verify import verify_archive
from hames.protocol.methods import METHODS
from hames_client import HamesClient, HamesError

pytestmark = pytest.mark.anyio

TERMINAL = {"turn.completed", "turn.failed", "turn.cancelled"}


@pytest.fixture
def anyio_backend() -> str:
    """One loop: that the client runs on both is proved with the stub, and a spawned server knows of neither."""
    return "asyncio"


@asynccontextmanager
async def _server(tmp_path: Path, *, max_restarts: int = 5, measured: bool = False) -> AsyncIterator[HamesClient]:
    """`measured`: coverage follows the server, which then takes twice as long."""
    env = {**(os.environ if measured else unmeasured()), "HAMES_HOME": str(tmp_path / "home")}
    with anyio.fail_after(120):
        async with HamesClient.spawn(env=env, max_restarts=max_restarts) as client:
            yield client


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


async def test_a_turn_runs_and_its_events_come_in_order(tmp_path: Path, workspace: Path) -> None:
    async with _server(tmp_path) as client:
        session = await client.create_session(workspace, model="offline", title="first")
        turn = (await session.submit("say hello"))["turn"]
        waited = await session.wait(turn["turnId"])
        types: list[str] = []
        async with session.events() as events:
            while not types or types[-1] not in TERMINAL:
                types.append((await anext(events))["type"])

        assert waited["why"] == "ended"
        assert waited["turn"]["outcome"]["text"] == "hello"
        assert types[0] == "session.created"
        assert types[-1] == "turn.completed"


async def test_every_helper_speaks_a_method_that_the_server_knows(tmp_path: Path, workspace: Path) -> None:
    called: list[str] = []

    async with _server(tmp_path, measured=True) as client:
        request = client.request

        async def record(method: str, params: object = None) -> object:
            called.append(method)
            return await request(method, params)  # type: ignore[arg-type]

        client.request = record  # type: ignore[method-assign]
        session = await client.create_session(workspace, model="offline")
        turn_id = (await session.submit("say hello\nwait 600000"))["turn"]["turnId"]
        queued_id = (await session.submit("say later"))["turn"]["turnId"]
        await session.update_turn(queued_id, input="say much later")
        await session.steer("say now", expected_turn_id=turn_id)
        await session.cancel(turn_id, reason="enough")
        await session.wait(turn_id)
        await session.resume_queue()
        await session.wait(queued_id)
        await session.get_turn(queued_id)
        await session.list_turns(limit=1)
        await session.get(view=True)
        await session.rename("second")
        await session.compact()
        await session.usage()
        large = (await session.submit("say large\n" + "x" * 20_000))["turn"]["turnId"]
        await session.wait(large)
        [artifact] = (await session.list_artifacts())["artifacts"]
        await session.read_artifact(artifact["artifact"], length=10)
        started = await session.submit('call bash {"command": "echo on; sleep 600", "background": true}')
        await session.wait(started["turn"]["turnId"])
        [process] = (await session.list_processes())["processes"]
        assert (await session.read_process(process["processId"], wait_ms=60_000)).get("text") == "on\n"
        assert (await session.stop_process(process["processId"]))["process"]["status"] == "exited"
        await session.read_events(limit=10)
        await client.resume_session(session.id, own="observe")
        await client.list_sessions(workspace=workspace)
        await client.describe()
        await client.discover()
        await client.health()
        await client.list_tools()
        await client.list_models("offline")
        await client.ping()
        await session.export()
        await session.close()
        await session.delete()

    # The rest is spoken by the client itself.
    assert set(called) | {"initialize", "shutdown", "events/subscribe", "events/unsubscribe"} == set(METHODS)


async def test_a_session_is_exported_into_a_new_file(tmp_path: Path, workspace: Path) -> None:
    async with _server(tmp_path) as client:
        session = await client.create_session(workspace, model="offline")
        await session.wait((await session.submit("say hello"))["turn"]["turnId"])

        exported = await session.export_to(tmp_path / "session.tar")
        with pytest.raises(FileExistsError):
            await session.export_to(tmp_path / "session.tar")

    report = verify_archive(BytesIO((tmp_path / "session.tar").read_bytes()))
    assert (report.verdict, report.events, report.cursor) == ("good", exported["events"], exported["cursor"])
    assert (tmp_path / "session.tar").stat().st_size == exported["sizeBytes"]


async def test_who_iterates_over_a_session_that_is_deleted_is_told(tmp_path: Path, workspace: Path) -> None:
    async with _server(tmp_path) as client:
        session = await client.create_session(workspace, model="offline")
        types: list[str] = []

        async def follow() -> None:
            while True:
                types.append((await anext(events))["type"])

        async with session.events() as events, anyio.create_task_group() as tasks:
            types.append((await anext(events))["type"])
            tasks.start_soon(session.delete)
            with pytest.raises(HamesError) as told:
                await follow()
        with pytest.raises(HamesError) as refused:
            await session.get()

    assert types == ["session.created", "session.closed"]
    assert (told.value.kind, refused.value.kind) == ("session_deleted", "session_deleted")


async def test_a_refusal_of_the_server_has_its_kind(tmp_path: Path) -> None:
    async with _server(tmp_path) as client:
        with pytest.raises(HamesError) as refused:
            await client.session("nothing").get()

    assert refused.value.kind == "session_not_found"


async def test_deltas_build_the_text_that_the_event_completes(tmp_path: Path, workspace: Path) -> None:
    text = ""

    def grow(delta: dict[str, object]) -> None:
        nonlocal text
        assert delta["offset"] == len(text.encode())
        text += str(delta["text"])

    async with _server(tmp_path) as client:
        session = await client.create_session(workspace, model="offline")
        async with session.events(on_delta=grow) as events:
            await anext(events)
            await session.submit("repeat 20 ab ")
            async for event in events:
                if event["type"] == "message.completed":
                    break

    assert event["data"]["text"].startswith(text)


@pytest.mark.slow
async def test_events_come_once_and_in_order_while_the_server_is_killed_again_and_again(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hames_client.client, "BACKOFF_S", (0.0,))
    kills = 8
    seqs: list[int] = []
    ended: dict[str, int] = {}

    async with _server(tmp_path, max_restarts=kills) as client:
        session = await client.create_session(workspace, model="offline")
        turn_ids = []
        async with session.events() as events:

            async def read() -> None:
                async for event in events:
                    seqs.append(event["seq"])
                    if event["type"] in TERMINAL:
                        ended[event["turnId"]] = ended.get(event["turnId"], 0) + 1
                    if len(ended) == kills:
                        return

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                for number in range(kills):
                    answer = await session.submit(f"say turn {number}\nwait 20\nsay done")
                    turn_ids.append(answer["turn"]["turnId"])
                    pid = client.pid
                    assert pid is not None
                    os.kill(pid, signal.SIGKILL)
        head = (await session.read_events(limit=1))["headSeq"]

    assert seqs == list(range(1, len(seqs) + 1))
    assert len(seqs) == head
    assert ended == dict.fromkeys(turn_ids, 1)


async def test_params_that_do_not_fit_name_the_member(tmp_path: Path, workspace: Path) -> None:
    async with _server(tmp_path) as client:
        with pytest.raises(HamesError) as refused:
            await client.request("session/create", {"workspace": str(workspace), "title": 7})

    assert (refused.value.kind, refused.value.details) == ("invalid_params", {"path": "title"})


async def test_the_health_of_an_offline_session_says_what_it_uses(tmp_path: Path, workspace: Path) -> None:
    async with _server(tmp_path) as client:
        session = await client.create_session(workspace, model="offline")
        own = await client.health(dependencies=["provider"])
        of_session = await client.health(session_id=session.id, dependencies=["provider"])

    assert "No model is configured" in own["dependencies"]["provider"]["why"]
    why = "This session uses the offline interpreter: scripted prompts only."
    assert of_session["dependencies"]["provider"] == {"status": "degraded", "why": why}


async def test_a_page_of_items_ends_before_the_cursor_that_is_given(tmp_path: Path, workspace: Path) -> None:
    async with _server(tmp_path) as client:
        session = await client.create_session(workspace, model="offline")
        for text in ("say one", "say two"):
            await session.wait((await session.submit(text))["turn"]["turnId"])
        items = (await session.get(view=True))["view"]["items"]
        before = (await session.get(view=True, limit=2, before=items[-1]["cursor"]))["view"]["items"]

    assert before == items[-3:-1]
