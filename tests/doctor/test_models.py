"""What is told of the model of new sessions, and of the operator's file of models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import Cli
from doctor.conftest import MakeCase
from hames.doctor.models import check_model, check_models

KEY = "sk-0123456789abcdef"
URL = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("variables", "seen"),
    [
        ({}, "offline (default): prompts are scripts"),
        ({"HAMES_MODEL": "offline", "OPENAI_API_KEY": KEY}, "offline (environment): prompts are scripts"),
        ({"HAMES_MODEL": "compatible/m", "HAMES_COMPATIBLE_BASE_URL": URL}, "compatible/m (environment)"),
        ({"HAMES_COMPATIBLE_MODEL": "m", "HAMES_COMPATIBLE_BASE_URL": URL}, "compatible/m (default)"),
        ({"HAMES_MODEL": "qwen/qwen3", "HAMES_COMPATIBLE_BASE_URL": URL}, "compatible/qwen/qwen3 (environment)"),
        ({"HAMES_MODEL": "openai/gpt-5", "OPENAI_API_KEY": KEY}, "openai/gpt-5 (environment)"),
        ({"HAMES_MODEL": "openai/gpt-5", "HAMES_OPENAI_API_KEY_COMMAND": "pass"}, "openai/gpt-5 (environment)"),
    ],
)
def test_a_model_that_can_be_asked_is_well(case: MakeCase, variables: dict[str, str], seen: str) -> None:
    found = check_model(case(**variables))

    assert (found.status, found.seen) == ("ok", seen)


@pytest.mark.parametrize(
    ("variables", "what", "advice"),
    [
        ({"HAMES_MODEL": "opnai/gpt-5"}, "did you mean `openai/gpt-5`?", "hames config set model <provider>/<model>"),
        ({"HAMES_MODEL": "claude-sonnet-4-5"}, "did you mean `anthropic/claude-sonnet-4-5`?", "<provider>/<model>"),
        ({"HAMES_MODEL": "unheard-of"}, "compatible has no address", "hames config set providers.compatible.baseUrl"),
        ({"HAMES_COMPATIBLE_BASE_URL": URL}, "No model is named", "hames config set model compatible/<model>"),
        ({"HAMES_MODEL": "anthropic/claude-sonnet-4-5"}, "anthropic wants a key", "or ANTHROPIC_API_KEY, or run"),
    ],
)
def test_a_model_that_no_run_can_have_fails_with_what_to_do(
    case: MakeCase, variables: dict[str, str], what: str, advice: str
) -> None:
    found = check_model(case(**variables))

    assert found.status == "fail"
    assert what in found.problems[0].what
    assert advice in found.problems[0].advice


def test_a_key_that_no_model_uses_is_told(case: MakeCase) -> None:
    found = check_model(case(GOOGLE_API_KEY=KEY))

    assert (found.status, found.seen) == ("warn", "offline (default): prompts are scripts")
    assert found.problems[0].advice.startswith("Run: hames config set model gemini/<model>")
    assert KEY not in repr(found)


def test_the_models_of_this_build_and_of_a_file_are_counted(case: MakeCase, tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    cards = [{"name": "mine", "models": {"a": {"contextTokens": 9_000}, "b": {"contextTokens": 9_000}}}]
    path.write_text(json.dumps({"version": "1", "cards": cards}))

    without, with_file = check_models(case()), check_models(case(HAMES_MODELS_FILE=str(path)))

    assert (without.status, with_file.status) == ("ok", "ok"), with_file
    assert with_file.seen == f"{without.seen}, 2 to {path}"


def test_a_file_of_models_that_is_of_no_use_fails_with_the_reason(case: MakeCase, tmp_path: Path) -> None:
    bad = tmp_path / "models.json"
    bad.write_text("{nonsense")

    for path, told in ((str(tmp_path / "none"), "cannot be read"), (str(bad), "is not JSON"), ("m.json", "absolute")):
        found = check_models(case(HAMES_MODELS_FILE=path))
        assert found.status == "fail"
        assert told in found.problems[0].what
        assert "hames config unset modelsFile" in found.problems[0].advice


def test_what_no_run_can_do_with_ends_with_1(hames: Cli) -> None:
    done = hames("doctor", env={"HAMES_MODEL": "openai/gpt-5", "HAMES_MODELS_FILE": "/no/such/file"})

    assert done.code == 1
    assert "fail  model " in done.out
    assert "fail  models " in done.out
