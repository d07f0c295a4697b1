"""Tool calls that come in fragments, put together: by index, then by id, then by order.

Servers differ: they repeat the id or give it once, late or never; they send the index as null, or as 0 for every
call; they repeat the name, or begin with a placeholder `{}`. The rules that hold over all of them:

Rule 1: a call begins with a name. A fragment without one goes on with a call that is known.
Rule 2: two ids are two calls, unless the second comes without a name: some servers make up an id a fragment.
Rule 3: no text is dropped; a call that never gets a name is an error, never nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hames.core.conversation import CallDelta, Part, ToolCall
from hames.providers.json_end import ObjectEnd
from hames.providers.request import arguments_json
from hames.providers.surrogates import PairJoiner, without_lone_escapes, without_surrogates

_PLACEHOLDER: Final = "{}"
"""What some servers send for arguments before the first piece of them."""


class NamelessCall(ValueError):
    """A call ended without a name."""


@dataclass(slots=True)
class _Call:
    place: int
    pairs: PairJoiner
    provider_id: str = ""
    tool: str = ""
    pieces: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Arguments that are not given out yet: the name is not known, or they may be a placeholder."""
    _end: ObjectEnd = field(default_factory=ObjectEnd)
    _read: int = 0
    """So many of the pieces are known to `_end`."""

    def arguments(self) -> str:
        return "".join(self.pieces + self.waiting)

    def is_whole(self) -> bool:
        """Asked for each fragment where a server gives no ids, so none is read twice."""
        if self.waiting:
            return self.may_be_placeholder()
        for piece in self.pieces[self._read :]:
            self._end.feed(piece)
        self._read = len(self.pieces)
        return self._end.is_whole

    def may_be_placeholder(self) -> bool:
        return len(self.waiting) <= len(_PLACEHOLDER) and "".join(self.waiting) == _PLACEHOLDER


class CallFragments:
    """The calls of one answer. `ours` gives the tool that the provider calls by a name."""

    def __init__(self, secret: str | None = None, ours: Callable[[str], str] = str) -> None:
        self._secret = secret
        self._ours = ours
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def add(self, fragment: Mapping[str, Any]) -> list[Part]:
        """The parts that one member of `tool_calls` gives."""
        function = fragment.get("function") or {}
        index, call_id, name = fragment.get("index"), fragment.get("id"), function.get("name")
        call_id = without_surrogates(call_id) if isinstance(call_id, str) else ""
        name = self._ours(without_surrogates(name)) if isinstance(name, str) else ""
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # some servers send the object itself
            arguments = arguments_json(arguments)
        call = self._find(index if isinstance(index, int) else None, call_id, name, arguments or "")
        if isinstance(index, int):
            self._by_index[index] = call
        if call_id:
            self._by_id[call_id] = call
            call.provider_id = call.provider_id or call_id
        call.tool = call.tool or name
        return _grow(call, call.pairs.join(arguments) if arguments else "")

    def end(self) -> list[Part]:
        """The parts that waited."""
        parts: list[Part] = []
        for call in self._calls:
            rest, call.waiting = "".join(call.waiting) + call.pairs.rest(), []
            if rest:
                call.pieces.append(rest)
                parts.append(CallDelta(call.place, call.tool, rest))
        return parts

    def calls(self) -> tuple[ToolCall, ...]:
        """All calls, in order of appearance, with ids that differ. Made after `end`.

        A call without arguments has `{}`.

        Raises:
            NamelessCall: a call has no name.
        """
        taken: set[str] = set()
        calls: list[ToolCall] = []
        for call in self._calls:
            if not call.tool:
                raise NamelessCall("a tool call without a name")
            provider_id, number = call.provider_id, call.place
            while not provider_id or provider_id in taken:
                provider_id, number = f"call_{number}", number + len(self._calls)
            taken.add(provider_id)
            arguments = without_lone_escapes(call.arguments())
            calls.append(ToolCall("", provider_id, call.tool, arguments if arguments.strip() else "{}"))
        return tuple(calls)

    def _find(self, index: int | None, call_id: str, name: str, arguments: str) -> _Call:
        found = None if index is None else self._by_index.get(index)
        if call_id and (found.provider_id != call_id if found else index is None or not name):
            found = self._by_id.get(call_id, found)
        if found is None and self._calls and (not name or (index is None and not call_id)):
            found = self._calls[-1]
        if found is not None and _begins_another(found, call_id, name, arguments):
            found = None
        if found is None:
            found = _Call(len(self._calls), pairs=PairJoiner(self._secret))
            self._calls.append(found)
        return found


def _begins_another(call: _Call, call_id: str, name: str, arguments: str) -> bool:
    if not name:
        return False
    if call_id and call.provider_id:
        return call_id != call.provider_id
    # Without ids to tell them apart, the same name may be a repetition as long as the call is not whole.
    return bool(call.tool) and (name != call.tool or (bool(arguments) and call.is_whole()))


def _grow(call: _Call, piece: str) -> list[Part]:
    if piece:
        if piece.lstrip().startswith("{") and call.may_be_placeholder():
            call.waiting = []
        call.waiting.append(piece)
    if not call.tool or not call.waiting or (not call.pieces and call.may_be_placeholder()):
        return []
    piece, call.waiting = "".join(call.waiting), []
    call.pieces.append(piece)
    return [CallDelta(call.place, call.tool, piece)]
