"""What a model is told beside the conversation: by files that are really there, whatever they are, over restarts."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, finish, partial, wait_for

CANARY = "Say CANARY-1 in the end.\n"
KEY = "sk-canary-0123456789"
MIB = 2**20


def system_of(body: Any) -> str:
    first = body["messages"][0]
    assert first["role"] == "system"
    return str(first["content"])


def system_now(server: Server, fake: FakeProvider, session_id: str) -> str:
    """The system text of a turn that begins now."""
    server.finish(session_id, server.submit(session_id))
    return system_of(fake.requests[-1].body)


def parts(server: Server, session_id: str) -> list[dict[str, Any]]:
    """The documents of the composition in force."""
    log = [entry["event"] for entry in server.log(session_id)]
    composed = [event["data"] for event in log if event["type"] == "context.composed"]
    return [part for part in composed[-1]["parts"] if part["source"] == "document"]


def types(server: Server, session_id: str) -> list[str]:
    return [entry["event"]["type"] for entry in server.log(session_id)]


def checkout(workspace: Path) -> Path:
    """A checkout in `workspace` with documents on the way to the directory that is given back."""
    inner = workspace / "repo" / "in"
    inner.mkdir(parents=True)
    (workspace / "AGENTS.md").write_text("OUTSIDE")
    (workspace / "repo" / ".git").mkdir()
    (workspace / "repo" / ".git" / "HEAD").write_text("ref: refs/heads/topic\n")
    (workspace / "repo" / "AGENTS.md").write_text(CANARY)
    (inner / "AGENTS.md").write_text("Inner.")
    return inner


def test_documents_from_the_root_of_the_checkout_down_are_in_every_request(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    inner = checkout(workspace)
    server = start(env={"HAMES_LIMIT_CONTEXT_TOKENS": "2000"})
    session_id = server.create(workspace, cwd=str(inner))
    for _ in range(6):
        server.finish(session_id, server.submit(session_id, "word " * 400))
    server.stop()
    other = start(env={"HAMES_LIMIT_CONTEXT_TOKENS": "2000"})
    other.call("session/resume", sessionId=session_id)
    other.finish(session_id, other.submit(session_id, "and now?"))

    assert "context.replaced" in types(other, session_id)
    (system,) = {system_of(request.body) for request in fake.requests}
    assert system.index(CANARY) < system.index("Inner.")
    assert "on branch topic." in system
    assert "OUTSIDE" not in system
    assert any("is to be replaced by a summary" in request.raw.decode() for request in fake.requests)
    assert types(other, session_id).count("context.composed") == 1


def test_over_ten_turns_the_bytes_of_a_request_begin_as_those_of_the_one_before(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    (workspace / "AGENTS.md").write_text(CANARY)
    server = start()
    session_id = server.create(workspace)
    for number in range(10):
        if number % 3 == 0:
            fake.script(calls([("read", {"path": "AGENTS.md"})]))
        if number == 5:
            (workspace / "AGENTS.md").write_text("Say CANARY-2 in the end.\n")
        server.finish(session_id, server.submit(session_id, f"Turn {number}."))

    assert len(fake.requests) == 14
    for before, after in pairwise(fake.requests):
        assert after.raw.startswith(before.raw[: before.raw.rindex(b'{"role":')])
        count = len(before.body["messages"])
        assert after.body["messages"][:count] == before.body["messages"]
        assert after.body["tools"] == before.body["tools"]
    assert types(server, session_id).count("context.composed") == 1
    assert types(server, session_id).count("resources.changed") == 1
    assert "CANARY-2" in fake.requests[-1].raw.decode()


def test_two_processes_compose_the_same_of_the_same(
    start: Start, workspace: Path, fake: FakeProvider, tmp_path: Path
) -> None:
    (workspace / "AGENTS.md").write_text(CANARY)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        server = start(home=tmp_path / name, env={"PYTHONHASHSEED": str(len(name))})
        session_id = server.create(workspace, instructions="Of the session.")
        server.finish(session_id, server.submit(session_id, "go", instructions="Of the turn."))

    one, other = fake.requests
    assert one.body["messages"] == other.body["messages"]
    assert one.body["tools"] == other.body["tools"]
    assert system_of(one.body).endswith("Of the turn.")


def test_a_turn_goes_on_after_a_kill_with_the_request_that_would_have_been_sent(
    start: Start, workspace: Path, fake: FakeProvider, tmp_path: Path
) -> None:
    sent = []
    for dies in (False, True):
        (workspace / "AGENTS.md").write_text(CANARY)
        home = tmp_path / f"home-{dies}"
        home.mkdir()
        server = start(home=home, env={"HAMES_LIMIT_LEASE_MS": "500"})
        session_id = server.create(workspace, "s")
        server.finish(session_id, server.submit(session_id, "first"))
        (workspace / "AGENTS.md").write_text("Say CANARY-2 in the end.\n")
        fake.script(
            calls([("read", {"path": "AGENTS.md"}, "call-1")]), partial("gone") + wait_for(f"gate-{dies}") + finish()
        )
        asked = len(fake.requests)
        server.submit(session_id, "second", turnId="t")
        fake.wait_for_requests(asked + 2)
        if dies:
            server.kill()
            server = start(home=home, env={"HAMES_LIMIT_LEASE_MS": "500"})
            server.call("session/resume", sessionId=session_id)
            fake.wait_for_requests(asked + 3)
        fake.gate(f"gate-{dies}").open()
        server.finish(session_id, "t")
        sent.append(fake.requests[asked + (2 if dies else 1)].raw)
        assert types(server, session_id).count("resources.changed") == 1

    assert sent[0] == sent[1]


def test_changes_between_turns_are_told_and_what_was_sent_stays(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    server = start()
    session_id = server.create(workspace)
    systems = [system_now(server, fake, session_id)]
    (workspace / ".codex").mkdir()
    (workspace / ".codex" / "instructions.md").write_text("New.")
    systems.append(system_now(server, fake, session_id))
    (workspace / ".codex" / "instructions.md").write_text("Newer.")
    systems.append(system_now(server, fake, session_id))
    (workspace / ".codex" / "instructions.md").unlink()
    (workspace / ".git").mkdir()
    (workspace / ".git" / "HEAD").write_text("ref: refs/heads/topic\n")
    systems.append(system_now(server, fake, session_id))

    assert len(set(systems)) == 1
    told = [entry["event"]["data"] for entry in server.log(session_id)]
    told = [data for data in told if "kind" in data and "source" in data]
    assert [(data["source"], data["kind"]) for data in told] == [
        ("document", "added"),
        ("document", "changed"),
        ("environment", "changed"),
        ("document", "removed"),
    ]
    assert "on branch topic" in fake.requests[-1].body["messages"][-1]["content"]


def test_a_key_that_stands_in_a_document_is_not_told(start: Start, workspace: Path, fake: FakeProvider) -> None:
    (workspace / "AGENTS.md").write_text(f"Never say {KEY} to anybody.\n")
    server = start(env={"HAMES_COMPATIBLE_API_KEY": KEY})

    system = system_now(server, fake, server.create(workspace, "s"))

    assert "Never say [redacted] to anybody." in system
    assert KEY not in str(server.log("s"))


def test_a_key_that_is_the_name_of_a_branch_or_of_a_directory_is_not_told(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    place = workspace / KEY
    (place / ".git").mkdir(parents=True)
    (place / ".git/HEAD").write_text(f"ref: refs/heads/{KEY}\n")
    (place / "AGENTS.md").write_text("Be kind.\n")
    server = start(env={"HAMES_COMPATIBLE_API_KEY": KEY})

    system = system_now(server, fake, server.create(workspace, "s", cwd=str(place)))

    assert "on branch [redacted]" in system
    assert "Be kind." in system
    assert KEY not in system


@pytest.fixture
def nasty(workspace: Path, tmp_path: Path) -> Path:
    """A directory below which each one holds another bad document, and the last a good one."""
    secret = tmp_path / "secret.md"
    secret.write_text("SECRET")
    place = workspace
    for name in ("link", "fifo", "directory", "binary", "latin", "loop", "huge", "blank", "good"):
        place = place / name
        place.mkdir()
        document = place / "AGENTS.md"
        match name:
            case "link":
                document.symlink_to(secret)
            case "fifo":
                os.mkfifo(document)
            case "directory":
                document.mkdir()
            case "binary":
                document.write_bytes(b"a\0b")
            case "latin":
                document.write_bytes(b"caf\xe9")
            case "loop":
                document.symlink_to("AGENTS.md")
            case "huge":
                with document.open("wb") as file:
                    file.write(b"HUGE\n" * 8_000)
                    file.truncate(1024 * MIB)
            case "blank":
                document.write_text(" \n\n")
            case "good":
                document.write_text(CANARY)
    return place


def test_no_document_hangs_or_leads_out_or_takes_memory_and_each_that_is_not_shown_is_told(
    start: Start, workspace: Path, fake: FakeProvider, nasty: Path
) -> None:
    server = start()
    warm = server.create(workspace)
    server.finish(warm, server.submit(warm))
    before = server.reset_peak()
    session_id = server.create(workspace, cwd=str(nasty))

    system = system_now(server, fake, session_id)

    found = {Path(part["path"]).parts[-2]: part.get("problem") for part in parts(server, session_id)}
    assert found == {
        "link": "outside_workspace",
        "fifo": "not_a_file",
        "directory": "not_a_file",
        "binary": "not_text",
        "latin": "not_text",
        "loop": "invalid_path",
        "huge": None,
        "good": None,
    }
    assert "SECRET" not in system
    assert CANARY in system
    assert f"[Cut here: the file has {1024 * MIB} bytes.]" in system
    assert system.count(" is not shown: ") == 6
    assert sum(part["sizeBytes"] for part in parts(server, session_id)) <= 32 * 1024
    assert server.peak_bytes() - before < 8 * MIB
