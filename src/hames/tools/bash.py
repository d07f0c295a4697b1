"""`bash`: run a shell command and show the end of what it wrote.

Rule 1: a command that fails or runs out of time is a result, not an error: the model reads the exit code.
Rule 2: nothing the command started outlives it; what had to be killed is told.
Rule 3: the end of the output is shown, and the notice of a cut stands before it: the last line is the newest. What was
cut is kept beside, on disk, not in memory.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from hames.core.conversation import ToolSpec
from hames.ports import Effect, ProcessResult, Spool, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools.clip import Clip, one_line, tail


class BashTool:
    """A shell command, without a terminal and without input."""

    effect: Effect = "execute"
    spec = ToolSpec(
        name="bash",
        description=(
            "Run a command with bash. There is no terminal and no input. Shows the last 2000 lines or 50 KiB of its "
            "output, and its exit code when that is not 0. What the command leaves running in the background is "
            "killed when it ends. File locks of write and edit do not hold for it."
        ),
        parameters={
            "type": "object",
            "properties": {
                "command": {"type": "string", "minLength": 1},
                "cwd": {"type": "string", "minLength": 1, "description": "Relative to the working directory."},
                "env": {
                    "type": "object",
                    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
                    "additionalProperties": {"type": "string"},
                    "description": "Variables added to the environment.",
                },
                "timeout": {"type": "integer", "minimum": 1, "description": "Milliseconds until it is stopped."},
            },
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
        """Run it to its end.

        Raises:
            ToolFailed: no such directory, or the command cannot be started.
            HarnessFault: something of it may still run.
        """
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
                result = await run("bash")
            except ToolFailed as failure:
                if failure.kind != "command_not_found":
                    raise
                result = await run("sh")
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
    return ToolOutcome(text=text, details=details, truncation=truncation, kept=kept)


def _notes(result: ProcessResult, timeout_ms: int) -> list[str]:
    notes: list[str] = []
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
