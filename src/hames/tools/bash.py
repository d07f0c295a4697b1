"""`bash`: run a shell command and show the end of what it wrote, or leave it running in the background.

Rule 1: a command that fails or runs out of time is a result, not an error: the model reads the exit code. One that
fails and met a limit of commands is an error of its own kind, with all that it wrote.
Rule 2: nothing the command started outlives it; what had to be killed is told. In the background it is the session's.
Rule 3: the end of the output is shown, and the notice of a cut stands before it: the last line is the newest. What was
cut is kept beside, on disk, not in memory.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from hames.core.conversation import ToolSpec
from hames.core.limits import LIMITS
from hames.ports import Effect, ProcessResult, Spool, ToolContext, ToolOutcome, Wish
from hames.protocol.errors import ToolFailed
from hames.tools.clip import Clip, one_line, tail

SHELLS = ("bash", "sh")
"""The second where there is no first."""

_DESCRIPTION = (
    "Run a command with bash. There is no terminal and no input. Shows the last 2000 lines or 50 KiB of its "
    "output, and its exit code when that is not 0. What the command leaves running in the background is "
    "killed when it ends. File locks of write and edit do not hold for it."
)

_PROPERTIES: Mapping[str, Any] = {
    "command": {"type": "string", "minLength": 1},
    "cwd": {"type": "string", "minLength": 1, "description": "Relative to the working directory."},
    "env": {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": {"type": "string"},
        "description": "Variables added to the environment.",
    },
    "timeout": {"type": "integer", "minimum": 1, "description": "Milliseconds until it is stopped."},
}

_IN_BACKGROUND = (
    " For a server or a watcher, set `background`: the answer comes at once, the command runs on when the turn ends, "
    "and the tool process reads what it writes and stops it."
)

_BACKGROUND: Mapping[str, Any] = {
    "background": {"type": "boolean", "description": "Let it run on; `timeout` does not hold then."},
    "name": {
        "type": "string",
        "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        "description": "What to call it in the background.",
    },
}


class BashTool:
    """A shell command, without a terminal and without input. `background`: it can be left running."""

    effect: Effect = "execute"

    def __init__(self, *, background: bool = False) -> None:
        self.spec = ToolSpec(
            name="bash",
            description=_DESCRIPTION + (_IN_BACKGROUND if background else ""),
            parameters={
                "type": "object",
                "properties": {**_PROPERTIES, **(_BACKGROUND if background else {})},
                "required": ["command"],
                "additionalProperties": False,
            },
        )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """Commands run freely."""
        return None

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """The command."""
        return one_line(arguments["command"])

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Run it to its end, or start it in the background.

        Raises:
            ToolFailed: no such directory, or the command cannot be started.
            HarnessFault: something of it may still run.
        """
        if arguments.get("background", False):
            return await _start(arguments, context)
        timeout_ms = min(
            int(arguments.get("timeout", context.limits["bashTimeoutMs"])), context.limits["bashTimeoutMs"]
        )
        lines = 0
        spool = None if context.spool is None else context.spool()
        most_bytes = context.limits["keptOutputBytes"]

        def on_output(chunk: bytes) -> None:
            nonlocal lines
            lines += chunk.count(b"\n")
            context.emit(chunk)
            if spool is not None and spool.size_bytes < most_bytes:
                spool.write(chunk[: most_bytes - spool.size_bytes])

        async def run(shell: str) -> ProcessResult:
            return await context.sandbox.run(
                [shell, "-c", arguments["command"]],
                cwd=arguments.get("cwd"),
                env={**arguments.get("env", {}), "HAMES_CALL": context.call_id},
                timeout_ms=timeout_ms,
                grace_ms=context.limits["timeoutGraceMs"],
                keep_bytes=context.limits["bashBytes"],
                on_output=on_output,
            )

        try:
            try:
                result = await run(SHELLS[0])
            except ToolFailed as failure:
                if failure.kind != "command_not_found":
                    raise
                result = await run(SHELLS[1])
        except BaseException:
            if spool is not None:
                spool.discard()
            raise
        clip = tail(
            result.output,
            total=result.total_bytes,
            max_lines=context.limits["bashLines"],
            max_bytes=context.limits["bashBytes"],
        )
        if result.output and not result.output.endswith(b"\n"):
            lines += 1
        if spool is not None and not (clip.cut and spool.size_bytes):
            spool.discard()
            spool = None
        return _outcome(result, clip, lines=lines, timeout_ms=timeout_ms, kept=spool)


async def _start(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
    """Start it in the background, and say how it is to be found."""
    from hames.tools.process import background_of, started

    process = await background_of(context).start(
        Wish(
            argvs=tuple((shell, "-c", arguments["command"]) for shell in SHELLS),
            command=one_line(arguments["command"]),
            name=arguments.get("name"),
            cwd=arguments.get("cwd"),
            env=arguments.get("env", {}),
        )
    )
    return await started(process, context)


def _outcome(result: ProcessResult, clip: Clip, *, lines: int, timeout_ms: int, kept: Spool | None) -> ToolOutcome:
    text = clip.text
    if clip.cut:
        hint = "; to see all, write them to a file" if kept is None else ""
        text = f"[Only the last {clip.lines} of {lines} lines are shown{hint}.]\n{text}"
    notes = _notes(result, timeout_ms)
    if not text and not notes:
        notes = ["No output."]
    if text and notes and not text.endswith("\n"):
        text += "\n"
    details = {
        "exitCode": result.exit_code,
        "timedOut": result.timed_out,
        "killed": result.killed,
        "totalLines": lines,
        "totalBytes": result.total_bytes,
        **({"limitsMet": dict(result.met)} if result.met else {}),
    }
    truncation = None
    if clip.cut:
        truncation = {
            "mode": "tail",
            "totalLines": lines,
            "shownLines": clip.lines,
            "totalBytes": result.total_bytes,
            "shownBytes": clip.size,
        }
        if kept is not None:
            truncation["keptBytes"] = kept.size_bytes
    text += "\n".join(f"[{note}]" for note in notes)
    return ToolOutcome(text=text, details=details, truncation=truncation, kept=kept, error=_limit_met(result))


def _limit_met(result: ProcessResult) -> ToolFailed | None:
    """Why it failed, where that is a limit of commands."""
    if not result.met or result.exit_code == 0:
        return None
    limit, configured = next(iter(result.met.items()))
    what = LIMITS[limit].meaning
    message = f"The command met the limit {limit}, which is {configured}: {what}. More is not to be had."
    return ToolFailed("limit_exceeded", message, limit=limit, configured=configured)


def _notes(result: ProcessResult, timeout_ms: int) -> list[str]:
    notes: list[str] = [f"The limit {name} ({value}) was met." for name, value in result.met.items()]
    if result.killed and not result.timed_out:
        what = "process that outlived the command was" if result.killed == 1 else "processes that outlived it were"
        notes.append(f"{result.killed} {what} killed.")
    if result.timed_out:
        notes.append(f"Stopped after {timeout_ms} ms: exit code {result.exit_code}.")
    elif result.exit_code < 0:
        notes.append(f"Killed by signal {-result.exit_code} ({_signal_name(-result.exit_code)}).")
    elif result.exit_code > 0:
        notes.append(f"Exit code {result.exit_code}.")
    return notes


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
