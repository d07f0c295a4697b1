"""`process`: look after what `bash` left running in the background.

Rule 1: what a process wrote is read by a cursor, a byte of all of its output: no byte is shown twice, and none is left
out unsaid.
Rule 2: nothing is started here; a process is found by its id or its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hames.core.conversation import ToolSpec
from hames.core.state import Process
from hames.ports import Background, Effect, OutputPage, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools.clip import one_line

HOW = {
    "stopped": "was stopped.",
    "session_closed": "was stopped: the session was closed.",
    "limit": "was stopped: it had run as long as one may.",
    "cancelled": "was stopped: the call that started it was cancelled.",
    "not_started": "could not be started.",
    "owner_left": "was stopped with the server that ran it.",
    "owner_died": "ended with the server that ran it.",
}
"""How one ended that did not end by itself."""


class ProcessTool:
    """Lists, reads and stops background processes."""

    effect: Effect = "execute"
    spec = ToolSpec(
        name="process",
        description=(
            "Look after the background processes of this session, which bash starts with `background`: list them, read "
            "what one wrote, or stop one. Reading shows at most 50 KiB from `offset` on and tells the next offset; "
            "without `offset`, the end of the output."
        ),
        parameters={
            "type": "object",
            "properties": {
                "action": {"enum": ["list", "read", "stop"]},
                "process": {"type": "string", "minLength": 1, "description": "Its id or its name; not to list."},
                "offset": {"type": "integer", "minimum": 0, "description": "Of a byte, to read from."},
                "wait": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Milliseconds to wait for output behind `offset`, or for the end.",
                },
            },
            "required": ["action"],
            "additionalProperties": False,
        },
    )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """They run freely."""
        return None

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """What is done to which."""
        return one_line(f"{arguments['action']} {arguments.get('process', '')}".strip())

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Do it.

        Raises:
            ToolFailed: `process_not_found`, `no_process_named`, `no_background`.
        """
        background = background_of(context)
        if arguments["action"] == "list":
            return _listed(await background.all())
        which = arguments.get("process")
        if which is None:
            raise ToolFailed("no_process_named", "Say which `process`, by its id or its name; `list` has both.")
        if arguments["action"] == "stop":
            process = await background.stop(which)
            return ToolOutcome(f"{_about(process)}", details=_details(process))
        page = await background.read(
            which,
            arguments.get("offset"),
            length=context.limits["readBytes"],
            wait_ms=min(arguments.get("wait", 0), context.limits["bashTimeoutMs"]),
        )
        return _shown(page, asked=arguments.get("offset"))


def background_of(context: ToolContext) -> Background:
    """Where things run in the background.

    Raises:
        ToolFailed: `no_background`: there is no such place in this session.
    """
    if context.background is None:
        raise ToolFailed(
            "no_background", "Nothing runs in the background of a session without the tool process: run it without."
        )
    return context.background


async def started(process: Process, context: ToolContext) -> ToolOutcome:
    """What the model is told of a process that was just started."""
    page = await background_of(context).read(process.process_id, 0, length=context.limits["readBytes"], wait_ms=0)
    if page.process.ended:
        return _shown(page, asked=0)
    end = page.offset + len(page.data)
    known = process.process_id if process.name is None else f"{process.process_id} ({process.name})"
    text = f"Runs in the background as {known}; what it writes is read from offset {end} on.\n{_text(page.data)}"
    return ToolOutcome(text, details=_details(page.process) | {"nextOffset": end})


def _listed(found: Sequence[tuple[Process, int]]) -> ToolOutcome:
    rows = [f"{_about(process)} {size} bytes written by: {process.command}" for process, size in found]
    return ToolOutcome("\n".join(rows) or "Nothing runs in the background, and nothing did.")


def _shown(page: OutputPage, *, asked: int | None) -> ToolOutcome:
    end = page.offset + len(page.data)
    note = f"{_about(page.process)} Bytes {page.offset} to {end} of {page.total_bytes}; next offset: {end}."
    if asked is not None and page.offset > asked:
        note += f" The {page.offset - asked} bytes before are not kept any more."
    text = _text(page.data)
    if text and not text.endswith("\n"):
        text += "\n"
    return ToolOutcome(f"{text}[{note}]", details=_details(page.process) | {"nextOffset": end})


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _about(process: Process) -> str:
    """Which one it is, and how it stands."""
    name = "" if process.name is None else f" ({process.name})"
    return f"{process.process_id}{name} {_state(process)}"


def _state(process: Process) -> str:
    if process.exit is None:
        return "runs." if process.stop is None else "is being stopped."
    why = HOW.get(process.exit["why"])
    if why is not None:
        return why
    if "signal" in process.exit:
        return f"was killed by signal {process.exit['signal']}."
    return f"ended with exit code {process.exit['exitCode']}." if "exitCode" in process.exit else "ended."


def _details(process: Process) -> dict[str, Any]:
    details: dict[str, Any] = {"processId": process.process_id}
    if process.name is not None:
        details["name"] = process.name
    if process.exit is not None:
        members = ("why", "exitCode", "signal", "outputBytes")
        details |= {name: process.exit[name] for name in members if name in process.exit}
    return details
