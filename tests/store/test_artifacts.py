"""Large texts and images of events, kept apart by every store in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from hames.core.artifacts import TEXT
from hames.core.commands import Draft, Ending, EndTurn, Record, SubmitTurn
from hames.core.state import state_to_json
from hames.ports import Artifact, Committed, Store
from hames.protocol.errors import Refused
from store.play import World, check_chain, create, folded, running, submission, whole

pytestmark = pytest.mark.anyio

PICTURE = bytes(range(256)) * 1024


def result(fence: int, text: str, call: str = "c-1", **more: Any) -> Record:
    """A call's result."""
    data = {"callId": call, "tool": "read", "outcome": "ok", "text": text, "details": {}, **more}
    return Record(fence, "t-1", (Draft("tool.completed", data),))


def told(text: str) -> SubmitTurn:
    """A turn with this text."""
    return replace(submission("t-1"), input=({"type": "text", "text": text},))


async def last_data(store: Store) -> Mapping[str, Any]:
    data: Mapping[str, Any] = (await whole(store))[-1]["event"]["data"]
    return data


async def read_all(store: Store, artifact: str) -> bytes:
    return (await store.contents("s-1", [artifact]))[artifact]


async def test_a_large_text_is_a_reference_in_the_log_and_whole_in_the_store(world: World) -> None:
    text = "é line\n" * 10_000
    async with world.open() as store:
        fence = await running(store)

        committed = await store.commit("s-1", result(fence, text)).wait()

        reference = (await last_data(store))["text"]
        raw = text.encode()
        assert reference == {
            "artifact": f"a-{sha256(raw).hexdigest()[:32]}",
            "sizeBytes": len(raw),
            "sha256": sha256(raw).hexdigest(),
            "head": raw[:1024].decode("utf-8", "ignore"),
        }
        assert committed.events[0].data["text"] == reference
        assert committed.contents == {reference["artifact"]: raw}
        assert await read_all(store, reference["artifact"]) == raw


@pytest.mark.parametrize(("text", "apart"), [("x" * 16_384, False), ("x" * 16_385, True), ("é" * 8_193, True)])
async def test_the_bound_counts_bytes(world: World, text: str, apart: bool) -> None:
    async with world.open() as store:
        fence = await running(store)

        await store.commit("s-1", result(fence, text)).wait()

        assert isinstance((await last_data(store))["text"], dict) is apart


async def test_lines_with_references_are_chained_as_all_are(world: World) -> None:
    async with world.open() as store:
        await create(store)
        await store.commit("s-1", told("large " * 50_000)).wait()

        page = await store.read("s-1", limit=10, max_bytes=10**6)

        check_chain("s-1", page.lines)
        assert len(page.lines) < 10_000


async def test_the_state_holds_no_text_and_folds_from_the_log(world: World) -> None:
    text = "answer " * 40_000
    async with world.open() as store:
        fence = await running(store)

        done = await store.commit("s-1", EndTurn(fence, "t-1", Ending("completed", text=text))).wait()

        entries = await whole(store)
        assert folded("s-1", entries) == (await store.load("s-1")).state
        assert len(state_to_json(done.state)) < 4_096
        turn, _ = await store.turn("s-1", "t-1")
        assert turn.outcome is not None
        assert turn.outcome["text"] == entries[-1]["event"]["data"]["text"]
        assert await read_all(store, turn.outcome["text"]["artifact"]) == text.encode()


