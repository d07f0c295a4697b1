"""Contents that are nowhere any more: after a repair every session goes on, and says what it lacks."""

from __future__ import annotations

import shutil
import sqlite3
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cli.command import Cli
from e2e.driver import said
from e2e.fixtures import Start
from fake import answers, anthropic, openai
from fake.answers import Answer
from fake.pictures import png
from fake.provider import FakeProvider
from fake.vendors import VENDORS
from hames.config import SETTINGS

KEY = "sk-of-the-tests-0123456789"
LARGE = "All of this is lost. " * 4_000
THOUGHTS: dict[str, Callable[[str], Answer]] = {
    "anthropic": lambda model: anthropic.answer(
        anthropic.Thought([LARGE]), anthropic.Said(["I thought."]), model=model
    ),
    "openai": lambda _: openai.answer(openai.Thought([LARGE]), openai.Said(["I thought."])),
}
"""Answers whose signed parts are large, of those who sign what is thought."""


def lose_all(home: Path) -> None:
    """No content is left, neither in a row nor in a file."""
    with closing(sqlite3.connect(home / "store" / "store.db")) as connection, connection:
        connection.execute("delete from blob")
    shutil.rmtree(home / "store" / "blobs", ignore_errors=True)


def repaired(home: Path, workspace: Path) -> None:
    cli = Cli(home, workspace)
    assert cli("verify").code == 15
    assert cli("repair", "--yes", "--json").record["artifactsLost"]
    assert cli("verify").code == 0
    assert cli("repair", "--yes", "--json").code == 0, "it is nothing new"


@pytest.mark.parametrize("name", VENDORS)
def test_a_session_whose_contents_are_lost_goes_on(start: Start, home: Path, workspace: Path, name: str) -> None:
    vendor = VENDORS[name]
    model = vendor.models[0]
    (workspace / "AGENTS.md").write_text("Mind the rules. " * 1_500)
    with FakeProvider(wire=vendor.wire, api_key=KEY) as fake:
        env: dict[str, str | None] = {
            SETTINGS[f"providers.{name}.baseUrl"].environment: fake.url,
            SETTINGS[f"providers.{name}.apiKey"].environment: KEY,
            "HAMES_MODEL": f"{name}/{model}",
        }
        first = start(env=env)
        session_id = first.create(workspace, instructions="Be brief. " * 2_000)
        picture = {"type": "image", "mediaType": "image/png", "data": b64encode(png()).decode(), "label": "a.png"}
        script: list[Answer] = [
            vendor.calls(model, "write", {"path": "a.txt", "content": LARGE}, "I write."),
            vendor.calls(model, "bash", {"command": "seq 10000"}, "I count."),
            vendor.calls(model, "view_image", {"path": "b.png"}, "I look."),
            vendor.wire.text("It is done. " * 2_000),
        ]
        (workspace / "b.png").write_bytes(png(5, 5))
        turns: list[dict[str, Any]] = [{"input": [*said(LARGE), picture], "instructions": "Mind this. " * 2_000}]
        if name in THOUGHTS:
            script.append(THOUGHTS[name](model))
            turns.append({"input": said("Think.")})
        fake.script(*script)
        for params in turns:
            turn_id = first.call("turn/submit", sessionId=session_id, **params)["turn"]["turnId"]
            turn = first.finish(session_id, turn_id)
            assert turn["status"] == "completed", str(turn)
        first.stop()
        lose_all(home)
        repaired(home, workspace)

        second = start(env=env)
        fake.script(vendor.wire.text("I go on."), vendor.wire.text("And on."))
        for _ in range(2):
            turn = second.finish(session_id, second.submit(session_id, "And now?"))
            assert turn["status"] == "completed", str(turn)

        assert fake.refusals == []
        sent = fake.requests[-1].raw.decode()
        assert "are left.]" in sent
        assert "image a.png: its content is lost" in sent
        log = [entry["event"] for entry in second.log(session_id)]
        [told] = [event for event in log if event["type"] == "context.repaired"]
        [repair] = told["data"]["repairs"]
        assert (repair["code"], repair["count"]) == ("content_lost", len(repair["artifacts"]))
        kept = second.call("artifact/list", sessionId=session_id)["artifacts"]
        named = set(repair["artifacts"])
        # The document that is still in the workspace was kept again when it was looked at.
        gone = named - {artifact["artifact"] for artifact in kept}
        assert len(gone) == len(named) - 1 >= 5
        wish = {"sessionId": session_id, "artifact": min(gone)}
        refused = second.refused("artifact/read", **wish)
        assert refused["data"]["kind"] == "artifact_corrupt"
        assert "was found nowhere by a repair" in refused["message"]


def test_a_summary_that_is_lost_leaves_the_session_usable(
    start: Start, home: Path, workspace: Path, fake: FakeProvider
) -> None:
    first = start()
    session_id = first.create(workspace)
    for n in range(6):
        assert first.finish(session_id, first.submit(session_id, f"{n} " + "word " * 2_500))["status"] == "completed"
    first.call("session/compact", sessionId=session_id)
    fake.script(answers.text("What was said before. " * 900), answers.text("Done."))
    assert first.finish(session_id, first.submit(session_id, "go on"))["status"] == "completed"
    [replaced] = [e["event"] for e in first.log(session_id) if e["event"]["type"] == "context.replaced"]
    assert isinstance(replaced["data"]["summary"], dict), "it is kept apart"
    first.stop()
    lose_all(home)
    repaired(home, workspace)

    second = start()
    assert second.finish(session_id, second.submit(session_id, "And now?"))["status"] == "completed"

    assert "What was said before." in str(fake.requests[-1].body)
    assert "are left.]" in str(fake.requests[-1].body)
