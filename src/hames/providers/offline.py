"""`OfflineProvider`: plays a script out of the prompt, without any model or network, and says so.

For demonstrations, tests and checks of an installation. The script is in the last user message, one directive a
line (`DIRECTIVES`); other lines are ignored, and a message without any fails: nobody may take this for a model.

Rule 1: a step, one model request, ends after its calls; the next goes on with the line after them. Which step it is
follows from the conversation alone: the number of assistant messages since the script. So it is the same after
a restart, and a step that failed fails again when it is repeated.
Rule 2: nothing is reported that was not measured: no usage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

import anyio
from anyio.lowlevel import checkpoint

from hames.core.compaction import SUMMARISE
from hames.core.conversation import (
    AssistantMessage,
    CallDelta,
    Message,
    ModelRequest,
    Part,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
    ToolResult,
    UserMessage,
)
from hames.core.records import record
from hames.ports import ModelLimits, ProviderFailed
from hames.protocol.errors import KINDS, ErrorKind

MAX_REPEAT = 1_000_000
"""Most deltas of one `repeat`: enough for any load test, not enough to fill a disk by a slip of the finger."""

DELTAS_A_SLICE = 256
"""Deltas given out until other tasks get their turn."""

_DIRECTIVE = re.compile(r"\s*(also\s+call|say|think|repeat|wait|call|expect|fail)(?:\s+(.*?))?\s*", re.DOTALL)
_WORDS = re.compile(r"\S+\s*|\s+")

DIRECTIVES: Mapping[str, str] = {
    "say <text>": "answer with the text, a word at a time",
    "think <text>": "visible reasoning",
    "repeat <n> <text>": "the text n times, a delta each",
    "wait <ms>": "a pause",
    "call <tool> <arguments>": "call a tool; the arguments are JSON and passed on as they are",
    "also call <tool> <arguments>": "in the same step as the call before, in parallel",
    "expect <text>": "the results of the calls before must contain the text, else the turn fails",
    "fail <kind>": "fail as a provider would, with this error kind",
}
"""The whole language, for messages and for the README, which a test compares."""


@record
class _Directive:
    verb: str
    rest: str


class OfflineProvider:
    """The interpreter: see the module."""

    def __init__(self) -> None:
        self.name = self.signs_as = "offline"
        self.route: Mapping[str, Any] = {"provider": "offline"}

    async def stream(self, request: ModelRequest, on_part: Callable[[Part], None], limits: ModelLimits) -> Reply:
        """See `Provider.stream`. A pause longer than `limits.idle_ms` is the failure it would be elsewhere.

        Raises:
            ProviderFailed: the script says `fail`, or a limit was reached.
        """
        await checkpoint()
        step = _Step(request, on_part, limits)
        with anyio.move_on_after(limits.request_ms / 1000) as scope:
            await step.play()
        if scope.cancelled_caught:
            raise _timeout("total", limits.request_ms)
        return step.reply()

    async def models(self) -> Sequence[str]:
        """See `Provider.models`."""
        return ["offline"]

    async def aclose(self) -> None:
        """See `Provider.aclose`. There is nothing to close."""


class _Step:
    """One model request: plays its part of the script."""

    def __init__(self, request: ModelRequest, on_part: Callable[[Part], None], limits: ModelLimits) -> None:
        self._request = request
        self._on_part = on_part
        self._limits = limits
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._given = 0

    async def play(self) -> None:
        if self._request.messages[-1].text.endswith(SUMMARISE):
            # What is to be summed up is full of scripts that were played already.
            await self._say("This model plays scripts and sums nothing up.")
            return
        prompt, position, results = _place(self._request.messages)
        steps = script(prompt)
        if self._request.tool_choice == "none":
            await self._say("Stopped here: no more tool calls are allowed.")
        elif not steps:
            raise _no_script()
        elif position >= len(steps):
            await self._say("Done.")
        else:
            for directive in steps[position]:
                await self._do(directive, results)
            if not self._text and not self._calls:
                await self._say("Done.")

    def reply(self) -> Reply:
        return Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=tuple(self._calls),
            stop="tool_calls" if self._calls else "stop",
            raw_stop=None,
            usage=None,
            model="offline",
            response_id=None,
        )

    async def _do(self, directive: _Directive, results: Sequence[ToolResult]) -> None:
        """Do one line."""
        rest = directive.rest
        match directive.verb:
            case "say":
                await self._say(rest)
            case "think":
                for word in _WORDS.findall(rest):
                    self._reasoning.append(word)
                    await self._give(ReasoningDelta(word))
            case "repeat":
                await self._repeat(rest)
            case "wait":
                await self._wait(rest)
            case "expect":
                if not any(rest in result.text for result in results):
                    raise _failed(f"Expected {rest!r} in the latest tool results, which do not contain it.")
            case "fail":
                self._fail(rest)
            case _:
                await self._call(rest)

    async def _say(self, text: str) -> None:
        if self._text:
            await self._word("\n")
        for word in _WORDS.findall(text):
            await self._word(word)

    async def _repeat(self, rest: str) -> None:
        count, _, text = rest.partition(" ")
        if not count.isdecimal() or not 0 < int(count) <= MAX_REPEAT or not text:
            raise _failed(f"`repeat` needs a number from 1 to {MAX_REPEAT} and a text, not {rest!r}.")
        for _ in range(int(count)):
            await self._word(text)

    async def _wait(self, rest: str) -> None:
        if not rest.isdecimal():
            raise _failed(f"`wait` needs milliseconds, not {rest!r}.")
        await anyio.sleep(min(int(rest), self._limits.idle_ms) / 1000)
        if int(rest) > self._limits.idle_ms:
            raise _timeout("idle", self._limits.idle_ms)

    def _fail(self, rest: str) -> NoReturn:
        if rest not in KINDS:
            raise _failed(f"`fail` needs an error kind, such as model_gateway, not {rest!r}.")
        message = f"The script of the offline interpreter says to fail with {rest}."
        raise ProviderFailed(cast("ErrorKind", rest), message, boundary="model_gateway", phase="stream")

    async def _call(self, rest: str) -> None:
        tool, _, arguments = rest.partition(" ")
        place = len(self._calls)
        provider_id = f"call-{len(self._request.messages)}-{place}"
        call = ToolCall("", provider_id, tool or "unnamed", arguments.strip() or "{}")
        self._calls.append(call)
        await self._give(CallDelta(place, call.tool, call.arguments))

    async def _word(self, text: str) -> None:
        self._text.append(text)
        await self._give(TextDelta(text))

    async def _give(self, part: Part) -> None:
        self._on_part(part)
        self._given += 1
        if self._given % DELTAS_A_SLICE == 0:
            await checkpoint()


def script(prompt: str) -> list[list[_Directive]]:
    """The steps of the script in `prompt`; none when it holds no directive."""
    steps: list[list[_Directive]] = []
    for line in prompt.splitlines():
        if found := _DIRECTIVE.fullmatch(line):
            directive = _Directive(" ".join(found[1].split()), found[2] or "")
            after_calls = bool(steps) and steps[-1][-1].verb.endswith("call")
            if not steps or (after_calls and directive.verb != "also call"):
                steps.append([])
            steps[-1].append(directive)
    return steps


def _place(messages: Sequence[Message]) -> tuple[str, int, list[ToolResult]]:
    """The last user message, the number of answers since, and the results after the last of them."""
    position = 0
    results: list[ToolResult] = []
    for message in reversed(messages):
        match message:
            case UserMessage(text):
                return text, position, results
            case AssistantMessage():
                position += 1
            case ToolResult() if position == 0:
                results.append(message)
    return "", position, results


def _no_script() -> ProviderFailed:
    message = (
        "No model is configured: give `--model <provider>/<model>`, or run `hames config set model "
        "<provider>/<model>`; for a server of your own also set providers.compatible.baseUrl. This is the offline "
        f"interpreter, which understands nothing and plays scripts, one directive a line: {', '.join(DIRECTIVES)}."
    )
    return _failed(message, kind="model_unavailable")


def _failed(message: str, *, kind: ErrorKind = "model_gateway") -> ProviderFailed:
    return ProviderFailed(kind, message, boundary="model_gateway", retryable=False, phase="stream")


def _timeout(phase: str, limit_ms: int) -> ProviderFailed:
    message = f"The script of the offline interpreter took longer than {limit_ms} ms."
    return ProviderFailed("model_gateway", message, boundary="model_gateway", phase=phase, limitMs=limit_ms)
