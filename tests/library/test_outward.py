"""What goes out of the process beside the conversation, from within a program: a key of a program of the user's, whom
the requests are for, and spans."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from fake.collector import Collector, attributes
from fake.provider import FakeProvider, calls, text
from hames.config import load_config
from hames.doctor.case import case_of
from hames.doctor.trials import check_providers
from hames.embedded import connect
from hames.protocol.errors import Refused
from hames_client import HamesError

pytestmark = pytest.mark.anyio

KEY = "sk-of-a-program-9f8e7d6c"


def printing(key: str) -> str:
    return f"{sys.executable} -S -c 'print(\"{key}\")'"


def settings(fake: FakeProvider, command: str, **more: Any) -> dict[str, Any]:
    return {
        "model": "compatible/fake-model",
        "providers.compatible.baseUrl": fake.url,
        "providers.compatible.apiKeyCommand": command,
        "providers.compatible.owner": "team of tests",
        **more,
    }


async def test_a_turn_with_a_key_of_a_program_attribution_and_telemetry(
    environ: Mapping[str, str], workspace: Path
) -> None:
    with FakeProvider(api_key=KEY) as fake, Collector() as collector, anyio.fail_after(60):
        fake.script(calls([("bash", {"command": f"echo {KEY}"})]), text("done"))
        given = settings(fake, printing(KEY), **{"telemetry.endpoint": collector.url, "telemetry.content": "true"})
        async with connect(environ=environ, settings=given) as client:
            session = await client.create_session(workspace, attribution={"project": "p-1"})
            waited = await session.wait((await session.submit("go"))["turn"]["turnId"])
            snapshot = (await session.read_events())["events"][0]["event"]["data"]["snapshot"]
            models = await client.request("models/list")

    assert waited["turn"]["status"] == "completed"
    assert (snapshot["model"]["credential"]["source"], snapshot["model"]["credential"]["owner"]) == (
        "command",
        "team of tests",
    )
    assert [model["name"] for model in models["models"]] == ["another-model", "fake-model"]
    assert {request.headers["hames-project"] for request in fake.requests} == {"p-1"}
    (call,) = collector.named("execute_tool bash")
    assert "[redacted]" in str(attributes(call)["hames.content.result"])
    assert KEY not in repr(collector.requests)


async def test_a_program_that_fails_refuses_what_needs_the_model_and_a_label_binds(
    environ: Mapping[str, str], workspace: Path
) -> None:
    with FakeProvider(api_key=KEY) as fake, anyio.fail_after(60):
        async with connect(environ=environ, settings=settings(fake, "false")) as client:
            with pytest.raises(HamesError, match="exit code 1") as caught:
                await client.create_session(workspace)
            assert caught.value.kind == "credential_missing"
            health = await client.request("health/check", {"dependencies": ["provider"]})
            assert health["dependencies"]["provider"]["status"] == "unavailable"
        async with connect(environ=environ, settings=settings(fake, printing(KEY))) as client:
            session = await client.create_session(workspace)
            with pytest.raises(HamesError, match="holds a key"):
                await client.create_session(workspace, attribution={"run": KEY})
        other = settings(fake, printing(KEY), **{"providers.compatible.owner": "others"})
        async with connect(environ=environ, settings=other) as client:
            with pytest.raises(HamesError) as caught:
                await client.resume_session(session.id)
            assert caught.value.kind == "authority_mismatch"


def test_the_doctor_asks_with_the_key_of_the_program_and_tells_when_there_is_none(environ: Mapping[str, str]) -> None:
    with FakeProvider(api_key=KEY) as fake:
        env = {**environ, "HAMES_COMPATIBLE_BASE_URL": fake.url}
        well = check_providers(case_of({**env, "HAMES_COMPATIBLE_API_KEY_COMMAND": printing(KEY)}))
        ill = check_providers(case_of({**env, "HAMES_COMPATIBLE_API_KEY_COMMAND": "false"}))

    assert (well.status, KEY in repr(well)) == ("ok", False)
    assert "with a key from its program" in well.seen
    assert ill.status == "fail"
    assert "exit code 1" in ill.problems[0].what
    assert "providers.compatible.apiKeyCommand" in ill.problems[0].advice


@pytest.mark.parametrize(
    ("variables", "setting", "told"),
    [
        ({"HAMES_TELEMETRY_ENDPOINT": "c:4318"}, "telemetry.endpoint", "http or https URL"),
        ({"HAMES_TELEMETRY_HEADERS": "secret"}, "telemetry.headers", "name=value"),
        ({"HAMES_TELEMETRY_CONTENT": "maybe"}, "telemetry.content", "true or false"),
    ],
)
def test_a_setting_of_telemetry_that_is_none_is_refused(
    environ: Mapping[str, str], variables: dict[str, str], setting: str, told: str
) -> None:
    with pytest.raises(Refused, match=told) as caught:
        load_config({**environ, **variables})

    assert caught.value.details["setting"] == setting
    assert "secret" not in caught.value.message


def test_without_telemetry_nothing_of_it_is_loaded() -> None:
    code = "import sys, hames.app, hames.server.serve; print([name for name in sys.modules if '.telemetry.' in name])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['hames.telemetry.settings']"
