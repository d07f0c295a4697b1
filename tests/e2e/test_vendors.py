"""Every provider, by configuration alone; and one session that goes from each to the next and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.driver import said
from e2e.fixtures import Start
from fake.provider import FakeProvider
from fake.vendors import VENDORS
from hames.config import SETTINGS

KEY = "sk-of-the-tests-0123456789"


@pytest.fixture
def fakes() -> Iterator[Mapping[str, FakeProvider]]:
    """A strict fake for each provider, which wants a key."""
    with ExitStack() as stack:
        made = {
            name: stack.enter_context(FakeProvider(wire=vendor.wire, api_key=KEY)) for name, vendor in VENDORS.items()
        }
        yield made
        assert {name: fake.refusals for name, fake in made.items() if fake.refusals} == {}


def configured(fakes: Mapping[str, FakeProvider]) -> dict[str, str]:
    """The environment that names them."""
    env: dict[str, str] = {}
    for name, fake in fakes.items():
        env[SETTINGS[f"providers.{name}.baseUrl"].environment] = fake.url
        env[SETTINGS[f"providers.{name}.apiKey"].environment] = KEY
    return env


def test_a_session_goes_from_each_provider_to_the_next_and_back(
    start: Start, workspace: Path, fakes: Mapping[str, FakeProvider]
) -> None:
    models = [f"{name}/{vendor.models[0]}" for name, vendor in VENDORS.items()]
    with start(env=configured(fakes)) as server:
        server.call("session/create", workspace=str(workspace), sessionId="s1", model=models[0])
        for model in [*models, *models[::-1]]:
            name, _, called = model.partition("/")
            vendor = VENDORS[name]
            server.call("session/update", sessionId="s1", model=model)
            fakes[name].script(vendor.signed(called), vendor.signed(called), vendor.wire.text(f"Done by {name}."))

            turn = server.finish("s1", server.submit("s1", f"Work with {model}."))

            assert turn["status"] == "completed"
            assert turn["outcome"]["text"] == f"Done by {name}."
        last = fakes[models[0].partition("/")[0]].requests[-1].raw
        assert all(f"Work with {model}.".encode() in last for model in models)
        log = server.log("s1")

    assert KEY not in str(log)
    told = [entry["event"]["data"]["repairs"] for entry in log if entry["event"]["type"] == "context.repaired"]
    assert {repair["code"] for repairs in told for repair in repairs} == {"signed_parts"}
    counted = [repairs[0]["count"] for repairs in told]
    assert counted == sorted(set(counted)), "only what is more is told"


def test_a_key_goes_to_its_own_host_and_nowhere_else(
    start: Start, workspace: Path, fakes: Mapping[str, FakeProvider]
) -> None:
    env = configured(fakes)
    keys = {name: f"{KEY}-{name}" for name in fakes}
    for name, fake in fakes.items():
        fake.api_key = keys[name]
        env[SETTINGS[f"providers.{name}.apiKey"].environment] = keys[name]
    with start(env=env) as server:
        for name, vendor in VENDORS.items():
            fakes[name].script(vendor.wire.text("Done."))
            session = server.create(workspace, f"s-{name}", model=f"{name}/{vendor.models[0]}")
            assert server.finish(session, server.submit(session, "hello"))["status"] == "completed"

    for name, fake in fakes.items():
        sent = [str(request.headers) + request.target + request.raw.decode() for request in fake.requests]
        assert sent
        for other, key in keys.items():
            assert all((key in text) == (other == name) for text in sent)
            assert all(key not in request.target for request in fake.requests)


@pytest.mark.parametrize("name", [name for name in VENDORS if name != "compatible"])
def test_without_a_key_it_is_said_what_to_do_before_anything_is_asked(
    start: Start, workspace: Path, name: str, fakes: Mapping[str, FakeProvider]
) -> None:
    with start(env={SETTINGS[f"providers.{name}.baseUrl"].environment: fakes[name].url}) as server:
        refused = server.refused("session/create", workspace=str(workspace), model=f"{name}/some-model")

    assert refused["data"]["kind"] == "credential_missing"
    assert f"providers.{name}.apiKey" in refused["message"]
    assert fakes[name].requests == []


def test_a_session_whose_key_was_replaced_goes_on_once_its_model_is_named_anew(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    with start(env={"HAMES_COMPATIBLE_API_KEY": f"{KEY}-1"}) as server:
        server.create(workspace, "s1", model="compatible/fake-model")
        server.finish("s1", server.submit("s1", "hello"))

    with start(env={"HAMES_COMPATIBLE_API_KEY": f"{KEY}-2"}) as server:
        refused = server.refused("turn/submit", sessionId="s1", input=said("again"))
        server.call("session/update", sessionId="s1", model="compatible/fake-model")

        assert refused["data"]["kind"] == "authority_mismatch"
        server.call("session/resume", sessionId="s1", subscribe={})
        assert server.finish("s1", server.submit("s1", "again"))["status"] == "completed"
