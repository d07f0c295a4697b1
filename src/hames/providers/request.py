"""What the bodies of all providers have in common, without I/O: names, ids, arguments and text that are taken.

Rule 1: what leaves here is valid for the provider, whatever a model or a caller wrote: a message that is refused
would be refused in every later request too.
Rule 2: equal histories give equal results, and what comes later changes nothing before it: providers keep a cache of
prefixes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

import orjson

from hames.core.conversation import ARGUMENTS_DEPTH, ToolCall, ToolSpec
from hames.core.signed import MOST_DEPTH
from hames.protocol.jsontext import is_deeper
from hames.providers.surrogates import without_lone_escapes, without_surrogates

EMPTY = "(empty)"
"""Stands for text that is blank: some providers refuse empty content, some also white space alone."""

SHOWN = "The images of the results above."
"""Said beside images of tool results, where a result takes only text."""

NAME_CHARS = 64
"""Of the name of a tool: the least that the providers allow."""

_EXACT: Final = 2**63
"""From here on, what was an integer may have come as a float that lost digits of it; beyond 2**64 all have."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_CHARS = 8
_KEY_CHARS = 64


def not_blank(text: str) -> str:
    """`text`, or `EMPTY` where it is blank."""
    return text if text.strip() else EMPTY


def arguments_text(raw: str) -> str:
    """`raw` when it is a JSON object that all take, else `{}`: the result of the call says what was wrong with it."""
    value, text = _parsed(raw)
    if value is None:
        text = without_lone_escapes(without_surrogates(raw))
        value, text = (None, text) if text == raw else _parsed(text)
    if not isinstance(value, dict):
        return "{}"
    brackets = text.count("[") + text.count("{")
    return "{}" if brackets > ARGUMENTS_DEPTH and is_deeper(value, ARGUMENTS_DEPTH) else text


def _parsed(text: str) -> tuple[Any, str]:
    try:
        return orjson.loads(text), text
    except orjson.JSONDecodeError:
        return None, text


def arguments_object(raw: str) -> dict[str, Any]:
    """As `arguments_text`, parsed."""
    parsed: dict[str, Any] = orjson.loads(arguments_text(raw))
    return parsed


def arguments_json(arguments: Mapping[str, Any]) -> str:
    """Arguments that a provider gave as an object, as the text of a call.

    Beyond the level at which the call is refused for its depth, nothing is kept: it could not be written.
    """
    if is_deeper(arguments, ARGUMENTS_DEPTH):
        arguments = _cut(arguments, ARGUMENTS_DEPTH + 1)
    try:
        return orjson.dumps(arguments).decode()
    except orjson.JSONEncodeError:
        return without_lone_escapes(json.dumps(arguments))


def _cut(value: Any, levels: int) -> Any:
    match value:
        case dict():
            return {name: _cut(item, levels - 1) for name, item in value.items()} if levels > 1 else {}
        case list():
            return [_cut(item, levels - 1) for item in value] if levels > 1 else []
        case _:
            return value


def keep_own(value: Any) -> Any | None:
    """A provider's own part of an answer as it can be kept and goes back verbatim; None where it cannot.

    It cannot when it is nested deeper than `MOST_DEPTH`, or holds a number that may have lost digits: an integer beyond
    64 bits is a float to most readers.
    """
    return None if is_deeper(value, MOST_DEPTH) or not _is_exact(value) else clean(value)


def _is_exact(value: Any) -> bool:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as members:
                waiting += members.values()
            case list() as items:
                waiting += items
            case float() as number if not abs(number) < _EXACT:
                return False
            case bool():
                pass
            case int() as number if not -_EXACT <= number < 2 * _EXACT:
                return False
    return True


def tool_name(name: str) -> str:
    """`name` in letters that every provider takes: a model may call a tool that does not exist, by any name."""
    return _NOT_IN_NAMES.sub("_", name)[:NAME_CHARS] or "unknown"


def short_key(cache_key: str) -> str:
    """A cache key as OpenAI, and who follows it, take one: of at most 64 characters."""
    return cache_key if len(cache_key) <= _KEY_CHARS else _digest(cache_key, 0)[:_KEY_CHARS]


def encoded(document: dict[str, Any]) -> bytes:
    """`document` as JSON in strict UTF-8."""
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        return orjson.dumps(clean(document))


def clean(value: Any) -> Any:
    """A JSON value whose strings are valid Unicode, its member names too."""
    match value:
        case str():
            return without_surrogates(value)
        case dict():
            return {clean(key): clean(item) for key, item in value.items()}
        case list() | tuple():
            return [clean(item) for item in value]
        case _:
            return value


class ToolNames:
    """The tools of one request by the names that a provider takes: no two alike, and back again.

    `form` gives a name that is taken, of at most `NAME_CHARS`, and leaves one alone that is.
    """

    def __init__(self, tools: Iterable[ToolSpec], form: Callable[[str], str] = tool_name) -> None:
        self._form = form
        self._sent: dict[str, str] = {}
        self._ours: dict[str, str] = {}
        # A name that needs no change is never taken from its owner by one that does.
        for tool in sorted(tools, key=lambda tool: form(tool.name) != tool.name):
            sent = form(tool.name)
            number = 0
            while sent in self._ours:
                sent = f"{sent[: NAME_CHARS - _DIGEST_CHARS - 1]}_{_digest(tool.name, number)[:_DIGEST_CHARS]}"
                number += 1
            self._sent[tool.name] = sent
            self._ours[sent] = tool.name

    def sent(self, name: str) -> str:
        """A tool's name as the provider takes it, also of a tool that is not on offer."""
        return self._sent.get(name) or self._form(name)

    def ours(self, name: str) -> str:
        """The tool that the provider calls `name`; `name` itself where it is none of ours."""
        return self._ours.get(name, name)


class CallIds:
    """The ids of the calls of one history as a provider takes them: of its form, each for one call alone.

    `form` is what the provider takes; of an id that is not like it, or that an earlier call has, `prefix` and the
    first `digits` of a digest are made. Give it the calls of each message in order, and results behind their calls.
    """

    def __init__(self, form: re.Pattern[str], prefix: str, *, digits: int) -> None:
        self._form = form
        self._prefix = prefix
        self._digits = digits
        self._taken: set[str] = set()
        self._open: dict[str, str] = {}
        self._tried: dict[str, int] = {}
        """Of each id that came more than once, or not in the form, the digests that are taken: a server may give the
        same one to all calls of a long conversation."""

    def of_calls(self, calls: Iterable[ToolCall]) -> list[str]:
        """The ids of one message's calls."""
        self._open = {call.provider_id: self._next(call.provider_id) for call in calls}
        return list(self._open.values())

    def of_result(self, provider_id: str) -> str:
        """The id of the call that a result answers."""
        return self._open[provider_id]

    def _next(self, provider_id: str) -> str:
        sent = provider_id
        if sent in self._taken or not self._form.fullmatch(sent):
            number = self._tried.get(provider_id, 0)
            while sent in self._taken or not self._form.fullmatch(sent):
                sent = f"{self._prefix}{_digest(provider_id, number)[: self._digits]}"
                number += 1
            self._tried[provider_id] = number
        self._taken.add(sent)
        return sent


def _digest(text: str, number: int) -> str:
    return sha256(f"{number} {without_surrogates(text)}".encode()).hexdigest()
