"""What a server has imported, as the interpreter of the real one tells it: no provider before it is asked."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider
from fake.vendors import VENDORS
from hames.config import SETTINGS

KEY = "sk-of-the-tests-0123456789"
OWN = {
    "compatible": ("compatible", "chat_body", "chat_reply"),
    "openai": ("openai", "openai_body", "openai_reply"),
    "anthropic": ("anthropic", "anthropic_body", "anthropic_reply"),
    "gemini": ("gemini", "gemini_body", "gemini_reply"),
    "offline": ("offline",),
}
"""An adapter and what it alone needs. Rules of how tools and schemas are written are shared by several."""

TELLS = {"PYTHONPROFILEIMPORTTIME": "1"}
"""Has the interpreter tell each import on stderr: `import time: <self> | <cumulative> | <name>`."""

HTTP_CLIENT = {"httpx", "httpcore"}

_IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", re.MULTILINE)


def imported(server: Server) -> Collection[str]:
    """The modules that a server had imported when it ended."""
    assert server.stop() == 0
    modules = set(_IMPORTED.findall(server.stderr))
    assert "hames.server.serve" in modules, server.stderr[-500:]
    return modules


def packages(modules: Collection[str]) -> set[str]:
    """By any part of them: of what `import_module` was asked for, the interpreter tells what that imports alone."""
    return {name.partition(".")[0] for name in modules}


def of(modules: Collection[str], provider: str) -> list[str]:
    """The own modules of a provider among `modules`."""
    return [name for name in OWN[provider] if f"hames.providers.{name}" in modules]


def test_no_provider_and_no_http_client_is_imported_up_to_the_first_answers(start: Start) -> None:
    server = start(env=TELLS)
    server.call("capabilities/describe")
    server.call("session/list")

    modules = imported(server)

    assert [name for name in modules if name.startswith("hames.providers.")] == []
    assert not HTTP_CLIENT & packages(modules)


def test_a_turn_of_the_offline_model_needs_no_other_provider_and_no_http_client(start: Start, workspace: Path) -> None:
    server = start(env={**TELLS, "HAMES_MODEL": "offline"})
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id, "say: hello"))

    modules = imported(server)

    assert of(modules, "offline") != []
    assert [of(modules, name) for name in VENDORS] == [[]] * len(VENDORS)
    assert not HTTP_CLIENT & packages(modules)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_turn_of_one_provider_imports_no_module_of_another(start: Start, workspace: Path, vendor: str) -> None:
    with FakeProvider(wire=VENDORS[vendor].wire, api_key=KEY) as fake:
        url, key = (SETTINGS[f"providers.{vendor}.{name}"].environment for name in ("baseUrl", "apiKey"))
        server = start(env={**TELLS, url: fake.url, key: KEY})
        session_id = server.create(workspace, model=f"{vendor}/{VENDORS[vendor].models[0]}")
        turn = server.finish(session_id, server.submit(session_id))
        assert turn["status"] == "completed"
        assert fake.refusals == []

        modules = imported(server)

    assert of(modules, vendor) != []
    assert packages(modules) >= HTTP_CLIENT
    assert {name: of(modules, name) for name in OWN if name != vendor and of(modules, name)} == {}
