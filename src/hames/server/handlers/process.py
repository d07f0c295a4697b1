"""`process/*`: what runs in the background of a session."""

from __future__ import annotations

import codecs
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

import anyio

from hames.core.commands import StopProcess
from hames.core.processes import find, process_view
from hames.engine.outputs import written
from hames.engine.process_requests import read_process, until_ended

if TYPE_CHECKING:
    from hames.core.state import Process
    from hames.engine.service import Service
    from hames.ports import Loaded
    from hames.server.connection import Call

PIECE_BYTES: Final = 128 * 1024
"""Most bytes of one answer: as text they fit the smallest frame, though each takes six characters of JSON."""


async def process_list(call: Call) -> dict[str, Any]:
    """Those that run, and the newest of those that ended."""
    service = await call.service()
    loaded = await service.load(call.params["sessionId"])
    listed = sorted(loaded.state.processes.values(), key=lambda process: process.ended)
    return {"processes": [_view(service, loaded, each) for each in listed], "cursor": loaded.cursor}


def _view(service: Service, loaded: Loaded, process: Process) -> dict[str, Any]:
    owner = loaded.owner
    runner = "none" if owner is None or not owner.alive else "local" if owner.mine else "remote"
    output_bytes = written(service.world.outputs, loaded.state.session_id, process)
    return process_view(process, output_bytes=output_bytes, runner=runner)  # type: ignore[arg-type]


async def process_read(call: Call) -> dict[str, Any]:
    """A piece of what one wrote."""
    params = call.params
    service = await call.service()
    asked = params.get("offset", 0)
    is_text = params.get("encoding", "utf-8") == "utf-8"
    page, loaded = await read_process(
        service,
        params["sessionId"],
        params["processId"],
        offset=asked,
        length=min(params.get("length", PIECE_BYTES), PIECE_BYTES),
        wait_ms=min(params.get("waitMs", 0), call.host.limits["waitMs"]),
    )
    has_more = page.offset + len(page.data) < page.total_bytes
    at_end = page.process.ended and not has_more
    piece = whole_characters(page.data, has_more=has_more) if is_text and not at_end else page.data
    given = {"text": piece.decode("utf-8", "replace")} if is_text else {"data": b64encode(piece).decode()}
    next_offset = page.offset + len(piece)
    return {
        "process": _view(service, loaded, page.process),
        **given,
        "offset": page.offset,
        "skippedBytes": max(0, page.offset - asked),
        "nextOffset": next_offset,
        "hasMore": next_offset < page.total_bytes and bool(piece),
    }


def whole_characters(data: bytes, *, has_more: bool) -> bytes:
    """`data` without the character at its end that is not whole yet; all of it, where that is nothing and more is
    there: whoever asks for less than a character gets on too."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    held, _ = decoder.getstate()
    return data[: len(data) - len(held)] or (data if has_more else b"")


async def process_stop(call: Call) -> dict[str, Any]:
    """End one; answered when nothing of it runs, or at `timeoutMs`."""
    params = call.params
    service = await call.service()
    session_id, process_id = params["sessionId"], params["processId"]
    timeout_ms = params.get("timeoutMs")
    await service.commit(session_id, StopProcess(process_id, call.by))
    with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1000):
        await until_ended(service, session_id, process_id)
    loaded = await service.load(session_id)
    process = find(loaded.state, process_id)
    return {"process": _view(service, loaded, process), "cursor": loaded.cursor}
