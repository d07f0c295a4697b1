from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from cli.command import WHY_LOST, Cli, finish, lost_stdout
from crash.waits import until_file
from e2e.driver import Server, compatible
from fake.provider import FakeProvider, calls, cut, partial, status, text

MAX_STDIN_BYTES = 4 * 2**20
PIPE_BYTES = 65_536
"""What a pipe holds on Linux by default."""


def test_the_answer_goes_to_stdout_and_the_rest_to_stderr(hames: Cli) -> None:
    script = 'say one\ncall bash {"command": "echo told; exit 3"}\nsay two'
    done = hames("run", script)
    assert (done.code, done.out) == (0, "one\ntwo\n")
    assert "+ echo told; exit 3" in done.err
    assert "exit code 3" in done.err
    assert "told\n" not in done.err


def test_no_configured_model_is_told_once(hames: Cli) -> None:
    done = hames("run", "say hi")
    assert done.err.count("no model is configured") == 1
    assert "offline" in done.err
    assert "no model is configured" not in hames("run", "--model", "offline", "say hi").err
    assert "no model is configured" not in hames("run", "say hi", env={"HAMES_MODEL": "offline"}).err


def test_a_configured_server_is_used_when_no_model_is_named(hames: Cli, fake: FakeProvider) -> None:
    fake.script(text("from the server"))
    hames("config", "set", "providers.compatible.baseUrl", fake.url)
    hames("config", "set", "providers.compatible.model", "fake-model")
    done = hames("run", "say hi")
    assert (done.code, done.out) == (0, "from the server\n")
    assert fake.url in done.err


def test_the_record_of_success_tells_turn_usage_and_evidence(hames: Cli, fake: FakeProvider) -> None:
    fake.script(calls([("write", {"path": "made.txt", "content": "x"})]), text("done"))
    done = hames("run", "--json", "go", env=compatible(fake.url))
    record = done.record
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert (record["status"], record["exitCode"], record["text"]) == ("completed", 0, "done")
    assert record["workspace"] == str(hames.workspace)
    assert record["model"]["model"] == "fake-model"
    assert record["usage"]["inclusive"]["counters"]["prompt_tokens"] == 20
    assert record["evidence"]["filesChanged"] == 1
    assert hames("replay", record["sessionId"], "--after", record["cursor"]).out == ""


def test_the_record_of_a_failed_turn_has_its_error(hames: Cli, fake: FakeProvider) -> None:
    fake.script(status(401, b'{"error": {"message": "no such key"}}'))
    done = hames("run", "--json", "go", env=compatible(fake.url))
    assert done.code == done.record["exitCode"] == 1
    assert done.record["status"] == "failed"
    assert done.record["error"]["kind"] == "credential_rejected"
    assert "[credential_rejected]" in done.err


def test_a_limit_ends_with_2(hames: Cli, fake: FakeProvider) -> None:
    fake.answer = lambda body: (
        text("partial") if body.get("tool_choice") == "none" else calls([("glob", {"pattern": "*"})])
    )
    done = hames("run", "--json", "--steps", "2", "go", env=compatible(fake.url))
    assert done.code == done.record["exitCode"] == 2
    assert (done.record["status"], done.record["text"]) == ("failed", "partial")
    assert done.record["error"]["details"]["limit"] == "steps"


def test_the_wall_time_ends_a_turn_with_2(hames: Cli) -> None:
    done = hames("run", "--json", "--timeout-ms", "200", "wait 60000")
    assert done.code == 2
    assert done.record["error"]["details"]["limit"] == "wallTimeMs"


def test_a_session_bound_to_another_workspace_is_denied(hames: Cli, tmp_path: Path) -> None:
    session = hames("run", "--json", "say hi").record["sessionId"]
    done = hames("run", "--json", "--session", session, "--workspace", str(tmp_path), "say no")
    assert done.code == done.record["exitCode"] == 3
    assert done.record["error"]["kind"] == "authority_mismatch"
    assert f"workspace: recorded {hames.workspace}, found {tmp_path}\n" in done.err
    assert "Leave out --workspace to go on" in done.err
    assert "details.fields" not in done.err


