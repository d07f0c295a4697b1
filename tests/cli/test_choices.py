"""What a run says of what was not typed, and of what cannot be: limits, tools, models, keys."""

from __future__ import annotations

import json
import re

import pytest

from cli.command import Cli
from e2e.driver import compatible
from fake.provider import FakeProvider, calls, text


def priced(hames: Cli, fake: FakeProvider) -> dict[str, str]:
    """The environment of a model whose answers cost a dollar a million tokens."""
    models = {"fake-model": {"contextTokens": 100_000, "prices": {"input": "1", "output": "1"}}}
    path = hames.home / "models.json"
    path.write_text(json.dumps({"version": "1", "cards": [{"name": "mine", "currency": "USD", "models": models}]}))
    return {**compatible(fake.url), "HAMES_MODELS_FILE": str(path)}


def test_the_cost_of_a_turn_can_be_bounded(hames: Cli, fake: FakeProvider) -> None:
    fake.answer = lambda body: calls([("glob", {"pattern": "*"})])
    env = priced(hames, fake)

    first = hames("run", "--json", "--id", "s-1", "--cost-micros", "5", "go", env=env)
    again = hames("run", "--json", "--session", "s-1", "--cost-micros", "5", "go", env=env)

    for done in (first, again):
        assert (done.code, done.record["error"]["details"]["limit"]) == (2, "costMicros")
        assert done.record["error"]["details"]["configured"] == 5


def test_a_new_session_may_cost_more_than_is_configured(hames: Cli, fake: FakeProvider) -> None:
    fake.script(text("done"))

    done = hames("run", "--cost-micros", "900000", "go", env={**priced(hames, fake), "HAMES_LIMIT_COST_MICROS": "1"})

    assert done.out == "done\n"


def test_a_configured_limit_that_an_older_session_does_not_have_is_told(hames: Cli, fake: FakeProvider) -> None:
    fake.answer = lambda body: text("done")
    env = priced(hames, fake)
    lower = {**env, "HAMES_LIMIT_COST_MICROS": "10", "HAMES_LIMIT_TOOL_CALLS": "5", "HAMES_LIMIT_LOOP_REPEATS": "0"}
    hames("run", "--id", "s-1", "go", env={**env, "HAMES_LIMIT_STEPS": "40"})
    hames("config", "set", "limits.steps", "20")

    made = hames("run", "go", env=lower)
    older = hames("run", "--json", "--session", "s-1", "go", env=lower)
    asked = hames("run", "--session", "s-1", "--cost-micros", "900", "--steps", "3", "go", env=lower)
    higher = hames("run", "--session", "s-1", "go", env={**env, "HAMES_LIMIT_STEPS": "50"})

    assert [line for line in older.err.splitlines() if "does not bound" in line] == [
        "limits.steps of the file (20) does not bound this session, which was made with 40: "
        "`--steps 20` bounds this turn",
        "HAMES_LIMIT_TOOL_CALLS (5) does not bound this session, which was made with 1000: "
        "`turn/submit` takes it in `limits`",
        "HAMES_LIMIT_COST_MICROS (10) does not bound this session, which was made without that limit: "
        "`--cost-micros 10` bounds this turn",
    ]
    assert asked.err.count("does not bound") == 1
    assert "does not bound" not in made.err + higher.err


def test_a_configured_limit_of_the_cost_does_not_keep_scripts_from_being_played(hames: Cli) -> None:
    env = {"HAMES_LIMIT_COST_MICROS": "1"}

    done = hames("run", "--model", "offline", 'call bash {"command": "true"}\nsay two', env=env)

    assert (done.code, done.out) == (0, "two\n")


@pytest.mark.parametrize(("names", "offered"), [("none", None), ("read, glob", ["read", "glob"])])
def test_a_new_session_has_the_tools_that_are_named(
    hames: Cli, fake: FakeProvider, names: str, offered: list[str] | None
) -> None:
    fake.script(text("done"))

    done = hames("run", "--tools", names, "go", env=compatible(fake.url))

    assert (done.code, done.out) == (0, "done\n")
    sent = fake.requests[0].body.get("tools")
    assert (sent and [tool["function"]["name"] for tool in sent]) == offered


def test_a_key_without_a_model_is_told_with_what_to_type(hames: Cli) -> None:
    env = {"ANTHROPIC_API_KEY": "sk-of-the-tests-0123456789"}

    for done in (hames("run", "say hi", env=env), hames("models", env=env)):
        assert done.code == 0
        assert "there is a key for anthropic in the environment: `--model anthropic/<model>` uses it" in done.err
        assert "hames config set model anthropic/<model>" in done.err
        assert "sk-of-the-tests" not in done.out + done.err
    assert "a key for" not in hames("run", "--model", "offline", "say hi", env=env).err


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("gpt-5", "openai/gpt-5"),
        ("google/gemini-2.5-pro", "gemini/gemini-2.5-pro"),
    ],
)
def test_a_model_that_is_known_and_has_no_provider_is_asked_back(
    hames: Cli, fake: FakeProvider, name: str, meant: str
) -> None:
    fake.script(text("done"))

    done = hames("run", "--json", "go", env={"HAMES_MODEL": name})
    served = hames("run", "go", env={**compatible(fake.url), "HAMES_MODEL": name})

    assert (done.code, done.record["error"]["kind"]) == (64, "invalid_config")
    assert f"did you mean `{meant}`?" in done.record["error"]["message"]
    assert served.out == "done\n"
    assert fake.requests[0].body["model"] == name


def test_a_provider_without_a_model_is_told_with_what_lists_them(hames: Cli, fake: FakeProvider) -> None:
    env = {"HAMES_COMPATIBLE_BASE_URL": fake.url}

    done = hames("run", "--json", "go", env=env)
    listed = hames("models", env=env)

    assert done.code == 64
    assert "`hames models compatible` lists what it has." in done.record["error"]["message"]
    assert (listed.code, listed.out.split()[0]) == (0, "compatible/another-model")


def test_a_call_that_fails_is_told_with_its_tool_and_why(hames: Cli) -> None:
    done = hames("run", 'call bash {"command": 5}\ncall read {"path": "none.txt"}\nsay two')

    assert done.out == "two\n"
    assert "  bash: error (invalid_arguments): bash: command must be of the type string" in done.err
    assert re.search(r"^  read: error \(\w+\): ", done.err, re.MULTILINE)
    assert "Error (" not in done.err


def test_where_commands_run_is_told_where_it_is_not_what_is_configured(hames: Cli) -> None:
    new = hames("run", "--id", "s1", "say hi", env={"HAMES_SANDBOX": "local"})
    again = hames("run", "--session", "s1", "say hi", env={"HAMES_SANDBOX": "contained"})
    chosen = hames("run", "say hi", env={"HAMES_SANDBOX": "auto"})

    assert "sandbox" not in new.err
    assert "HAMES_SANDBOX (contained) does not change this session, whose commands run in local" in again.err
    assert "sandbox auto: " in chosen.err
