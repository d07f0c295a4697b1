from __future__ import annotations

import json
import stat

import pytest

from cli.command import Cli
from hames.commands.config import masked

KEY = "sk-abcdefghijklmnop-9876"


def test_a_setting_comes_back_as_it_was_set(hames: Cli) -> None:
    done = hames("config", "set", "providers.compatible.baseUrl", "http://127.0.0.1:9/v1")
    assert (done.code, done.out) == (0, "")
    assert str(hames.config) in done.err
    got = hames("config", "get", "providers.compatible.baseUrl")
    assert (got.code, got.out) == (0, "http://127.0.0.1:9/v1\n")
    assert str(hames.config) in got.err


def test_the_file_is_for_its_owner_alone_also_when_it_was_not(hames: Cli) -> None:
    hames.config.write_text("{}")
    hames.config.chmod(0o644)
    assert hames("config", "set", "model", "offline").code == 0
    assert stat.S_IMODE(hames.config.stat().st_mode) == 0o600
    assert json.loads(hames.config.read_text()) == {"model": "offline"}


def test_what_is_not_set_ends_with_1_and_names_both_places(hames: Cli) -> None:
    got = hames("config", "get", "model")
    assert (got.code, got.out) == (1, "")
    assert "HAMES_MODEL" in got.err
    assert str(hames.config) in got.err


def test_a_limit_that_is_not_set_has_its_default(hames: Cli) -> None:
    assert hames("config", "get", "limits.steps").out == "100\n"


def test_unset_takes_it_out_and_does_not_mind_what_is_not_there(hames: Cli) -> None:
    hames("config", "set", "limits.steps", "7")
    assert hames("config", "get", "limits.steps").out == "7\n"
    assert hames("config", "unset", "limits.steps").code == 0
    assert hames("config", "unset", "limits.steps").code == 0
    assert hames("config", "get", "limits.steps").out == "100\n"


def test_the_environment_wins_and_that_is_told(hames: Cli) -> None:
    hames("config", "set", "model", "compatible/from-file")
    env = {"HAMES_MODEL": "compatible/from-environment"}
    got = hames("config", "get", "model", env=env)
    assert got.out == "compatible/from-environment\n"
    assert "HAMES_MODEL in the environment" in got.err
    assert "wins over the file" in hames("config", "set", "model", "offline", env=env).err


def test_a_secret_is_read_from_stdin_and_never_shown(hames: Cli) -> None:
    name = "providers.compatible.apiKey"
    done = hames("config", "set", name, "-", stdin=KEY.encode() + b"\n")
    got = hames("config", "get", name)
    listed = hames("config", "list")
    as_json = hames("config", "list", "--json")
    assert json.loads(hames.config.read_text())[name] == KEY
    assert got.out == "…9876\n"
    for shown in (done, got, listed, as_json):
        assert KEY[:-4] not in shown.out + shown.err
        assert KEY[:4] not in shown.out + shown.err


@pytest.mark.parametrize("secret", ["", "abcd", "elevenchars"])
def test_of_a_short_secret_nothing_is_shown(secret: str) -> None:
    assert masked(secret) == "…"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["set", "modle", "x"], "There is no setting 'modle'"),
        (["get", "modle"], "There is no setting 'modle'"),
        (["unset", "modle"], "There is no setting 'modle'"),
        (["set", "limits.steps", "0"], "must be from 1 to 10000"),
        (["set", "limits.steps", "many"], "must be an integer"),
        (["set", "providers.compatible.baseUrl", "ftp://x"], "must be an http or https URL"),
        (["set", "providers.compatible.baseUrl", "http://me:word@x/v1"], "must be a URL without user"),
        (["set", "model"], "required: value"),
        (["set", "model", "opnai/gpt-5"], "There is no provider 'opnai'; did you mean `openai/gpt-5`?"),
        (["set", "sandbox", "jail"], "must be local or contained"),
        (["set", "bubblewrap", "bwrap"], "must be an absolute path, not 'bwrap'"),
        (["set", "modelsFile", "models.json"], "must be an absolute path, not 'models.json'"),
        (["set", "modelsFile", "/no/such/models.json"], "cannot be read: No such file"),
        (["set", "modelsFile", "/dev/null"], "is not a regular file"),
        (["set", "providers.compatible.server", "olama"], "must be one of"),
        (["set", "providers.openai.apiKeyCommand", "pass 'show"], "is not a command line"),
        (["set", "providers.openai.owner", "x" * 81], "must be one line of at most 80 characters"),
        (["set", "model", ""], "must be a text that is not empty"),
    ],
)
def test_bad_names_and_values_end_with_64_and_say_what_is_allowed(hames: Cli, words: list[str], told: str) -> None:
    done = hames("config", *words)
    assert done.code == 64
    assert told in done.err
    assert not hames.config.exists()


