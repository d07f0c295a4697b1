"""What a model is told beside the conversation: composed once, found again in the log, told of when it changes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from engine.kit import SID, Answer, Call, Cluster, FakeTool, Gate, Process, Stop, bench, cluster, failed, said
from hames.core.commands import CompactContext
from hames.core.conversation import ModelRequest
from hames.core.framing import FRAME
from hames.core.profiles import PROFILES
from hames.engine import composing
from hames.ports import ToolContext, ToolOutcome
from hames.protocol.errors import HarnessFault

pytestmark = pytest.mark.anyio

PATH = "/work/AGENTS.md"
CANARY = b"Say CANARY-1 in the end."
LONG = "word " * 400
BY = {"principal": "user"}


@pytest.fixture(autouse=True)
def day(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The day, which a test may change: so none depends on when it runs."""
    days = ["2026-01-31"]
    monkeypatch.setattr(composing, "today", lambda: days[-1])
    return days


async def turns(process: Process, *numbers: int, text: str = "do") -> None:
    for number in numbers:
        await process.submit(f"t-{number}", f"{text} {number}")
        assert (await process.finish(f"t-{number}")).status == "completed"


def writing(files: dict[str, bytes | str], path: str, content: bytes) -> FakeTool:
    async def body(arguments: Any, context: ToolContext) -> ToolOutcome:
        files[path] = content
        return ToolOutcome("written")

    return FakeTool("note", body=body)


def is_summary(request: ModelRequest) -> bool:
    return "is to be replaced by a summary" in request.messages[-1].text


def summing_up(request: ModelRequest) -> Answer:
    return ["The goal was clear."] if is_summary(request) else [LONG]


async def shorten(process: Process, number: int) -> None:
    await process.service.commit(SID, CompactContext(BY))
    await turns(process, number)


def systems(c: Cluster) -> list[str]:
    return [request.system for request in c.provider.requests]


async def test_over_ten_turns_each_request_begins_as_the_one_before() -> None:
    async with bench(FakeTool("look")) as (c, p):
        c.files[PATH] = CANARY
        c.provider.otherwise = lambda request: [Call("look")] if len(request.messages) % 4 == 1 else ["ok"]

        await turns(p, *range(10))

        requests = c.provider.requests
        assert len(requests) == 20
        assert len(set(systems(c))) == 1
        assert "CANARY-1" in systems(c)[0]
        for before, after in pairwise(requests):
            assert after.tools == before.tools
            assert after.messages[: len(before.messages)] == before.messages
        assert len(c.of("context.composed")) == 1
        assert c.of("resources.changed") == []


async def test_what_was_composed_is_in_the_log_before_the_request() -> None:
    async with bench() as (c, p):
        c.files |= {
            PATH: CANARY,
            "/work/CLAUDE.md": b"Not for this family.",
            "/work/.git/HEAD": b"ref: refs/heads/main",
        }

        await turns(p, 1)

        types = c.types()
        assert types.index("context.composed") < types.index("model.requested")
        (event,) = c.of("context.composed", reason="first", provider="fake", model="fake", profile="other")
        agent, environment, document = event["data"]["parts"]
        assert agent["text"] == f"{PROFILES['other'].prompt}\n{FRAME}"
        assert "on branch main" in environment["text"]
        assert "2026-01-31" in environment["text"]
        assert (document["source"], document["path"], document["text"]) == ("document", "AGENTS.md", CANARY.decode())
        assert document["sizeBytes"] == len(CANARY)


async def test_documents_are_read_from_the_root_of_the_checkout_down() -> None:
    async with cluster() as c:
        c.files |= {
            "/work/AGENTS.md": b"OUTSIDE",
            "/work/repo/.git": b"gitdir: /elsewhere",
            "/work/repo/AGENTS.md": b"ROOT",
            "/work/repo/a/.codex/instructions.md": b"MIDDLE",
            "/work/repo/a/b/AGENTS.md": b"LEAF",
            "/work/repo/a/b/c/AGENTS.md": b"BELOW",
        }
        p = await c.start()
        p.world.cwd = "/work/repo/a/b"
        await p.create()

        await turns(p, 1)

        (event,) = c.of("context.composed")
        paths = [part["path"] for part in event["data"]["parts"] if part["source"] == "document"]
        assert paths == ["repo/AGENTS.md", "repo/a/.codex/instructions.md", "repo/a/b/AGENTS.md"]
        assert "is in a git checkout." in systems(c)[0]


@pytest.mark.parametrize("git", ["/work/.git/config", "/work/.git"])
async def test_a_checkout_is_one_also_where_its_branch_cannot_be_read(git: str) -> None:
    async with bench() as (c, p):
        c.files[git] = b""

        await turns(p, 1)

        assert "The working directory is in a git checkout." in systems(c)[0]


