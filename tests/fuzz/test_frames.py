"""Ten thousand changed frames, in every state of a connection: no crash, no defect, no growth, and `ping` answers.

Another seed: `FUZZ_SEED=<number>`; a failure shows its own.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from e2e.driver import Server, headed, line
from e2e.fixtures import Start
from fake.provider import FakeProvider, finish, partial, text, wait_for
from fuzz.mutator import corpus, frames
from hames.protocol.errors import INTERNAL_ERROR

SEED = int(os.environ.get("FUZZ_SEED", "1"))
ALLOWED_BYTES = 20_000_000
AT_ONCE = 50

pytestmark = pytest.mark.slow


def throw(server: Server, lines: list[bytes]) -> None:
    """Send the lines; after every few, `ping` must answer."""
    for n, batch in enumerate(_batched(lines)):
        identifier = f"alive-{len(server.frames)}-{n}"
        server.write(b"".join(batch) + line(identifier, "ping"))
        try:
            assert server.answer(identifier)["result"] == {}
        except AssertionError as error:
            (Path(tempfile.gettempdir()) / "hames-fuzz-failure").write_bytes(b"".join(batch))
            raise AssertionError(f"seed {SEED}: no ping behind the frames in $TMPDIR/hames-fuzz-failure") from error
    defects = [
        (response, frame.raw[:300])
        for frame in server.frames
        for response in frame.responses
        if response.get("error", {}).get("code") == INTERNAL_ERROR
    ]
    assert not defects, f"seed {SEED}: {defects[:3]}; stderr {server.stderr[-2000:]}"
    assert "Traceback" not in server.stderr, f"seed {SEED}: {server.stderr[-3000:]}"


def _batched(lines: list[bytes]) -> list[list[bytes]]:
    return [lines[at : at + AT_ONCE] for at in range(0, len(lines), AT_ONCE)]


def test_changed_frames_before_initialize(start: Start, workspace: Path) -> None:
    print(f"seed {SEED}")
    server = start(initialize=False)
    server.write(b"\n" + line("first", "ping"))
    messages = [message for message in corpus(workspace) if message["method"] != "initialize"]

    throw(server, list(frames(SEED, 2_000, messages)))

    assert server.refused("session/list")["data"]["kind"] == "not_initialized"


def test_changed_frames_while_idle_streaming_and_cancelled_cost_no_memory(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    print(f"seed {SEED}")
    fake.answer = lambda _: text("ok")
    server.create(workspace, "own")
    server.finish("own", server.submit("own"))
    messages = corpus(workspace)
    throw(server, list(frames(SEED + 1, 2_000, messages)))
    before = server.rss_bytes()

    throw(server, list(frames(SEED + 2, 2_000, messages)))
    fake.on("stream", partial("half ") + wait_for("rest") + partial("whole") + finish())
    turn_id = server.submit("own", "stream")
    throw(server, list(frames(SEED + 3, 4_000, messages)))
    fake.gate("rest").open()

    assert server.finish("own", turn_id)["outcome"]["text"] == "half whole"
    grown = server.rss_bytes() - before
    assert grown < ALLOWED_BYTES, f"seed {SEED}: grew by {grown}"


def test_changed_bodies_in_header_framing(start: Start, workspace: Path) -> None:
    print(f"seed {SEED}")
    server = start(framing="header")
    bodies = [frame[:-1] for frame in frames(SEED + 4, 1_000, corpus(workspace))]

    for n, body in enumerate(bodies):
        server.write(headed(body) if body else b"")
        if n % AT_ONCE == 0:
            assert server.call("ping") == {}

    assert server.call("ping") == {}
