"""The conversation as the model sees it, free of any provider's dialect.

A provider adapter turns a `ModelRequest` into its own body and its answer into parts and one `Reply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, assert_never

from hames.core.cost import Money
from hames.core.records import record

ARGUMENTS_DEPTH: Final = 32
"""Of objects and lists within each other in the arguments of a call: a provider that keeps them as protocol buffers has
three messages for each, and readers of those take 100 in all by default
(https://protobuf.dev/programming-guides/proto-limits)."""


@record
class Picture:
    """An image that is shown to the model. `artifact` stands for its bytes in digests and in what is printed."""

    artifact: str
    media_type: str
    _data: bytes = field(repr=False)

    @property
    def data(self) -> bytes:
        """The image itself."""
        return self._data


@record
class UserMessage:
    """What the caller said: slots in order, already framed by role. `text` names the images."""

    text: str
    images: tuple[Picture, ...] = ()


@record
class ToolCall:
    """A call the model asked for. `call_id` is ours, `provider_id` the provider's.

    `arguments` is the raw JSON text as the model wrote it; it may be invalid, or nested deeper than `ARGUMENTS_DEPTH`.
    """

    call_id: str
    provider_id: str
    tool: str
    arguments: str


@record
class AssistantMessage:
    """What the model said in one step. `text` and `calls` are never both empty.

    `parts` are provider-signed or provider-specific members of it: see `core/signed.py`.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)


@record
class ToolResult:
    """The one result of a call. `text` tells of the images."""

    call_id: str
    provider_id: str
    tool: str
    text: str
    is_error: bool = False
    images: tuple[Picture, ...] = ()


Message = UserMessage | AssistantMessage | ToolResult


@record
class ToolSpec:
    """A tool as the model is told of it. `parameters` is a JSON Schema (2020-12) of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


Effort = Literal["none", "minimal", "low", "medium", "high"]


@record
class ModelRequest:
    """One request to a model. `messages` is always sendable: see `history_faults`.

    `effort` is how much the model should think, None its own way. `max_output_tokens` bounds the answer, None as much
    as the model gives. `output_schema` is a JSON Schema that the text of the answer must fit. `cache_key` is the same
    for all requests that begin alike: a hint to whoever keeps prefixes.
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "none"] = "auto"
    effort: Effort | None = None
    max_output_tokens: int | None = None
    output_schema: Mapping[str, Any] | None = None
    cache_key: str | None = None


@record
class TextDelta:
    """More text of the answer. `text` never ends within a surrogate pair."""

    text: str


@record
class ReasoningDelta:
    """More of the model's visible reasoning."""

    text: str


@record
class CallDelta:
    """More of the arguments of the call at `index`; `tool` is known from the first part on."""

    index: int
    tool: str
    text: str


Part = TextDelta | ReasoningDelta | CallDelta

StopReason = Literal["stop", "tool_calls", "length", "content_filter", "pause", "interrupted", "other"]
"""Why an answer ended. `pause`: the provider wants the same conversation again, with this answer at its end.
`interrupted`: it could not go on, and may answer the same request later. `other`: nothing says that it is whole."""


@record
class Reply:
    """A whole answer. `calls` carry the provider's ids; the engine gives them ours.

    `usage` holds the counters as the provider reported them, by its own names, nested ones with dots
    (`prompt_tokens_details.cached_tokens`); absent stays absent (AH-USAGE-1). `cost` is what the provider says that the
    answer cost, None where it says nothing.
    """

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    stop: StopReason
    raw_stop: str | None
    usage: Mapping[str, int] | None
    model: str | None
    response_id: str | None
    parts: Mapping[str, Any] = field(default_factory=dict)
    cost: Money | None = None


def history_faults(messages: Sequence[Message], *, checked: int = 0) -> list[str]:
    """Why a provider would refuse `messages`; empty when it would not (invariant 5).

    The first `checked` were found good before, with a result for every call among them.

    Checked before every request: each call has exactly one result, results stand right after the message that
    asked, ids are unique within a message, nothing is empty, the first message is a user's, and every string
    is valid Unicode.
    """
    faults: list[str] = []
    if not messages or not isinstance(messages[0], UserMessage):
        faults.append("the first message is not a user's")
    open_calls: dict[str, str] = {}
    for place, message in enumerate(messages[checked:], checked):
        faults += [f"message {place}: {fault}" for fault in _faults(message, open_calls)]
    faults += [f"call {call} has no result" for call in open_calls]
    return faults


def _faults(message: Message, open_calls: dict[str, str]) -> list[str]:
    faults: list[str] = []
    match message:
        case ToolResult():
            if open_calls.pop(message.provider_id, None) is None:
                faults.append(f"a result for {message.provider_id!r}, which is not open")
            strings = [message.text]
        case UserMessage():
            faults += [f"call {call} has no result before the next message" for call in open_calls]
            open_calls.clear()
            if not message.text:
                faults.append("empty user message")
            strings = [message.text]
        case AssistantMessage():
            faults += [f"call {call} has no result before the next message" for call in open_calls]
            open_calls.clear()
            if not message.text and not message.calls:
                faults.append("empty assistant message")
            for call in message.calls:
                if not call.provider_id or call.provider_id in open_calls:
                    faults.append(f"call id {call.provider_id!r} is empty or repeated")
                open_calls[call.provider_id] = call.tool
            strings = [message.text, *(call.arguments for call in message.calls)]
        case _:
            assert_never(message)
    if any(not _is_unicode(text) for text in strings):
        faults.append("a lone surrogate")
    return faults


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