def test_an_older_session_goes_on_with_another_model(hames: Cli, fake: FakeProvider, tmp_path: Path) -> None:
    env = compatible(fake.url)
    hames("run", "--model", "offline", "--id", "s-1", "say first")

    other = hames("run", "--session", "s-1", "--model", "offline", "--workspace", str(tmp_path), "say x", env=env)
    done = hames("run", "--json", "--session", "s-1", "--model", "compatible/fake-model", "and now?", env=env)
    again = hames("run", "--json", "--session", "s-1", "and then?", env=env)

    assert other.code == 3
    assert done.record["model"]["model"] == again.record["model"]["model"] == "fake-model"
    assert [message["role"] for message in fake.requests[0].body["messages"]][1:] == ["user", "assistant", "user"]


def test_a_run_with_another_model_tells_every_event_and_word_once(hames: Cli) -> None:
    script = 'say one\ncall bash {"command": "echo told"}\nsay two'
    cursor = hames("run", "--json", "--id", "s-1", "say first").record["cursor"]

    lines = hames("run", "--jsonl", "--session", "s-1", "--model", "offline", script).out.splitlines(keepends=True)[:-1]
    since = hames("replay", "s-1", "--jsonl", "--after", cursor).out
    shown = hames("run", "--session", "s-1", "--model", "offline", script)

    assert "".join(lines) == since
    assert json.loads(lines[0])["event"]["type"] == "session.updated"
    assert shown.out == "one\ntwo\n"
    assert shown.err.count("+ echo told") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nope", "x"], "unrecognized arguments"),
        (["--steps", "0", "x"], "whole number of 1 or more"),
        (["--steps", "20000", "x"], "20000"),
        (["--model", "compatible/x", "x"], "has no address"),
        (["--workspace", "no/such/place", "x"], "is not a directory"),
        (["--session", "s-1", "--title", "a title", "x"], "--title is for a new session"),
        (["--session", "s-1", "--id", "s-2", "x"], "--id is for a new session"),
        (["--id", "not an id", "x"], "--id must match"),
        (["--session", "a/b", "x"], "--session must match"),
        (["--title", "x" * 501, "x"], "--title must be a string of 500 characters"),
        (["--steps", "99999999", "x"], "--steps must be from 1 to"),
        (["--timeout-ms", "99999999999", "x"], "--timeout-ms must be from 1 to"),
        (["--cost-micros", "9999999999999", "x"], "--cost-micros must be from 1 to"),
        (["--session", "s-1", "--tools", "none", "x"], "--tools is for a new session"),
        (["--tools", " ,", "x"], "--tools names no tool"),
        (["--tools", "read,no-such-tool", "x"], "names one that does not exist"),
        ([" \n"], "The prompt is empty"),
        ([os.fsdecode(b"\xff")], "not UTF-8"),
        ([], "The prompt is empty"),
    ],
)
def test_what_cannot_run_ends_with_64_and_a_record(hames: Cli, words: list[str], told: str) -> None:
    done = hames("run", "--json", *words)
    assert done.code == done.record["exitCode"] == 64
    assert done.out.count("\n") == 1
    assert told in done.record["error"]["message"]
    assert told in done.err


def test_an_unknown_session_ends_with_64_and_a_record(hames: Cli) -> None:
    done = hames("run", "--json", "--session", "nope", "x")
    assert done.code == done.record["exitCode"] == 64
    assert done.record["error"]["kind"] == "session_not_found"


def test_a_broken_configuration_ends_with_64_and_a_record(hames: Cli) -> None:
    hames.config.write_text("[]")
    done = hames("run", "--json", "x")
    assert done.code == done.record["exitCode"] == 64