async def test_a_document_that_changes_is_told_of_with_the_next_step_and_the_prefix_stays() -> None:
    async with cluster() as c:
        tool = writing(c.files, PATH, b"Say CANARY-2.")
        c.tools = [tool]
        c.files[PATH] = CANARY
        p = await c.start()
        await p.create()
        c.provider.script(["ok"], [Call("note")], ["done"])

        await turns(p, 1, 2)
        del c.files[PATH]
        await turns(p, 3)

        assert len(set(systems(c))) == 1
        first, second, third, fourth = c.provider.requests
        assert third.messages[: len(second.messages)] == second.messages
        assert fourth.messages[: len(third.messages)] == third.messages
        assert "CANARY" not in "".join(message.text for message in second.messages)
        assert said(third).startswith('[The project document "AGENTS.md" has changed')
        assert "CANARY-2" in said(third)
        assert (
            said(fourth) == 'do 3\n\n[The project document "AGENTS.md" is gone: what was shown of it holds no longer.]'
        )
        assert [event["data"]["kind"] for event in c.of("resources.changed")] == ["changed", "removed"]
        assert first.messages == second.messages[:1]


async def test_a_later_day_is_told_with_the_first_step_of_a_turn(day: list[str]) -> None:
    async def body(arguments: Any, context: ToolContext) -> ToolOutcome:
        day.append("2026-02-01")
        return ToolOutcome("It is late.")

    async with bench(FakeTool("look", body=body)) as (c, p):
        c.provider.script([Call("look")], ["done"])

        await turns(p, 1)
        assert c.of("resources.changed") == []
        await turns(p, 2, 3)

        assert len(set(systems(c))) == 1
        (event,) = c.of("resources.changed")
        assert event["turnId"] == "t-2"
        assert "Today is 2026-02-01 (UTC)." in said(c.provider.requests[2])


async def test_what_cannot_be_read_is_told_and_ends_nothing() -> None:
    async with bench() as (c, p):
        c.files |= {PATH: "outside_workspace", "/work/.codex/instructions.md": b"\xff\xff"}

        await turns(p, 1)
        c.files |= {PATH: "io_error"}
        await turns(p, 2)

        (event,) = c.of("context.composed")
        problems = [part["problem"] for part in event["data"]["parts"] if part["source"] == "document"]
        assert problems == ["outside_workspace", "not_text"]
        assert '[The document "AGENTS.md" is not shown: it leads out of the workspace.]' in systems(c)[0]
        assert '"AGENTS.md" is not shown: it cannot be read.' in said(c.provider.requests[-1])


async def test_a_strict_session_is_told_nothing_but_its_instructions_and_how_slots_are_framed() -> None:
    async with cluster() as c:
        c.files[PATH] = CANARY
        p = await c.start()
        await p.create(mode="strict", instructions="Of the session.")

        await turns(p, 1)
        c.files[PATH] = b"Other."
        await p.submit("t-2", instructions="Of the turn.")
        await p.finish("t-2")
        await turns(p, 3)

        session = f"{FRAME}\n\nInstructions for this session (they win over those above):\nOf the session."
        turn = f"{session}\n\nInstructions for this turn (they win over those above):\nOf the turn."
        assert systems(c) == [session, turn, session]
        assert c.of("resources.changed") == []


async def test_instructions_of_a_turn_are_of_that_turn_alone_and_rewrite_nothing() -> None:
    async with bench() as (c, p):
        await turns(p, 1)
        await p.submit("t-2", instructions="Be brief.")
        await p.finish("t-2")
        await turns(p, 3)

        first, second, third = systems(c)
        assert second.startswith(first)
        assert second.endswith("\nBe brief.")
        assert third == first
        assert len(c.of("context.composed")) == 1
        assert "Be brief." not in "".join(message.text for message in c.provider.requests[-1].messages)


async def test_another_model_is_told_anew_in_its_own_words() -> None:
    async with bench() as (c, p):
        c.files |= {PATH: CANARY, "/work/CLAUDE.md": b"For this family."}
        await turns(p, 1)
        c.files[PATH] = b"Say CANARY-2."
        await turns(p, 2)

        await p.service.update(SID, None, "claude-9", BY)
        await turns(p, 3, 4)

        assert [event["data"]["reason"] for event in c.of("context.composed")] == ["first", "model"]
        assert systems(c)[2] == systems(c)[3]
        for text in (PROFILES["anthropic"].prompt, "CANARY-2", "For this family."):
            assert text in systems(c)[3]
        told = "".join(message.text for message in c.provider.requests[3].messages)
        assert "CANARY" not in told  # that it had changed is told no longer


async def test_a_provider_that_goes_on_with_its_answer_is_told_of_a_change_after_it() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate, "I was ", Stop("pause")], ["saying."])
        await p.submit("t-1")
        await gate.come()
        c.files[PATH] = CANARY
        gate.open()
        await p.finish("t-1")

        assert c.of("resources.changed") == []
        await turns(p, 2)

        assert '"AGENTS.md" is new' in said(c.provider.requests[-1])


# --- compaction ---------------------------------------------------------------------------------------------


