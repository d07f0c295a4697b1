"""What a background process wrote: read by cursor while it runs and after its end, and kept at its end.

Rule: the cursor is a byte of all that it wrote, so it means the same before and after the end, in every process.
"""

from __future__ import annotations

from typing import Any

import anyio.to_thread

from hames.core.state import Process
from hames.ports import Output, OutputPage, Outputs, Store
from hames.protocol.errors import HamesError


def written(outputs: Outputs, session_id: str, process: Process) -> int:
    """The bytes that it wrote so far."""
    if process.exit is not None:
        return int(process.exit["outputBytes"])
    output = outputs.find(session_id, process.process_id)
    return 0 if output is None else output.total_bytes


async def page_of(
    store: Store, outputs: Outputs, session_id: str, process: Process, *, offset: int, length: int
) -> OutputPage:
    """At most `length` bytes of it from `offset` on, or from the oldest that is kept.

    Raises:
        Refused, HarnessFault: its artifact is gone or damaged.
    """
    if process.exit is None:
        output = outputs.find(session_id, process.process_id)
        if output is None:
            return OutputPage(process, offset, b"", offset)
        at, data = output.read(offset, length)
        return OutputPage(process, at, data, max(output.total_bytes, at + len(data)))
    total, artifact = int(process.exit["outputBytes"]), process.exit.get("artifact")
    first = total if artifact is None else total - int(artifact["sizeBytes"])
    at = min(max(offset, first), total)
    if artifact is None or at == total:
        return OutputPage(process, at, b"", total)
    data = await store.read_artifact(session_id, artifact["artifact"], offset=at - first, length=length)
    return OutputPage(process, at, data, total)


async def keep_output(store: Store, session_id: str, process: Process, output: Output) -> dict[str, Any] | None:
    """Make it an artifact: a reference to that; None where there is nothing, or the store does not take it."""
    spool = store.spool()
    try:
        await anyio.to_thread.run_sync(output.copy_to, spool)
        if not spool.size_bytes:
            return None
        name = f"{process.name or process.process_id}.txt"
        kept = await store.keep(session_id, spool, media_type="text/plain", name=name)
    except HamesError:
        # That it ended must be said all the same.
        return None
    finally:
        spool.discard()
    return {"artifact": kept.artifact, "sizeBytes": kept.size_bytes, "sha256": kept.sha256}