def test_jsonl_prints_the_stored_events_and_then_the_record(hames: Cli) -> None:
    done = hames("run", "--jsonl", 'say \u2028\u0085 caf\u00e9\ncall bash {"command": "echo hi"}\nsay end')
    *events, record = done.out.splitlines(keepends=True)
    session = json.loads(record)["sessionId"]
    assert "".join(events) == hames("replay", session, "--jsonl").out
    assert [json.loads(line)["event"]["seq"] for line in events] == list(range(1, len(events) + 1))
    assert json.loads(record)["status"] == "completed"


def test_a_session_is_gone_on_with(hames: Cli, fake: FakeProvider) -> None:
    fake.script(text("first answer"), text("second answer"))
    first = hames("run", "--json", "--title", "a title", "first", env=compatible(fake.url)).record
    second = hames("run", "--jsonl", "--session", first["sessionId"], "second", env=compatible(fake.url))
    sent = [message["content"] for message in fake.requests[1].body["messages"] if message["role"] != "system"]
    assert sent == ["first", "first answer", "second"]
    assert second.record["text"] == "second answer"
    after = int(first["cursor"].partition(".")[0])
    assert json.loads(second.out.splitlines()[0])["event"]["seq"] == after + 1


def test_a_session_that_another_process_runs_is_gone_on_with_there(hames: Cli) -> None:
    with Server(hames.home, cwd=hames.workspace) as server:
        session = server.create(hames.workspace)
        done = hames("run", "--session", session, 'say from there\ncall bash {"command": "echo ran"}\nsay still there')
        started = [row["event"] for row in server.log(session) if row["event"]["type"] == "turn.started"]
        assert (done.code, done.out) == (0, "from there\nstill there\n")
        assert [event["data"]["worker"]["pid"] for event in started] == [server.pid]


def test_a_run_behind_another_goes_on_when_that_ends(hames: Cli) -> None:
    """The first process would run the second's turn, were it not about to leave: it hands it over."""
    command = json.dumps({"command": "touch began; until [ -e go ]; do sleep 0.02; done"})
    first = hames.start("run", "--model", "offline", "--id", "two", f"call bash {command}")
    until_file(hames.workspace / "began")
    second = hames.start("run", "--session", "two", "say second")
    while hames("replay", "two", "--jsonl").out.count('"turn.queued"') < 2:
        pass
    (hames.workspace / "go").touch()

    assert finish(first).code == 0
    done = finish(second)
    assert (done.code, done.out) == (0, "second\n")


def test_an_id_that_is_taken_ends_with_64(hames: Cli) -> None:
    assert hames("run", "--id", "mine", "say hi").code == 0
    done = hames("run", "--json", "--id", "mine", "say hi")
    assert (done.code, done.record["error"]["kind"]) == (64, "session_exists")


def test_a_step_limit_of_one_run_does_not_bind_the_next(hames: Cli) -> None:
    session = hames("run", "--json", "--steps", "1", "say hi").record["sessionId"]
    more = hames("run", "--json", "--steps", "50", "--session", session, "say hi")
    larger = hames("run", "--json", "--steps", "200", "say hi")
    assert (more.code, larger.code) == (0, 0)


def test_withdrawn_text_is_told_and_the_whole_answer_follows(hames: Cli, fake: FakeProvider) -> None:
    fake.script(partial("half an ans") + cut(), text("the whole answer"))
    env = {**compatible(fake.url), "HAMES_LIMIT_RETRY_BASE_MS": "1"}
    done = hames("run", "go", env=env)
    assert (done.code, done.out) == (0, "half an ans\nthe whole answer\n")
    assert "does not count" in done.err
    assert "[the model request failed:" in done.err
    assert re.search(r"[^.]\. Again in \d+ ms\]", done.err)


