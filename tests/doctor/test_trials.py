"""What is tried out: commands, providers, the handshake."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from doctor.conftest import MakeCase
from fake.provider import FakeProvider, never, status
from hames.doctor import trials
from hames.doctor.trials import check_framing, check_providers, check_sandbox
from hames.protocol.errors import Refused, ToolFailed
from hames.sandbox.process import ReaperProcesses
from hames.sandboxes import Sandboxes

KEY = "sk-0123456789abcdef"


def test_a_command_runs_and_a_tree_is_gone(case: MakeCase) -> None:
    found = check_sandbox(case())

    assert found.status == "ok", found
    assert set(found.details) == {"backend", "commandMs", "treeGoneMs", "local", "contained", "landlock", "why"}


@pytest.mark.parametrize(("wanted", "status"), [("local", "ok"), ("auto", "warn"), ("contained", "fail")])
def test_confinement_that_is_wanted_and_not_to_be_had_is_told_with_what_to_do(
    case: MakeCase, tmp_path: Path, wanted: str, status: str
) -> None:
    found = check_sandbox(case(HAMES_SANDBOX=wanted, HAMES_BUBBLEWRAP=str(tmp_path / "none")))

    assert found.status == status
    assert "; contained is not to be had (There is no bubblewrap at " in found.seen
    assert "apt-get install bubblewrap" in found.details["why"]["contained"][0]
    assert found.details["contained"]["fs.write_confined"] == "no"
    problems = [problem for problem in found.problems if "bubblewrap" in problem.what]
    assert all("no bubblewrap" in problem.what and "Install" in problem.advice for problem in problems)
    assert len(problems) == (wanted != "local")


def test_a_path_without_bash_fails(case: MakeCase, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = check_sandbox(case(PATH=str(tmp_path_factory.mktemp("empty"))))

    assert found.status == "fail"
    assert "bash" in found.problems[0].what


def test_without_a_model_it_says_how_to_get_one(case: MakeCase) -> None:
    found = check_providers(case())

    assert found.status == "warn"
    assert "hames config set providers.compatible.baseUrl" in found.problems[0].advice


def test_a_provider_that_lists_the_configured_model_is_well(case: MakeCase, fake: FakeProvider) -> None:
    found = check_providers(case(HAMES_COMPATIBLE_BASE_URL=fake.url, HAMES_MODEL="compatible/fake-model"))

    assert found.status == "ok", found
    assert found.details["compatible"]["models"] == 2
    assert "without a key" in found.seen


def test_a_model_that_is_not_on_offer_is_told_with_those_that_are(case: MakeCase, fake: FakeProvider) -> None:
    found = check_providers(case(HAMES_COMPATIBLE_BASE_URL=fake.url, HAMES_COMPATIBLE_MODEL="fake-modle"))

    assert found.status == "warn"
    assert "'fake-modle' is not among those of compatible: another-model, fake-model." in found.problems[0].what


def test_a_missing_key_is_told_by_its_variable(case: MakeCase) -> None:
    with FakeProvider(api_key=KEY) as fake:
        found = check_providers(case(HAMES_COMPATIBLE_BASE_URL=fake.url))

    assert found.status == "fail"
    assert found.problems[0].what == "compatible wants a key, and none is configured."
    assert "HAMES_COMPATIBLE_API_KEY" in found.problems[0].advice


def test_a_key_that_is_refused_and_echoed_is_not_told(case: MakeCase) -> None:
    with FakeProvider(api_key=KEY) as fake:
        found = check_providers(
            case(HAMES_COMPATIBLE_BASE_URL=fake.url, HAMES_COMPATIBLE_API_KEY="sk-wrong-0123456789")
        )

    assert found.status == "fail"
    assert found.details["compatible"]["kind"] == "credential_rejected"
    assert "sk-wrong" not in repr(found)


def test_a_key_does_not_follow_a_redirect(case: MakeCase, fake: FakeProvider) -> None:
    with FakeProvider() as other:
        fake.listing = status(307, headers={"location": f"{other.url}/models"})

        found = check_providers(case(HAMES_COMPATIBLE_BASE_URL=fake.url, HAMES_COMPATIBLE_API_KEY=KEY))

        assert found.status == "fail"
        assert other.connections == 0


def test_a_server_without_a_listing_may_chat_all_the_same(case: MakeCase, fake: FakeProvider) -> None:
    fake.listing = status(404, {"error": {"message": "no such route"}})

    assert check_providers(case(HAMES_COMPATIBLE_BASE_URL=fake.url)).status == "warn"


def test_of_several_providers_each_is_told_by_its_name(case: MakeCase, fake: FakeProvider) -> None:
    fake.listing = status(404, {"error": {"message": "no such route"}})
    key = {"HAMES_OPENAI_API_KEY": KEY, "HAMES_ANTHROPIC_API_KEY": KEY}
    urls = {"HAMES_OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "HAMES_ANTHROPIC_BASE_URL": fake.url}

    found = check_providers(case(HAMES_COMPATIBLE_BASE_URL=fake.url, **key, **urls))

    assert [problem.what.split()[0] for problem in found.problems] == ["compatible", "anthropic", "openai:"]


def test_a_server_that_does_not_answer_is_not_waited_for_long(
    case: MakeCase, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "PROVIDER_S", 0.1)
    fake.listing = never()

    found = check_providers(case(HAMES_COMPATIBLE_BASE_URL=fake.url))

    assert found.status == "fail"
    assert "No answer of compatible in" in found.problems[0].what


def test_nobody_at_the_address_fails_with_the_setting(case: MakeCase) -> None:
    found = check_providers(case(HAMES_COMPATIBLE_BASE_URL="http://127.0.0.1:9/v1"))

    assert (found.status, found.details["compatible"]["kind"]) == ("fail", "model_unavailable")
    assert "providers.compatible.baseUrl" in found.problems[0].advice


def test_a_server_answers_in_both_framings_whatever_the_configuration_says(case: MakeCase) -> None:
    found = check_framing(case(HAMES_LIMIT_STEPS="nonsense", HAMES_COMPATIBLE_API_KEY=KEY))

    assert found.status == "ok", found
    assert set(found.details) == {"lineMs", "headerMs"}


def test_a_server_that_cannot_start_fails_with_its_last_words(case: MakeCase) -> None:
    found = check_framing(case(PYTHONHOME="/nonexistent"))

    assert found.status == "fail"
    assert "exit code" in found.problems[0].what
    assert json.dumps(found.details)


def test_a_platform_without_commands_fails(case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hames.sandbox.process.supported", lambda: False)

    assert check_sandbox(case()).status == "fail"


def test_a_command_that_cannot_be_run_fails_with_the_reason(case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(folder: Path) -> tuple[float, float, list[int]]:
        raise ToolFailed("no_processes", "No process can be started.")

    monkeypatch.setattr(trials, "_try_commands", refuse)

    assert "No process can be started." in check_sandbox(case()).problems[0].what


def test_processes_that_are_left_fail_with_the_command_that_ends_them(
    case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leave(folder: Path) -> tuple[float, float, list[int]]:
        return 1.0, 2.0, [123, 456]

    monkeypatch.setattr(trials, "_try_commands", leave)

    assert check_sandbox(case()).problems[0].advice == "Run: kill -9 123 456"


def test_a_key_that_would_go_over_a_network_in_the_clear_is_told(
    case: MakeCase, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hames.providers.http_route.is_loopback", lambda url: False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    found = check_providers(case(HAMES_COMPATIBLE_BASE_URL=fake.url, HAMES_COMPATIBLE_API_KEY=KEY))

    assert found.status == "warn"
    assert "in the clear" in found.problems[0].what


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (subprocess.TimeoutExpired("hames", 1), "did not answer and end"),
        (PermissionError(13, "Permission denied"), "cannot be started: Permission denied"),
        (subprocess.CompletedProcess([], 0, b"a banner\n{}\n", b"warning: old\n"), "It said: warning: old"),
        (subprocess.CompletedProcess([], 0, b'{"id":1,"error":{}}\n', b""), "it answered"),
    ],
)
def test_a_handshake_that_goes_wrong_says_how(
    case: MakeCase, monkeypatch: pytest.MonkeyPatch, outcome: object, told: str
) -> None:
    def run(*_: object, **__: object) -> object:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(subprocess, "run", run)

    found = check_framing(case())

    assert found.status == "fail"
    assert told in found.problems[0].what


def test_what_is_told_of_sandboxes_is_what_a_session_gets(case: MakeCase, tmp_path: Path) -> None:
    program = os.environ.get("HAMES_BUBBLEWRAP")
    found = check_sandbox(case(**({"HAMES_BUBBLEWRAP": program} if program else {})))

    async def chosen() -> dict[str, Mapping[str, str]]:
        processes = ReaperProcesses(tmp_path / "run")
        sandboxes = Sandboxes(tmp_path, processes, program=program)
        given: dict[str, Mapping[str, str]] = {"local": sandboxes.choose({"sandbox": "local"})["guarantees"]}
        try:
            for name in ("contained", "landlock"):
                await sandboxes.prove(name)
                with suppress(Refused):
                    given[name] = sandboxes.choose({"sandbox": name, "network": "disabled"})["guarantees"]
        finally:
            await processes.aclose()
        return given

    given = anyio.run(chosen)

    assert found.details["local"].items() <= given.pop("local").items()
    for name in ("contained", "landlock"):
        assert (name in given) == (not found.details["why"][name])
        assert given.get(name, found.details[name]) == found.details[name]