def test_a_file_that_is_not_json_ends_with_64_and_names_it(hames: Cli) -> None:
    hames.config.write_text("{nonsense")
    done = hames("config", "list")
    assert done.code == 64
    assert str(hames.config) in done.err


def test_a_bad_setting_is_told_with_its_place_and_hides_no_other(hames: Cli) -> None:
    hames.config.write_text('{"modle": "x", "limits.steps": 7}')
    for words in (["config", "list"], ["config", "get", "limits.steps"]):
        done = hames(*words)
        assert done.code == 64
        assert "7" in done.out
        assert "There is no setting 'modle'. Did you mean model?" in done.err
        assert f"It stands in {hames.config}; `hames config unset modle` takes it out." in done.err
    assert f"{hames.config}" in hames("run", "say hi").err


@pytest.mark.parametrize(
    ("value", "told"),
    [("abc", "must be an integer, not 'abc'"), ("0", "must be from 1 to 10000, not 0")],
)
def test_a_bad_value_of_a_variable_is_told_with_the_variable(hames: Cli, value: str, told: str) -> None:
    for words in (["run", "say hi"], ["config", "get", "limits.steps"], ["sessions", "list"]):
        done = hames(*words, env={"HAMES_LIMIT_STEPS": value})
        assert (done.code, done.out) == (64, "")
        assert f"limits.steps {told}. It is HAMES_LIMIT_STEPS of the environment." in done.err


def test_a_variable_that_is_no_setting_is_told(hames: Cli) -> None:
    done = hames("run", "say hi", env={"HAMES_LIMIT_STEP": "3", "HAMES_SESSION": "s-1"})
    assert (done.code, done.out) == (0, "hi\n")
    assert "HAMES_LIMIT_STEP is not a setting and is ignored. Did you mean HAMES_LIMIT_STEPS?" in done.err
    assert "HAMES_SESSION" not in done.err


def test_a_setting_that_this_build_does_not_know_can_be_taken_out(hames: Cli) -> None:
    hames.config.write_text('{"from.another.build": 1}')
    assert hames("config", "list").code == 64
    assert hames("config", "unset", "from.another.build").code == 0
    assert hames("config", "list").code == 0


def test_the_list_names_every_setting_its_source_and_the_file(hames: Cli) -> None:
    hames("config", "set", "limits.steps", "7")
    rows = json.loads(hames("config", "list", "--json", env={"HAMES_MODEL": "offline"}).out)
    found = {row["name"]: (row["value"], row["source"]) for row in rows["settings"]}
    assert rows["path"] == str(hames.config)
    assert found["limits.steps"] == (7, "file")
    assert found["model"] == ("offline", "environment")
    assert found["limits.toolCalls"] == (1000, "default")
    assert found["providers.compatible.apiKey"] == (None, "unset")
    assert str(hames.config) in hames("config", "list").out


def test_a_store_directory_that_is_not_utf8_is_refused_by_its_variable(hames: Cli) -> None:
    done = hames("sessions", "list", env={"HAMES_HOME": "/tmp/bad\udcff"})

    assert done.code != 0
    assert "HAMES_HOME" in done.err
    assert "not UTF-8" in done.err


def test_a_command_of_a_run_finds_no_key_in_any_environment(hames: Cli) -> None:
    command = json.dumps({"command": "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a -c only-her[e]"})

    done = hames(
        "run", "--json", "--model", "offline", f"call bash {command}\nexpect 0\nsay none",
        env={"HAMES_COMPATIBLE_API_KEY": "sk-only-here-0123456789"},
    )  # fmt: skip

    assert (done.code, done.record["text"]) == (0, "none"), done.err


def test_a_file_of_models_is_read_before_it_is_set(hames: Cli) -> None:
    path = hames.home / "models.json"
    path.write_text('{"version": "1"}')
    wrong = hames("config", "set", "modelsFile", str(path))
    path.write_text('{"version": "1", "cards": []}')
    right = hames("config", "set", "modelsFile", str(path))

    assert (wrong.code, right.code) == (64, 0)
    assert "cards" in wrong.err
    assert json.loads(hames.config.read_text()) == {"modelsFile": str(path)}