def test_text_of_a_last_try_is_told_as_withdrawn_too(hames: Cli, fake: FakeProvider) -> None:
    fake.script(*[partial("half a sen") + cut() for _ in range(2)])
    env = {**compatible(fake.url), "HAMES_LIMIT_RETRY_BASE_MS": "1", "HAMES_LIMIT_RETRIES": "1"}
    done = hames("run", "go", env=env)
    assert (done.code, done.out) == (1, "half a sen\nhalf a sen\n")
    assert done.err.count("[the text above does not count]") == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--bogus", "x"], "unrecognized arguments: --bogus"),
        (["hi", "there"], "unrecognized arguments: there; a prompt of several words is one argument: put it in quotes"),
    ],
)
def test_bad_usage_is_told_with_the_usage_of_run(hames: Cli, words: list[str], told: str) -> None:
    done = hames("run", *words)
    assert (done.code, done.out) == (64, "")
    assert done.err.startswith("usage: hames run ")
    assert told in done.err


@pytest.mark.parametrize("name", ["compatable/qwen", "Compatible/qwen", "ofline"])
def test_a_provider_that_is_misspelt_is_refused(hames: Cli, fake: FakeProvider, name: str) -> None:
    done = hames("run", "--json", "--model", name, "say hi", env=compatible(fake.url))
    assert done.code == 64
    assert "there are: compatible, " in done.record["error"]["message"]
    assert not fake.requests


def test_a_key_from_another_place_is_the_same_key(hames: Cli, fake: FakeProvider) -> None:
    fake.script(text("one"), text("two"))
    env = {**compatible(fake.url), "HAMES_COMPATIBLE_API_KEY": "sk-a-key-for-tests"}
    session = hames("run", "--json", "go", env=env).record["sessionId"]
    hames("config", "set", "providers.compatible.apiKey", "sk-a-key-for-tests")
    elsewhere = {**env, "HAMES_COMPATIBLE_API_KEY": None}
    assert hames("run", "--session", session, "go", env=elsewhere).out == "two\n"
    other = {**env, "HAMES_COMPATIBLE_API_KEY": "sk-another-key-for-tests"}
    rotated = hames("run", "--json", "--session", session, "go", env=other)
    assert (rotated.code, rotated.record["error"]["kind"]) == (3, "authority_mismatch")
    assert re.search(r"model\.credential: recorded the key \w+ \(environment\), found the key \w+ \(", rotated.err)
    assert "--model <provider>/<model>` binds the session to what is configured now" in rotated.err
    fake.script(text("three"))
    again = ("run", "--session", session, "--model", "compatible/fake-model", "go")
    assert hames(*again, env=other).out == "three\n"


# --- stdin and stdout ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["-"]])
def test_the_prompt_may_come_from_stdin(hames: Cli, words: list[str]) -> None:
    done = hames("run", *words, stdin=b"say from stdin\n")
    assert (done.code, done.out) == (0, "from stdin\n")


@pytest.mark.parametrize("kind", ["null", "closed", "pipe", "file"])
def test_with_a_prompt_stdin_makes_no_difference(hames: Cli, kind: str) -> None:
    options: dict[str, Any] = {}
    (hames.home / "input").write_text("say wrong")
    reader, writer = os.pipe()  # the writer stays open: nothing may wait for its end
    with (hames.home / "input").open("rb") as file:
        match kind:
            case "closed":
                options["preexec_fn"] = lambda: os.close(0)
            case "pipe":
                options["stdin"] = reader
            case "file":
                options["stdin"] = file
        done = finish(hames.start("run", "say right", **options))
    os.close(reader)
    os.close(writer)
    assert (done.code, done.out) == (0, "right\n")


@pytest.mark.parametrize("form", ["--json", "--jsonl", "--model=offline"])
@pytest.mark.parametrize("place", ["full", "closed"])
def test_an_answer_that_cannot_be_written_ends_with_1_and_says_why(hames: Cli, form: str, place: str) -> None:
    done = finish(hames.start("run", form, "say hi", **lost_stdout(place)))
    assert done.code == 1
    assert f"hames: The output cannot be written to stdout: {WHY_LOST[place]}." in done.err.splitlines()
    assert json.loads(hames("sessions", "list", "--json").out)["turns"] == 1


