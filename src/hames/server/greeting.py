"""What `initialize` agrees on, and its answer before the event loop is there.

A client that writes `initialize` when it spawns the server is answered by what is loaded then: importing asyncio and
anyio takes longer than all the rest of the answer.

Rule 1: only an answer that is a success is given early; whatever else stands there is left to the connection, byte for
byte. Rule 2: nothing waits here: neither for bytes that have not come nor for a client that does not read.
Rule 3: this module imports nothing heavy.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from hames import __version__
from hames.core.limits import LIMITS
from hames.core.records import record
from hames.protocol.errors import HamesError, InvalidParams, Refused
from hames.protocol.methods import METHODS, NOTIFICATIONS, PROTOCOL_VERSION
from hames.server import rpc
from hames.server.frames import FrameDecoder, Frames, encode_frame
from hames.server.stdio import READ_BYTES, Stdio, is_pipe

SERVER_INFO: Final = {"name": "hames", "version": __version__}

_FIONREAD: Final = 0x541B
_F_GETPIPE_SZ: Final = 1032
"""Linux (ioctl_tty(2), fcntl(2)); where they are not known, nothing is answered early."""


@record
class Opening:
    """What was read before the loop was there: the decoder with what it keeps, the frames that nobody has answered, and
    who was greeted, if somebody was."""

    decoder: FrameDecoder
    frames: Frames
    client: str | None = None


def agree(
    params: Mapping[str, Any], *, limits: Mapping[str, int], store: Mapping[str, Any], transport: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """The result of `initialize`, and the client as it stands on events. Unknown members are ignored, so that a newer
    client can speak to an older server.

    Raises:
        InvalidParams: a member is missing or of another type.
        Refused: `unsupported_protocol`.
    """
    versions = params.get("protocolVersions")
    if not isinstance(versions, list) or not all(isinstance(version, str) for version in versions):
        raise InvalidParams("protocolVersions", 'is required: a list of strings like ["1"]')
    client = params.get("clientInfo")
    if not isinstance(client, dict) or not all(isinstance(client.get(k), str) for k in ("name", "version")):
        raise InvalidParams("clientInfo", "is required: an object with the strings `name` and `version`")
    if PROTOCOL_VERSION not in versions:
        raise Refused("unsupported_protocol", supported=[PROTOCOL_VERSION], offered=versions[:20])
    result = {
        "protocolVersion": PROTOCOL_VERSION,
        "serverInfo": SERVER_INFO,
        "capabilities": {
            "methods": list(METHODS),
            "notifications": list(NOTIFICATIONS),
            "deltas": True,
            "parallelSessions": True,
            "serialTurns": True,
        },
        "limits": limits_view(limits),
        "store": dict(store),
        "transport": dict(transport),
    }
    return result, f"{client['name'][:100]}/{client['version'][:50]}"


def limits_view(limits: Mapping[str, int]) -> dict[str, Any]:
    """Every limit: the value in force, the most a caller may ask for, scope and meaning."""
    return {
        name: {
            "default": limits[name],
            "minimum": limit.minimum,
            "maximum": limit.maximum,
            "scope": limit.scope,
            "meaning": limit.meaning,
        }
        for name, limit in LIMITS.items()
    }


def greet_early(
    stdio: Stdio,
    framing: Literal["auto", "line", "header"],
    *,
    limits: Mapping[str, int],
    result_of: Callable[[Mapping[str, Any]], tuple[dict[str, Any], str]],
) -> Opening:
    """Read what has come, and answer an `initialize` at its start. `result_of` is `agree` with its keywords."""
    opening = Opening(FrameDecoder(limits["frameInBytes"], framing), [])
    room_bytes = _room(stdio.stdout)
    data = _there(stdio.stdin) if room_bytes else b""
    if not data:
        return opening
    frames = opening.decoder.feed(data)
    opening = Opening(opening.decoder, frames)
    if not frames or not isinstance(frames[0], bytes):
        return opening
    request = rpc.decode(frames[0])
    if not isinstance(request, rpc.Request) or request.method != "initialize":
        return opening
    try:
        result, client = result_of(request.params)
    except (HamesError, InvalidParams):
        return opening
    answer = encode_frame(rpc.encode_result(request.id, result), opening.decoder.framing)
    if len(answer) > room_bytes:
        return opening
    try:
        os.write(stdio.stdout, answer)
    except OSError:
        # Nobody reads: the connection finds out with its own answer.
        return opening
    return Opening(opening.decoder, frames[1:], client)


def _there(stdin: int) -> bytes:
    """The bytes that wait in a pipe or socket; none where there are none, or the stream has ended."""
    poll = select.poll()
    poll.register(stdin, select.POLLIN)
    if not is_pipe(stdin) or not any(events & select.POLLIN for _, events in poll.poll(0)):
        return b""
    try:
        return os.read(stdin, READ_BYTES)
    except OSError:
        return b""


def _room(stdout: int) -> int:
    """How many bytes an empty pipe takes without waiting; 0 for anything else."""
    if not is_pipe(stdout):
        return 0
    try:
        size_bytes = fcntl.fcntl(stdout, _F_GETPIPE_SZ)
        (waiting,) = struct.unpack("i", fcntl.ioctl(stdout, _FIONREAD, b"\0" * 4))
    except OSError:
        return 0
    return 0 if waiting else size_bytes
