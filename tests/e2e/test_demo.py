from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.driver import TIMEOUT_S, environment
from fake.answers import Answer, Send, Stall
from fake.provider import FakeProvider
from fake.vendors import VENDORS

DEMO = Path(__file__).parents[2] / "clients/python/examples/demo.py"


@pytest.mark.slow
def test_the_demonstration_holds_and_leaves_nothing_behind(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = environment(tmp_path / "home", {"TMPDIR": str(scratch)})
    done = subprocess.run([sys.executable, DEMO], env=env, capture_output=True, timeout=2 * TIMEOUT_S)
    told = done.stdout.decode()
    assert done.returncode == 0, told + done.stderr.decode()
    assert "VERDICT: all of it held" in told
    assert "SIGKILL to server process" in told
    assert "attempt 2" in told
    assert os.listdir(scratch) == []
    assert not (tmp_path / "home").exists()


def stalled(answer: Answer, after: str) -> Answer:
    """`answer` up to the event that says `after`, and then nothing."""
    data = b"".join(step.data for step in answer if isinstance(step, Send))
    at = data.index(b"\n\n", data.index(after.encode())) + 2
    return (Send(data[:at]), Stall())


@pytest.mark.slow
@pytest.mark.parametrize("name", VENDORS)
def test_the_demonstration_holds_with_each_provider_by_configuration_alone(tmp_path: Path, name: str) -> None:
    vendor = VENDORS[name]
    model = vendor.models[0]
    run = {"command": "python3 -B -m unittest"}
    edits = [("nme", "name"), ('"Hello "', '"Hello, "')]
    release = {"command": "echo released >> releases.txt; cat releases.txt"}
    with FakeProvider(wire=vendor.wire, api_key="sk-of-the-tests") as fake:
        fake.script(
            vendor.calls(model, "bash", run, "I run the test."),
            *(
                vendor.calls(model, "edit", {"path": "greeting.py", "oldText": old, "newText": new}, "I mend it.")
                for old, new in edits
            ),
            vendor.calls(model, "bash", run, "Once more."),
            vendor.wire.text("Mended."),
            vendor.calls(model, "bash", release, "I release."),
            stalled(vendor.wire.text("Announcing the release."), "Announcing the release."),
            vendor.wire.text("It is released."),
        )
        settings = {f"HAMES_{name.upper()}_BASE_URL": fake.url, f"HAMES_{name.upper()}_API_KEY": "sk-of-the-tests"}
        env = environment(tmp_path / "home", {"HAMES_MODEL": f"{name}/{model}", **settings})
        done = subprocess.run([sys.executable, DEMO], env=env, capture_output=True, timeout=2 * TIMEOUT_S)

    told = done.stdout.decode()
    assert done.returncode == 0, told + done.stderr.decode()
    assert "VERDICT: all of it held" in told
    assert fake.refusals == []