async def test_equal_contents_are_one_artifact_named_by_the_first_event(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        for call in ("c-1", "c-2"):
            await store.commit("s-1", result(fence, "y" * 100_000, call)).wait()

        [artifact] = await store.artifacts("s-1", after=None, limit=10)

        digest = sha256(b"y" * 100_000).hexdigest()
        assert artifact == Artifact(f"a-{digest[:32]}", digest, 100_000, 4, TEXT)


async def test_an_image_is_always_an_artifact(world: World) -> None:
    slot = {"type": "image", "mediaType": "image/png", "data": PICTURE, "label": "a.png"}
    async with world.open() as store:
        await create(store)

        await store.commit("s-1", replace(submission("t-1"), input=(slot,))).wait()

        [said] = (await last_data(store))["input"]
        digest = sha256(PICTURE).hexdigest()
        artifact = f"a-{digest[:32]}"
        assert said == {**slot, "data": {"artifact": artifact, "sizeBytes": len(PICTURE), "sha256": digest}}
        found = await store.artifact("s-1", artifact)
        assert (found.media_type, found.name) == ("image/png", "a.png")
        assert await read_all(store, artifact) == PICTURE


async def test_many_middling_texts_do_not_make_a_large_event(world: World) -> None:
    slots = tuple({"type": "text", "text": "\u0001" * 12_000, "label": f"{n}"} for n in range(90))
    async with world.open() as store:
        await create(store)

        await store.commit("s-1", replace(submission("t-1"), input=slots)).wait()

        page = await store.read("s-1", limit=10, max_bytes=10**7)
        assert len(page.lines) < 2**20


async def test_a_range_of_an_artifact_can_be_read(world: World) -> None:
    raw = bytes(n % 251 for n in range(300_000))
    async with world.open() as store:
        fence = await running(store)
        image = {"mediaType": "image/png", "data": raw}
        await store.commit("s-1", result(fence, "seen", images=[image])).wait()
        [artifact] = await store.artifacts("s-1", after=None, limit=10)

        pieces = [
            await store.read_artifact("s-1", artifact.artifact, offset=at, length=65_536)
            for at in range(0, 300_001, 65_536)
        ]

        assert b"".join(pieces) == raw
        assert await store.read_artifact("s-1", artifact.artifact, offset=300_000, length=10) == b""
        assert await store.read_artifact("s-1", artifact.artifact, offset=10**9, length=10) == b""


async def test_a_session_reads_no_artifact_of_another(world: World) -> None:
    async with world.open() as store:
        await create(store, "s-2")
        fence = await running(store)
        await store.commit("s-1", result(fence, "z" * 20_000)).wait()
        [artifact] = await store.artifacts("s-1", after=None, limit=10)

        assert await store.artifacts("s-2", after=None, limit=10) == []
        for asked in (store.artifact("s-2", artifact.artifact), store.contents("s-2", [artifact.artifact])):
            with pytest.raises(Refused, match="artifact_not_found"):
                await asked


@pytest.mark.parametrize("artifact", ["a-" + "0" * 32, "a-", "", "a-zz", "../key", "a-" + "0" * 64, "é" * 34])
async def test_an_id_that_names_nothing_is_not_found(world: World, artifact: str) -> None:
    async with world.open() as store:
        await running(store)

        with pytest.raises(Refused, match="artifact_not_found"):
            await store.read_artifact("s-1", artifact, offset=0, length=1)


async def test_artifacts_are_listed_page_by_page(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        for n in range(7):
            await store.commit("s-1", result(fence, f"{n}" * 20_000, f"c-{n}")).wait()

        listed: list[Artifact] = []
        while page := await store.artifacts("s-1", after=listed[-1].artifact if listed else None, limit=3):
            listed += page

        assert [artifact.seq for artifact in sorted(listed, key=lambda each: each.seq)] == list(range(4, 11))
        assert listed == sorted(listed, key=lambda each: each.artifact)


async def test_what_was_spooled_is_kept_until_nobody_used_it(world: World) -> None:
    async with world.open() as store:
        await create(store)
        spool = store.spool()
        for _ in range(100):
            spool.write(b"piece" * 1000)

        kept = await store.keep("s-1", spool, media_type="application/x-tar", name="all.tar")

        assert (kept.seq, kept.size_bytes, kept.name) == (0, 500_000, "all.tar")
        assert await read_all(store, kept.artifact) == b"piece" * 100_000
        assert await store.collect() == 0
        assert await store.collect(grace_ms=-60_000) == 1
        with pytest.raises(Refused, match="artifact_not_found"):
            await store.artifact("s-1", kept.artifact)


async def test_a_spool_that_was_discarded_leaves_nothing(world: World) -> None:
    async with world.open() as store:
        await create(store)
        spool = store.spool()
        spool.write(b"x" * 100_000)

        spool.discard()

        assert await store.artifacts("s-1", after=None, limit=10) == []


async def test_what_an_event_names_is_never_collected(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        spool = store.spool()
        spool.write(b"q" * 90_000)
        await store.keep("s-1", spool, media_type=TEXT, name="kept")
        await store.commit("s-1", result(fence, "q" * 90_000)).wait()

        assert await store.collect(grace_ms=-60_000) == 0

        [artifact] = await store.artifacts("s-1", after=None, limit=10)
        assert artifact.seq == 4
        assert len(await read_all(store, artifact.artifact)) == 90_000


async def test_a_refused_command_keeps_nothing(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)

        with pytest.raises(Refused, match="lease_lost"):
            await store.commit("s-1", result(fence + 1, "w" * 70_000)).wait()

        assert await store.artifacts("s-1", after=None, limit=10) == []


async def test_artifacts_outlive_the_process(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        made: Committed = await store.commit("s-1", result(fence, "kept " * 30_000)).wait()

    async with world.open() as store:
        assert await store.contents("s-1", made.contents) == made.contents
        assert (await store.load("s-1")).state.active is not None
