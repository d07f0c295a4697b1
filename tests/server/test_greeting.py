"""`initialize` is answered before the event loop is there, or left to the connection byte for byte."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pytest

from hames.core.limits import DEFAULTS
from hames.server.frames import encode_frame
from hames.server.greeting import Opening, agree, greet_early
from hames.server.stdio import Stdio

PARAMS = {"protocolVersions": ["1"], "clientInfo": {"name": "editor", "version": "2"}}
AGREE = partial(agree, limits=DEFAULTS, store={"kind": "sqlite"}, transport={"kind": "stdio"})


@dataclass
class Pipes:
    """The client's ends of the server's standard input and output."""

    stdio: Stdio
    to_server: int
    from_server: int

    def greet(self, data: bytes, framing: Literal["auto", "line", "header"] = "auto") -> Opening:
        """What comes of `data` being there at the start."""
        os.write(self.to_server, data)
        return greet_early(self.stdio, framing, limits=DEFAULTS, result_of=AGREE)

    def answered(self) -> bytes:
        """What the client has been sent."""
        os.set_blocking(self.from_server, False)
        try:
            return os.read(self.from_server, 2**20)
        except BlockingIOError:
            return b""


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    stdin, to_server = os.pipe()
    from_server, stdout = os.pipe()
    descriptors = {stdin, to_server, from_server, stdout}
    yield Pipes(Stdio(stdin, stdout), to_server, from_server)
    for descriptor in descriptors:
        os.close(descriptor)


def request(method: str = "initialize", **members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": PARAMS, **members}).encode()


@pytest.mark.parametrize("framing", ["line", "header"])
def test_a_handshake_that_is_there_is_answered_in_its_framing(pipes: Pipes, framing: Literal["line", "header"]) -> None:
    opening = pipes.greet(encode_frame(request(), framing))

    assert (opening.client, opening.frames, opening.decoder.framing) == ("editor/2", [], framing)
    body = pipes.answered().partition(b"\r\n\r\n")[2 if framing == "header" else 0]
    answer = json.loads(body)
    assert answer["id"] == 1
    assert answer["result"]["limits"]["frameInBytes"]["default"] == DEFAULTS["frameInBytes"]


def test_what_stands_behind_it_is_left_to_the_connection(pipes: Pipes) -> None:
    opening = pipes.greet(request() + b"\n" + request("ping") + b'\n{"half"')

    assert opening.client == "editor/2"
    assert opening.frames == [request("ping")]
    assert opening.decoder.feed(b":1}\n") == [b'{"half":1}']


OTHERS = {
    "half of it": request()[:40],
    "another version": request(params=PARAMS | {"protocolVersions": ["2"]}) + b"\n",
    "no client": request(params={"protocolVersions": ["1"]}) + b"\n",
    "another method first": request("ping") + b"\n" + request() + b"\n",
    "a notification": json.dumps({"jsonrpc": "2.0", "method": "initialize", "params": PARAMS}).encode() + b"\n",
    "a batch": b"[" + request() + b"]\n",
    "no JSON": b"{nonsense\n" + request() + b"\n",
    "no frame": b"Content-Length: x\r\n\r\n",
}


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS)
def test_anything_else_is_left_whole_and_unanswered(pipes: Pipes, data: bytes) -> None:
    opening = pipes.greet(data)

    assert (opening.client, pipes.answered()) == (None, b"")
    frames = [frame for frame in opening.frames + opening.decoder.end() if isinstance(frame, bytes)]
    assert frames == [line for line in data.split(b"\n") if line and not line.startswith(b"Content-")][: len(frames)]
    assert bool(frames) == (data != OTHERS["no frame"])


def test_it_waits_neither_for_bytes_nor_for_room(pipes: Pipes) -> None:
    assert pipes.greet(b"").frames == []
    os.write(pipes.stdio.stdout, b"unread")

    opening = pipes.greet(request() + b"\n")

    assert (opening.client, opening.frames) == (None, [])
    assert os.read(pipes.stdio.stdin, 2**20) == request() + b"\n"


def test_a_client_that_is_gone_and_files_are_left_to_the_connection(pipes: Pipes) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    gone = Pipes(Stdio(pipes.stdio.stdin, writing), pipes.to_server, pipes.from_server)
    null = os.open(os.devnull, os.O_RDWR)

    opening = gone.greet(request() + b"\n")

    assert (opening.client, opening.frames) == (None, [request()])
    assert greet_early(Stdio(null, null), "auto", limits=DEFAULTS, result_of=AGREE).frames == []
    for descriptor in (writing, null):
        os.close(descriptor)
