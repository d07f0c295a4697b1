"""Changed frames in every state of a connection: no crash, no defect, no growth, and `ping` answers all the time."""

from __future__ import annotations

from pathlib import Path

from e2e.driver import Server, compatible, headed, line
from fake.provider import FakeProvider, finish, partial, text, wait_for
from fuzz.mutator import corpus, frames
from hames.protocol.errors import INTERNAL_ERROR
from soak.checks import check_store
from soak.load import make_workspace
from soak.place import Place

ALLOWED_BYTES = 20_000_000
AT_ONCE = 50


def throw(server: Server, lines: list[bytes]) -> None:
    """Send the lines; after every few, `ping` must answer. Those of a failure are kept beside the store."""
    for n, batch in enumerate(_batched(lines)):
        identifier = f"alive-{len(server.frames)}-{n}"
        server.write(b"".join(batch) + line(identifier, "ping"))
        try:
            assert server.answer(identifier)["result"] == {}
        except AssertionError as error:
            kept = server.home / "last-frames"
            kept.write_bytes(b"".join(batch))
            raise AssertionError(f"no ping behind the frames in {kept}") from error
    defects = [
        (response, frame.raw[:300])
        for frame in server.frames
        for response in frame.responses
        if response.get("error", {}).get("code") == INTERNAL_ERROR
    ]
    assert not defects, f"{defects[:3]}; stderr {server.stderr[-2000:]}"
    assert "Traceback" not in server.stderr, server.stderr[-3000:]


def _batched(lines: list[bytes]) -> list[list[bytes]]:
    return [lines[at : at + AT_ONCE] for at in range(0, len(lines), AT_ONCE)]


def before_initialize(server: Server, workspace: Path, seed: int, count: int) -> None:
    """A connection that said nothing yet."""
    server.write(b"\n" + line("first", "ping"))
    messages = [message for message in corpus(workspace) if message["method"] != "initialize"]

    throw(server, list(frames(seed, count, messages)))

    assert server.refused("session/list")["data"]["kind"] == "not_initialized"


def while_working(server: Server, workspace: Path, fake: FakeProvider, seed: int, count: int) -> None:
    """One that is idle, then streams: a quarter of the frames each, warm and measured, then half of them."""
    fake.answer = lambda _: text("ok")
    server.create(workspace, "own")
    server.finish("own", server.submit("own"))
    messages = corpus(workspace)
    throw(server, list(frames(seed + 1, count // 4, messages)))
    before = server.rss_bytes()

    throw(server, list(frames(seed + 2, count // 4, messages)))
    fake.on("stream", partial("half ") + wait_for("rest") + partial("whole") + finish())
    turn_id = server.submit("own", "stream")
    throw(server, list(frames(seed + 3, count // 2, messages)))
    fake.gate("rest").open()

    assert server.finish("own", turn_id)["outcome"]["text"] == "half whole"
    grown = server.rss_bytes() - before
    assert grown < ALLOWED_BYTES, f"grew by {grown}"


def in_header_framing(server: Server, workspace: Path, seed: int, count: int) -> None:
    """Bodies behind right headers."""
    bodies = [frame[:-1] for frame in frames(seed + 4, count, corpus(workspace))]

    for n, body in enumerate(bodies):
        server.write(headed(body) if body else b"")
        if n % AT_ONCE == 0:
            assert server.call("ping") == {}

    assert server.call("ping") == {}


def mutated_frames(place: Place) -> str:
    """A round: `place.size` frames, eight in ten to a connection that works."""
    home, workspace = place.home(), make_workspace(place.directory)
    seed, tenth = place.seed * 10, place.size // 10
    with FakeProvider() as fake:
        env = compatible(fake.url)
        with Server(home, env=env, initialize=False) as server:
            before_initialize(server, workspace, seed, tenth)
        with Server(home, env=env) as server:
            while_working(server, workspace, fake, seed, 8 * tenth)
        with Server(home, env=env, framing="header") as server:
            in_header_framing(server, workspace, seed, tenth)
        assert fake.refusals == []
    check_store(home)
    return f"{place.size} frames"
