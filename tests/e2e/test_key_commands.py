"""A key that a program prints: when it is asked for, who gets it, and what is told when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from e2e.driver import CallFailed
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, text
from fake.vendors import VENDORS

KEY = "sk-of-a-program-9f8e7d6c"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Prints the key, and leaves a letter in `runs` beside it; fails when there is a file `locked`."""
    path = tmp_path / "program.py"
    path.write_text(
        "import pathlib, sys\n"
        "here = pathlib.Path(__file__).parent\n"
        "(here / 'runs').open('a').write('x')\n"
        "if (here / 'locked').exists(): sys.exit('the vault is locked')\n"
        f"print({KEY!r})\n"
    )
    return path


@pytest.fixture
def env(program: Path) -> dict[str, str]:
    return {
        "HAMES_COMPATIBLE_API_KEY_COMMAND": f"{sys.executable} -S {program}",
        "HAMES_COMPATIBLE_OWNER": "team of tests",
    }


def runs(program: Path) -> str:
    path = program.parent / "runs"
    return path.read_text() if path.exists() else ""


def test_the_key_goes_to_the_provider_and_is_neither_shown_nor_stored(
    start: Start, home: Path, workspace: Path, fake: FakeProvider, program: Path, env: dict[str, str]
) -> None:
    fake.api_key = KEY
    fake.script(calls([("bash", {"command": f"{sys.executable} -S {program}"})]), text(f"It is {KEY}"))
    server = start(env=env)
    made = server.call("session/create", workspace=str(workspace))
    session_id = made["session"]["sessionId"]

    turn = server.finish(session_id, server.submit(session_id))

    credential = made["snapshot"]["model"]["credential"]
    assert (credential["source"], credential["owner"]) == ("command", "team of tests")
    assert set(credential) == {"source", "owner", "fingerprint"}
    assert turn["outcome"]["text"] == "It is [redacted]"
    assert runs(program) == "xx"  # by Hames, and by the tool
    assert server.stop() == 0
    assert not [frame.raw for frame in server.frames if KEY.encode() in frame.raw]
    assert not [path for path in home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert KEY not in server.stderr


def test_it_is_asked_for_once_by_who_works_and_never_by_who_looks(
    start: Start, workspace: Path, fake: FakeProvider, program: Path, env: dict[str, str]
) -> None:
    fake.api_key = KEY
    first = start(env=env)
    session_id = first.create(workspace)
    first.create(workspace)
    assert runs(program) == "x"
    assert first.stop() == 0

    second = start(env=env)
    second.call("session/list")
    second.call("session/get", sessionId=session_id, view=True)
    second.call("session/resume", sessionId=session_id, own="observe")
    second.call("events/read", sessionId=session_id)
    second.call("usage/get", sessionId=session_id)
    second.call("capabilities/describe")
    assert runs(program) == "x"

    second.call("session/resume", sessionId=session_id)
    second.call("models/list")
    fake.script(text("done"))
    assert second.finish(session_id, second.submit(session_id))["status"] == "completed"
    assert runs(program) == "xx"


def test_without_the_key_no_session_is_made_and_what_there_was_can_be_read(
    start: Start, workspace: Path, fake: FakeProvider, program: Path, env: dict[str, str]
) -> None:
    fake.api_key = KEY
    server = start(env=env)
    session_id = server.create(workspace)
    assert server.stop() == 0
    (program.parent / "locked").touch()

    server = start(env=env)
    for method, params in (
        ("session/create", {"workspace": str(workspace)}),
        ("session/resume", {"sessionId": session_id}),
        ("turn/submit", {"sessionId": session_id, "input": [{"type": "text", "text": "hi"}]}),
        ("models/list", {}),
        ("session/update", {"sessionId": session_id, "model": "compatible/another-model"}),
    ):
        with pytest.raises(CallFailed) as caught:
            server.call(method, **params)
        data = caught.value.error["data"]
        assert data["kind"] == "credential_missing", method
        assert data["details"] == {"setting": "providers.compatible.apiKeyCommand", "exitCode": 1}
        assert "exit code 1" in caught.value.error["message"]
        assert "the vault is locked" not in repr(caught.value.error)

    assert server.call("session/list")["sessions"][0]["sessionId"] == session_id
    health = server.call("health/check", dependencies=["provider"])["dependencies"]["provider"]
    assert (health["status"], health["details"]["kind"]) == ("unavailable", "credential_missing")

    (program.parent / "locked").unlink()
    fake.script(text("done"))
    assert server.finish(session_id, server.submit(session_id))["status"] == "completed"


def test_a_model_that_another_process_set_has_its_key_too(start: Start, workspace: Path, program: Path) -> None:
    vendor = VENDORS["openai"]
    model = f"openai/{vendor.models[0]}"
    with FakeProvider(wire=vendor.wire, api_key=KEY) as openai:
        env = {"HAMES_OPENAI_BASE_URL": openai.url, "HAMES_OPENAI_API_KEY_COMMAND": f"{sys.executable} -S {program}"}
        runner, other = start(env=env), start(env=env)
        session_id = runner.create(workspace, model="compatible/fake-model")
        other.call("session/update", sessionId=session_id, model=model)
        openai.script(vendor.wire.text("one"), vendor.wire.text("two"))

        assert runner.finish(session_id, runner.submit(session_id))["status"] == "completed"
        assert (
            runner.finish(session_id, runner.submit(session_id, limits={"costMicros": 10**12}))["status"] == "completed"
        )
        assert openai.refusals == []
    assert runs(program) == "xx"


def test_a_session_does_not_go_on_silently_under_another_owner(
    start: Start, workspace: Path, fake: FakeProvider, env: dict[str, str]
) -> None:
    fake.api_key = KEY
    server = start(env=env)
    session_id = server.create(workspace)
    assert server.stop() == 0

    server = start(env={**env, "HAMES_COMPATIBLE_OWNER": "somebody else"})
    with pytest.raises(CallFailed) as caught:
        server.call("session/resume", sessionId=session_id)

    (field,) = caught.value.error["data"]["details"]["fields"]
    assert field["member"] == "model.credential"
    assert (field["recorded"]["owner"], field["found"]["owner"]) == ("team of tests", "somebody else")


def test_a_label_that_is_given_later_does_not_keep_sessions_from_going_on(
    start: Start, workspace: Path, fake: FakeProvider, env: dict[str, str]
) -> None:
    fake.api_key = KEY
    server = start(env={**env, "HAMES_COMPATIBLE_OWNER": None})
    session_id = server.create(workspace)
    assert server.stop() == 0

    server = start(env=env)

    assert server.call("session/resume", sessionId=session_id)["session"]["status"] == "open"