async def test_a_compaction_leaves_documents_whole_and_asks_for_the_summary_with_them() -> None:
    async with bench(compactPercent=100) as (c, p):
        p.world.window_tokens = 10_000
        c.files[PATH] = CANARY
        c.provider.otherwise = summing_up

        await turns(p, 1, 2, 3, 4, text=LONG)
        await shorten(p, 5)
        await turns(p, 6)

        assert c.of("context.replaced")
        assert any(map(is_summary, c.provider.requests))
        assert len(set(systems(c))) == 1
        assert "CANARY-1" in systems(c)[0]
        assert len(c.of("context.composed")) == 1  # nothing changed


async def test_with_a_compaction_changes_come_into_the_system_text_and_are_told_no_longer() -> None:
    async with bench(compactPercent=100) as (c, p):
        p.world.window_tokens = 10_000
        c.files[PATH] = CANARY
        c.provider.otherwise = summing_up
        await turns(p, 1, 2, text=LONG)
        c.files[PATH] = b"Say CANARY-2."
        await turns(p, 3, 4, text=LONG)

        await shorten(p, 5)
        await turns(p, 6)

        assert [event["data"]["reason"] for event in c.of("context.composed")] == ["first", "compaction"]
        assert len(c.of("resources.changed")) == 1
        last = c.provider.requests[-1]
        assert "CANARY-2" in last.system
        assert "CANARY-1" not in last.system
        assert "CANARY" not in "".join(message.text for message in last.messages)


@pytest.mark.parametrize("overflow", [False, True])
async def test_whoever_goes_on_after_a_restart_sends_the_same_bytes(overflow: bool) -> None:
    sent = []
    for restarts in (False, True):
        async with cluster(compactPercent=100) as c:
            c.provider.otherwise = summing_up
            c.provider.usage = None
            c.files[PATH] = CANARY * 1_000  # an artifact of its own
            p = await c.start()
            await p.create(instructions="Of the session. " * 1_100)
            for number in range(1, 14):
                if number in (3, 12):
                    c.files[PATH] = b"%d" % number
                if number in (6, 11) and not overflow:
                    await p.service.commit(SID, CompactContext(BY))
                if number in (6, 11) and overflow:
                    c.provider.script(failed("context_overflow", retryable=False))
                p.world.window_tokens = 30_000
                await turns(p, number, text=LONG * 3)
                if restarts:
                    await p.die()
                    p = await c.start()
            assert len(c.of("context.replaced")) == 2
            assert [event["data"]["reason"] for event in c.of("context.composed")] == ["first", "compaction"]
            assert len(c.of("resources.changed")) == 2
            sent.append(c.provider.requests)

    assert sent[0] == sent[1]


async def test_a_turn_whose_process_dies_goes_on_with_what_it_was_told() -> None:
    last = []
    for dies in (False, True):
        gate = Gate()
        async with cluster(FakeTool("look")) as c:
            c.files[PATH] = CANARY
            p = await c.start()
            await p.create()
            await turns(p, 1)
            c.files[PATH] = b"Say CANARY-2."
            c.provider.script([Call("look", provider_id="p")], [gate, "lost"])
            await p.submit("t-2")
            await gate.come()
            if dies:
                await p.die()
                p = await c.start()
                await p.resume()
            gate.open()
            await p.finish("t-2")
            last.append(c.provider.requests[-1])
            assert len(c.of("resources.changed")) == 1

    assert [(one.system, [message.text for message in one.messages]) for one in last[:1]] == [
        (one.system, [message.text for message in one.messages]) for one in last[1:]
    ]


async def test_a_log_in_which_nothing_was_composed_is_gone_on_with() -> None:
    async with bench() as (c, p):
        p.world.broken = HarnessFault("containment_unavailable")
        await p.submit("t-1")
        await p.finish("t-1")
        p.world.broken = None
        c.files[PATH] = CANARY

        await turns(p, 2)

        (event,) = c.of("context.composed", reason="first")
        assert event["turnId"] == "t-2"
        assert "CANARY-1" in systems(c)[0]


async def test_what_had_changed_is_summed_up_as_no_words_of_a_person() -> None:
    async with bench(compactPercent=100) as (c, p):
        p.world.window_tokens = 10_000
        c.provider.otherwise = summing_up
        await turns(p, 1, text=LONG)
        c.files[PATH] = CANARY
        await turns(p, 2, 3, 4, text=LONG)

        await shorten(p, 5)

        (asked,) = filter(is_summary, c.provider.requests)
        assert '\nNote: [The project document "AGENTS.md" is new' in asked.messages[-1].text


async def test_two_processes_compose_the_same_of_the_same() -> None:
    found = []
    for _ in range(2):
        async with cluster(FakeTool("look"), FakeTool("note")) as c:
            c.files[PATH] = CANARY
            p = await c.start()
            await p.create(instructions="Of the session.")
            await turns(p, 1)
            found.append((systems(c), c.provider.requests[0].tools, c.of("context.composed")[0]["data"]))

    assert found[0] == found[1]
