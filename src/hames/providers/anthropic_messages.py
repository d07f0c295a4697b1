"""The messages of a request to Anthropic's Messages API, without I/O: `encode_messages`.

Rule 1: turns of the user and of the assistant alternate, the user's come first and last; neighbours are one turn. Calls
are followed by a turn that begins with a result for each.
Rule 2: no block is blank, and no turn of the assistant ends in thinking.
Rule 3: thinking goes back as it came, whole and in order, to the model that thought it, and only in a request in which
that model thinks; else the text and the calls go back alone. Blank text between signed parts is left out: it is
refused, and it is not signed.
Rule 4: what comes later changes no block before it, but for one case: see `MANY_IMAGES`.

Sources: https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/docs/build-with-claude/vision,
https://platform.claude.com/docs/en/build-with-claude/extended-thinking (preserving thinking blocks).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final, assert_never

import orjson

from hames.core.conversation import AssistantMessage, ModelRequest, Picture, ToolCall, ToolResult, UserMessage
from hames.core.images import measure
from hames.core.signed import CallItem, Item, OwnItem, TextItem, signed_items
from hames.providers.request import EMPTY, SHOWN, CallIds, ToolNames, arguments_text, not_blank

DIALECT: Final = "anthropic"

MANY_IMAGES = 20
"""With more images in a request, none may be wider or higher than `MANY_IMAGES_PIXELS`: larger ones are left out."""

MANY_IMAGES_PIXELS = 2_000

LEFT_OUT = "(an image of {width} x {height} pixels was left out: too large among so many)"

GO_ON = "Go on."
"""The last turn, where the conversation ends with the assistant's: most models refuse to continue one."""

_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""`String should match pattern '^[a-zA-Z0-9_-]+$'`; the length is a bound of our own. Ids are refused a second time."""

_CALL_ID_DIGITS = 24


def encode_messages(request: ModelRequest, names: ToolNames, *, thinks: bool) -> list[dict[str, Any]]:
    """The turns of `request`. `thinks`: the model is asked to think, and is given what it thought before."""
    turns = _Turns(request, names, thinks=thinks)
    for message in request.messages:
        match message:
            case UserMessage(text, images):
                turns.add_user(text, images)
            case ToolResult():
                turns.add_result(message)
            case AssistantMessage():
                turns.add_answer(message)
            case _:
                assert_never(message)
    return turns.end()


def begins_with_thinking(request: ModelRequest) -> bool:
    """Whether the turn that the model is to go on with, if there is one, began with its own thinking.

    Only what the user says at another place than behind results ends a turn of the model: results go on with it.
    """
    first: AssistantMessage | None = None
    behind_results = False
    for message in request.messages:
        match message:
            case ToolResult():
                behind_results = True
            case UserMessage():
                first = first if behind_results else None
            case AssistantMessage():
                first, behind_results = first or message, False
    if first is None:
        return True
    items = signed_items(first, DIALECT, request.model) or []
    shown = [item for item in items if not isinstance(item, TextItem) or item.text.strip()]
    return bool(shown) and isinstance(shown[0], OwnItem)


class _Turns:
    """The turns of one request, in the making."""

    def __init__(self, request: ModelRequest, names: ToolNames, *, thinks: bool) -> None:
        self._model = request.model
        self._names = names
        self._thinks = thinks
        self._ids = CallIds(_CALL_ID, "toolu_", digits=_CALL_ID_DIGITS)
        self._has_many_images = _count_images(request) > MANY_IMAGES
        self._turns: list[dict[str, Any]] = []
        self._behind: list[Picture] = []
        """Images that wait for the last result of their step."""

    def add_user(self, text: str, images: Iterable[Picture]) -> None:
        self._show_behind()
        blocks = [self._image(each) for each in images]
        # The vendor advises to put images before the text about them.
        self._add("user", [*blocks, _text(SHOWN if blocks and not text.strip() else not_blank(text))])

    def add_result(self, result: ToolResult) -> None:
        content: Any = not_blank(result.text)
        block = {"type": "tool_result", "tool_use_id": self._ids.of_result(result.provider_id)}
        if result.is_error:
            self._behind += result.images  # an error may hold only text
        elif result.images:
            content = [_text(content), *(self._image(each) for each in result.images)]
        self._add("user", [{**block, "content": content, **({"is_error": True} if result.is_error else {})}])

    def add_answer(self, message: AssistantMessage) -> None:
        self._show_behind()
        ids = iter(self._ids.of_calls(message.calls))
        items: list[Item] | None = signed_items(message, DIALECT, self._model) if self._thinks else None
        if items is None:
            items = [TextItem(message.text), *(CallItem(call) for call in message.calls)]
        blocks: list[dict[str, Any]] = []
        for item in items:
            match item:
                case TextItem(text):
                    blocks += [_text(text)] if text.strip() else []
                case CallItem(call):
                    blocks.append(self._call(call, next(ids)))
                case OwnItem(value):
                    blocks.append(dict(value))
                case _:
                    assert_never(item)
        if not blocks or blocks[-1]["type"] not in ("text", "tool_use"):
            blocks.append(_text(EMPTY))
        self._add("assistant", blocks)

    def end(self) -> list[dict[str, Any]]:
        """All turns."""
        self._show_behind()
        if self._turns and self._turns[-1]["role"] == "assistant":
            self._add("user", [_text(GO_ON)])
        return self._turns

    def _add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["content"] += blocks
        else:
            self._turns.append({"role": role, "content": blocks})

    def _show_behind(self) -> None:
        if self._behind:
            self._add("user", [*(self._image(each) for each in self._behind), _text(SHOWN)])
            self._behind = []

    def _call(self, call: ToolCall, call_id: str) -> dict[str, Any]:
        # As the model wrote them: parsed and written anew, a long number would be another.
        arguments = orjson.Fragment(arguments_text(call.arguments))
        return {"type": "tool_use", "id": call_id, "name": self._names.sent(call.tool), "input": arguments}

    def _image(self, picture: Picture) -> dict[str, Any]:
        if self._has_many_images:
            size = measure(picture.data)
            if size is not None and max(size.width, size.height) > MANY_IMAGES_PIXELS:
                return _text(LEFT_OUT.format(width=size.width, height=size.height))
        data = b64encode(picture.data).decode()
        return {"type": "image", "source": {"type": "base64", "media_type": picture.media_type, "data": data}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _count_images(request: ModelRequest) -> int:
    return sum(len(message.images) for message in request.messages if not isinstance(message, AssistantMessage))
