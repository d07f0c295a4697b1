"""`replay`, `sessions`, `describe`, `schema`: they look and change nothing."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cli.command import SCRIPT, WHY_LOST, Cli, finish, lost_stdout
from fake.provider import FakeProvider
from hames.protocol.events import EVENTS
from hames.protocol.methods import METHODS
from hames.protocol.schema import documents


def record(hames: Cli, *words: str) -> dict[str, Any]:
    return hames("run", "--json", *words).record


def test_tools_are_listed_with_who_is_offered_them(hames: Cli) -> None:
    listed = hames("tools").out
    tools = json.loads(hames("tools", "--json").out)["tools"]

    assert [line.split()[0] for line in listed.splitlines() if not line.startswith(" ")] == [t["name"] for t in tools]
    assert "needs tools.webSearch.apiKey" in listed
    assert "to openai\n" in listed
    assert not (hames.home / "store").exists()


def test_a_model_is_one_row_whatever_its_name(hames: Cli) -> None:
    with FakeProvider() as fake:
        fake.models = ["x\ny", "t\tab", "e\x1b[2J", "z" * 1_000]
        env = {"HAMES_MODEL": "compatible/m", "HAMES_COMPATIBLE_BASE_URL": fake.url}
        listed = hames("models", env=env)
        asked = json.loads(hames("models", "--json", env=env).out)

    names = [line.split()[0].removeprefix("compatible/") for line in listed.out.splitlines()]
    assert names == ["e\\x1b[2J", "t\\tab", "x\\ny", "z" * 199 + "…"]
    assert sorted(fake.models) == [model["name"] for model in asked["models"]]


def test_a_session_is_one_row_wherever_it_works(hames: Cli, tmp_path: Path) -> None:
    workspace = tmp_path / "two\nlines"
    workspace.mkdir()
    record(hames, "--workspace", str(workspace), "say hi")

    (row,) = hames("sessions", "list").out.splitlines()

    assert "/two\\nlines" in row


def test_models_are_listed_with_what_is_known_of_them(hames: Cli) -> None:
    assert hames("models").out == f"{'offline/offline':<48} from provider\n"
    env = {"HAMES_MODEL": "compatible/m", "HAMES_COMPATIBLE_BASE_URL": "http://127.0.0.1:9"}
    with FakeProvider() as fake:
        fake.models = ["claude-opus-4-6", "made-here"]
        env["HAMES_COMPATIBLE_BASE_URL"] = fake.url
        listed = hames("models", env=env).out.splitlines()
        told = json.loads(hames("models", "compatible", "--json", env=env).out)

    assert [line.split()[0] for line in listed] == [f"compatible/{model['name']}" for model in told["models"]]
    assert "tokens" in listed[0]
    assert listed[1].endswith("from provider")
    refused = hames("models", "nobody")
    assert (refused.code, "There is no provider 'nobody'; there are: " in refused.err) == (64, True)


def test_a_replay_tells_the_session_to_a_person(stored: Cli) -> None:
    told = stored("replay", "s1")
    lines = [line[8:] for line in told.out.splitlines()]
    assert told.code == 0
    assert lines[0] == f"session “a title” in {stored.workspace}, model offline"
    assert lines[1:4] == ["> " + line for line in SCRIPT.split("\n")]
    assert lines[4:] == [
        "one",
        "+ echo first; echo second; exit 3",
        "  first",
        "  second",
        "  [Exit code 3.]",
        "two",
        "[completed]",
    ]


def test_a_replay_after_a_cursor_has_only_what_follows(stored: Cli) -> None:
    whole = stored("replay", "s1", "--jsonl").out.splitlines()
    cursor = json.loads(whole[4])["cursor"]
    assert stored("replay", "s1", "--jsonl", "--after", cursor).out.splitlines() == whole[5:]


def test_a_long_replay_is_complete(hames: Cli) -> None:
    session = record(hames, "repeat 1500 0123456789", "--steps", "1")["sessionId"]
    for _ in range(2):
        assert record(hames, "--session", session, "say more")["status"] == "completed"
    lines = hames("replay", session, "--jsonl", env={"HAMES_LIMIT_PAGE_EVENTS": "3"}).out.splitlines()
    assert [json.loads(line)["event"]["seq"] for line in lines] == list(range(1, len(lines) + 1))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["replay", "nope"], "session_not_found"),
        (["replay", "nope", "--jsonl"], "session_not_found"),
        (["sessions", "show", "nope"], "session_not_found"),
        (["sessions", "show", "nope", "--json"], "session_not_found"),
    ],
)
def test_an_unknown_session_is_a_typed_error_on_stderr(stored: Cli, words: list[str], kind: str) -> None:
    done = stored(*words)
    assert (done.code, done.out) == (64, "")
    assert f"[{kind}]" in done.err


@pytest.mark.parametrize(
    ("cursor", "kind"),
    [("x", "cursor_malformed"), ("2.000000000000", "cursor_foreign"), ("99.000000000000", "cursor_ahead")],
)
def test_a_wrong_cursor_is_a_typed_error_on_stderr(stored: Cli, cursor: str, kind: str) -> None:
    done = stored("replay", "s1", "--after", cursor)
    assert (done.code, done.out) == (64, "")
    assert f"[{kind}]" in done.err


def test_a_followed_replay_shows_what_another_process_does(hames: Cli) -> None:
    session = record(hames, "say hi")["sessionId"]
    follower = hames.start("replay", session, "--jsonl", "--follow")
    assert follower.stdout is not None
    seen = [json.loads(follower.stdout.readline())["event"]]
    record(hames, "--session", session, "say more")
    while sum(event["type"] == "turn.completed" for event in seen) < 2:
        seen.append(json.loads(follower.stdout.readline())["event"])
    follower.send_signal(signal.SIGINT)
    assert finish(follower).code == 130
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))


def test_an_interrupt_that_another_thread_takes_ends_a_followed_replay(hames: Cli) -> None:
    session = record(hames, "say hi")["sessionId"]
    follower = hames.start("replay", session, "--jsonl", "--follow")
    assert follower.stdout is not None
    while json.loads(follower.stdout.readline())["event"]["type"] != "turn.completed":
        pass
    thread = max(int(name) for name in os.listdir(f"/proc/{follower.pid}/task"))
    assert thread != follower.pid
    assert ctypes.CDLL(None).tgkill(follower.pid, thread, signal.SIGINT) == 0
    assert finish(follower).code == 130


def test_a_reader_that_has_seen_enough_ends_a_replay_quietly(hames: Cli) -> None:
    session = record(hames, "repeat 20000 0123456789")["sessionId"]
    process = hames.start("replay", session, "--jsonl", "--follow")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    record(hames, "--session", session, "repeat 20000 0123456789")
    assert process.wait(30) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""


@pytest.mark.parametrize(
    "words",
    [
        ["replay", "s1"],
        ["replay", "s1", "--jsonl"],
        ["sessions", "list"],
        ["sessions", "show", "s1", "--json"],
        ["describe"],
        ["schema"],
        ["config", "list"],
        ["config", "get", "limits.steps"],
        ["--help"],
        ["run", "--help"],
        ["--version"],
    ],
)
@pytest.mark.parametrize("place", ["full", "closed"])
def test_output_that_cannot_be_written_ends_with_1_and_says_why(stored: Cli, words: list[str], place: str) -> None:
    done = finish(stored.start(*words, **lost_stdout(place)))
    assert done.code == 1
    assert f"hames: The output cannot be written to stdout: {WHY_LOST[place]}." in done.err.splitlines()


def test_sessions_are_listed_newest_first_and_found_by_title_and_workspace(hames: Cli, tmp_path: Path) -> None:
    first = record(hames, "--title", "apples", "say hi")["sessionId"]
    second = record(hames, "--title", "pears", "--workspace", str(tmp_path), "say hi")["sessionId"]

    def listed(*words: str) -> list[str]:
        return [json.loads(line)["sessionId"] for line in hames("sessions", "list", "--json", *words).out.splitlines()]

    assert listed() == [second, first]
    assert listed("--query", "apple") == [first]
    assert listed("--workspace", str(tmp_path)) == [second]
    assert listed("--query", "plums") == []
    text = hames("sessions", "list").out
    assert [line.split()[0] for line in text.splitlines()] == [second, first]
    assert "idle" in text
    assert "apples" in text


def test_a_list_of_many_sessions_is_complete(hames: Cli) -> None:
    ids = {record(hames, "say hi")["sessionId"] for _ in range(3)}
    found = [json.loads(line)["sessionId"] for line in hames("sessions", "list", "--json").out.splitlines()]
    assert set(found) == ids
    assert len(found) == 3


def test_no_sessions_are_no_lines(hames: Cli) -> None:
    session = record(hames, "say hi")["sessionId"]
    assert hames("sessions", "delete", session, "--yes").code == 0
    done = hames("sessions", "list")
    assert (done.code, done.out) == (0, "")


def test_a_session_is_shown_with_its_turns_and_what_is_not_guaranteed(hames: Cli) -> None:
    session = record(hames, "say hi")["sessionId"]
    failing = ["run", "--session", session, "--steps", "1", "fail model_unavailable\n" * 9]
    assert hames(*failing, env={"HAMES_LIMIT_RETRY_BASE_MS": "1"}).code == 1
    shown = hames("sessions", "show", session)
    assert (shown.code, shown.err) == (0, "")
    assert f"workspace  {hames.workspace}" in shown.out
    assert "not guaranteed: fs.protected_subpaths" in shown.out
    assert "completed  hi" in shown.out
    answer = json.loads(hames("sessions", "show", session, "--json").out)
    assert answer["session"]["sessionId"] == session
    assert answer["view"]["turns"][-1]["outcome"]["text"] == "hi"


def test_describe_needs_no_store_and_starts_nothing(hames: Cli) -> None:
    done = hames("describe")
    described = json.loads(done.out)
    assert done.code == 0
    assert [row["name"] for row in described["methods"]] == list(METHODS)
    assert {row["type"] for row in described["events"]} == set(EVENTS)
    assert not (hames.home / "store").exists()


def test_schema_prints_the_index_and_each_name_of_it(hames: Cli) -> None:
    assert [row["name"] for row in json.loads(hames("schema").out)["methods"]] == list(METHODS)
    assert set(json.loads(hames("schema", "turn/submit").out)) == {"params", "result"}
    for name in ("turn.completed", "delta", "error", "$/cancelRequest", "subscription/closed"):
        assert json.loads(hames("schema", name).out)["$schema"].endswith("2020-12/schema")


def test_a_name_without_a_schema_ends_with_64(hames: Cli) -> None:
    done = hames("schema", "turn/sumbit")
    assert (done.code, done.out) == (64, "")
    assert "turn/sumbit" in done.err


def test_schema_writes_what_it_says_and_nothing_the_second_time(hames: Cli, tmp_path: Path) -> None:
    written = hames("schema", "--write", str(tmp_path)).out.splitlines()
    assert {str(Path(line).relative_to(tmp_path)) for line in written} == set(documents())
    assert (tmp_path / "schemas/index.json").read_bytes() == documents()["schemas/index.json"]
    assert hames("schema", "--write", str(tmp_path)).out == ""


def test_schema_that_cannot_be_written_ends_with_1(hames: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = hames("schema", "--write", str(tmp_path / "file"))
    assert (done.code, done.out) == (1, "")
    assert str(tmp_path / "file") in done.err


def test_help_keeps_names_as_they_are_written(hames: Cli) -> None:
    assert "Speak JSON-RPC 2.0 on stdin and stdout." in hames("serve", "--help").out


@pytest.mark.parametrize("words", [[], ["nope"], ["sessions"], ["replay"], ["config", "get"], ["describe", "more"]])
def test_bad_usage_ends_with_64_and_says_how(hames: Cli, words: list[str]) -> None:
    done = hames(*words)
    assert (done.code, done.out) == (64, "")
    assert "usage: hames" in done.err