@pytest.mark.parametrize(("extra", "code"), [(0, 0), (1, 64)])
def test_stdin_is_read_to_4_mib_and_no_further(hames: Cli, extra: int, code: int) -> None:
    done = hames("run", "--json", stdin=b"say ok\n" + b"x" * (MAX_STDIN_BYTES - 7 + extra))
    assert done.code == done.record["exitCode"] == code
    assert (hames.home / "store").exists() == (not extra)
    assert code == 0 or done.record["error"]["kind"] == "invalid_config"


def test_a_prompt_above_the_configured_limit_ends_with_64(hames: Cli) -> None:
    done = hames("run", "--json", "say more than eight bytes", env={"HAMES_LIMIT_INPUT_BYTES": "8"})
    assert done.code == done.record["exitCode"] == 64
    assert done.record["error"]["kind"] == "limit_exceeded"


def test_a_store_that_cannot_be_made_ends_with_1_and_names_it(hames: Cli) -> None:
    done = hames("run", "--json", "say hi", env={"HAMES_HOME": "/proc/nope"})
    assert done.code == done.record["exitCode"] == 1
    assert done.record["error"]["kind"] == "store_unavailable"
    assert "/proc/nope" in done.err


def test_a_prompt_that_is_no_script_fails_where_no_model_is_configured(hames: Cli) -> None:
    done = hames("run", "--json", "fix the bug")
    assert done.code == done.record["exitCode"] == 1
    assert done.record["error"]["kind"] == "model_unavailable"
    assert "No model is configured" in done.err
    assert hames("run", "call bash {}\nexpect nothing like it").code == 1


def test_stdin_that_is_not_text_is_refused(hames: Cli) -> None:
    done = hames("run", stdin=b"caf\xe9")
    assert (done.code, done.out) == (64, "")
    assert "not UTF-8 at byte 3" in done.err


def test_a_reader_that_comes_late_gets_everything(hames: Cli) -> None:
    process = hames.start("run", "repeat 50000 0123456789")
    assert process.stderr is not None
    process.stderr.readline()
    done = finish(process)
    assert (done.code, len(done.out)) == (0, 500_001)


def test_a_reader_that_goes_away_cancels_the_turn(hames: Cli) -> None:
    process = hames.start("run", "repeat 100000 0123456789\nwait 600000")
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(30) == 1
    assert process.stderr is not None
    assert "nobody takes the output" in process.stderr.read().decode()
    session = json.loads(hames("sessions", "list", "--json").out)["sessionId"]
    assert "[cancelled: client, nobody takes the output]" in hames("replay", session).out


def test_notes_that_nobody_reads_do_not_stop_the_turn(hames: Cli) -> None:
    missing = json.dumps({"path": "no" * 70})
    script = f"call read {missing}\n" + f"also call read {missing}\n" * 300 + "say done"
    reader, writer = os.pipe()
    done = finish(hames.start("run", script, stderr=writer))
    os.close(writer)
    assert len(os.read(reader, 1_000_000)) > PIPE_BYTES // 2
    os.close(reader)
    assert (done.code, done.out) == (0, "done\n")


def test_a_large_answer_is_never_cut(hames: Cli, fake: FakeProvider) -> None:
    answer = "".join(f"line {n} äöü\n" for n in range(20_000))
    fake.script(text(answer, chunks=4), text(answer, chunks=4))
    shown = hames("run", "--id", "s1", "go", env=compatible(fake.url))
    record = hames("run", "--json", "--session", "s1", "again " * 5_000, env=compatible(fake.url)).record
    replayed = hames("replay", "s1")
    listed = hames("sessions", "show", "s1")

    assert (shown.code, shown.out) == (0, answer)
    assert record["text"] == answer
    assert all(f"        line {n} äöü\n" in replayed.out for n in (1, 10_000, 19_999))
    assert replayed.out.count("again ") == 5_000
    assert "line 0 äöü" in listed.out
    stored = [json.loads(line)["event"] for line in hames("replay", "s1", "--jsonl").out.splitlines()]
    assert all(isinstance(event["data"]["text"], dict) for event in stored if event["type"] == "message.completed")
