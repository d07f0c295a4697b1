"""The conversation, folded from events (invariant 5).

Rule 1: whatever happened, `messages` gives a history without faults: a call without a result gets one, an
empty message is left out, what was interrupted is said.
Rule 2: what was sent once is sent again byte for byte, so prompt prefixes stay stable, until what goes beside the
conversation is composed anew: what was told of its changes goes with that (`core/composition.py`).
Rule 3: slots keep their roles: context and quoted text are delimited so that they cannot close their own
delimiter, and a role is never raised by what a text says (AH-INV-3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hames.core.artifacts import LOST, size_bytes
from hames.core.compaction import EARLIER, Group, Replacement
from hames.core.composition import Composition, shown_change
from hames.core.conversation import (
    Message,
    ToolCall,
    ToolResult,
)
from hames.core.entries import Answer, Said, add_to, round_of
from hames.core.framing import slot_text
from hames.core.limits import LIMITS
from hames.core.pictures import Pictures
from hames.core.plan import LONGEST_PERIOD, Progress
from hames.core.prefix import Prefix
from hames.core.repairs import counts
from hames.core.session import Event
from hames.core.usage import input_tokens

REPEATED = """\
[Your last steps made the same calls again and again, with the same results. Doing it once more will not help: try
another way, or say what keeps you from going on.]"""
ROUNDS = LONGEST_PERIOD * LIMITS["loopRepeats"].maximum
"""Rounds of calls that are remembered to find a loop."""


class Conversation:
    """The fold. `apply` events in order; `messages` and `progress` then stand at that event.

    With a `replacement` the first event is the one that it says to read from, and what it left out is not told.
    """

    def __init__(self, pictures: Pictures | None = None, replacement: Replacement | None = None) -> None:
        self.seq = 0 if replacement is None else replacement.read_from - 1
        self.progress: Progress | None = None
        self.composition: Composition | None = None
        """What the model is told beside it; given from outside where its event is before the first."""
        self._replacement = replacement
        self._entries: list[Said | Answer] = []
        if replacement is not None:
            self._entries.append(Said(0, 0, replacement.text, ""))
        self.pictures = pictures or Pictures()
        self.repairs_told: Mapping[str, int] = {}
        """What the log tells of what is not sent as it was said: see `core/repairs.py`."""
        self._inputs: dict[str, tuple[int, Sequence[Mapping[str, Any]]]] = {}
        self._instructions: dict[str, str] = {}
        self._steers: dict[str, tuple[int, Sequence[Mapping[str, Any]]]] = {}
        self._answer: Answer | None = None
        self._calls: dict[str, Answer] = {}
        self._notes: list[tuple[int, str]] = []
        self._settled: list[Message] = []
        self._settled_entries = 0
        self.tokens_per_estimate = 1.0
        """What the provider counted of the last request that it answered, against what was estimated of it."""
        self._estimated = self._counted = 0
        self.prefix = Prefix()
        """Of the messages that can no longer change."""

    def apply(self, event: Event) -> None:
        """Fold `event`; types that are not of the conversation only move `seq`."""
        self.seq = event.seq
        handle = _HANDLERS.get(event.type)
        if handle is not None:
            handle(self, event)

    def apply_all(self, events: Iterable[Event]) -> None:
        """Fold `events` in order."""
        for event in events:
            self.apply(event)

    def messages(self) -> tuple[Message, ...]:
        """The history, sendable: see `history_faults`."""
        messages = self._settled[:]
        for entry in self._entries[self._settled_entries :]:
            add_to(messages, entry)
        return tuple(messages)

    def groups(self) -> list[Group]:
        """The history in pieces that may be left out, oldest first; see `core/compaction.py`."""
        groups: list[Group] = []
        for entry in self._entries:
            messages: list[Message] = []
            add_to(messages, entry)
            if not messages:
                continue
            if isinstance(entry, Answer):
                is_whole = entry is not self._answer or (self._is_asked and len(entry.results) == len(entry.calls))
                groups.append(Group(entry.seq, entry.seq, False, entry.turn_id, tuple(messages), is_whole))
                continue
            from_seq = entry.from_seq
            if groups and groups[-1].seq == entry.seq:  # several steers that were delivered at once
                before = groups.pop()
                messages, from_seq = [*before.messages, *messages], min(before.from_seq, from_seq)
            is_said = entry.seq > 0 and not (entry.is_change or entry.is_note)
            groups.append(Group(entry.seq, from_seq, is_said, entry.turn_id, tuple(messages), is_whole=True))
        return groups

    @property
    def is_paused(self) -> bool:
        """It ends with an answer that asks for nothing: the provider goes on with it, and nothing may stand behind."""
        for entry in reversed(self._entries):
            if isinstance(entry, Said) and entry.text:
                return False
            if isinstance(entry, Answer) and (entry.calls or entry.text.strip()):
                return not entry.calls
        return False

    @property
    def _is_asked(self) -> bool:
        """The answer in the making is whole, save for results."""
        return self.progress is None or self.progress.phase != "asked"

    @property
    def kept_from(self) -> int:
        """That of the cut which this conversation stands behind; 0 for none."""
        return 0 if self._replacement is None else self._replacement.kept_from

    def needed_from(self) -> int:
        """The first event that what is still to be said needs: inputs, steers and notes that wait, and the running
        turn, whose progress is told from its beginning."""
        waiting = [seq for seq, _ in (*self._inputs.values(), *self._steers.values(), *self._notes)]
        if self.progress is not None:
            waiting.append(self.progress.seq)
        return min([self.seq + 1, *waiting])

    def settle(self) -> int:
        """Keep the messages that can no longer change, so that the next request costs only what is new.

        Returns how many they are: all up to the newest answer that is whole and has been answered by something.
        """
        for place in range(len(self._entries) - 1, self._settled_entries - 1, -1):
            entry, behind = self._entries[place], self._entries[place + 1 : place + 2]
            if isinstance(entry, Said) or entry is self._answer or len(entry.results) < len(entry.calls):
                continue
            # After a pause an answer grows by the one behind it.
            if entry.calls or (behind and isinstance(behind[0], Said)):
                entries, self._entries = self._entries, self._entries[: place + 1]
                self._settled = list(self.messages())
                self._entries, self._settled_entries = entries, place + 1
                self.prefix.grow(self._settled)
                break
        return len(self._settled)

    def progress_open(self) -> dict[str, ToolCall]:
        """Calls of the running turn that have no result, in order."""
        return {} if self.progress is None else dict(self.progress.open)

    # One handler an event type; each is told of what happened and changes nothing else.

    def _on_queued(self, event: Event) -> None:
        turn_id = event.turn_id or ""
        self._inputs[turn_id] = event.seq, event.data["input"]
        if "instructions" in event.data:
            self._instructions[turn_id] = event.data["instructions"]

    def _on_updated(self, event: Event) -> None:
        turn_id = event.turn_id or ""
        if "input" in event.data and turn_id in self._inputs:
            self._inputs[turn_id] = self._inputs[turn_id][0], event.data["input"]

    def _on_started(self, event: Event) -> None:
        turn_id = event.turn_id or ""
        if self.progress is None or self.progress.turn_id != turn_id:
            asked = self._inputs.pop(turn_id, (event.seq, ()))
            self.progress = Progress(turn_id, instructions=self._instructions.pop(turn_id, None), seq=asked[0])
            self._say(event, turn_id, *asked)
        self.progress.attempt = event.data["attempt"]
        if self.progress.phase == "asked":
            self.progress.phase = "ask"

    def _on_joined(self, event: Event) -> None:
        self._say(event, event.data["hostTurnId"], *self._inputs.pop(event.turn_id or "", (event.seq, ())))

    def _on_steered(self, event: Event) -> None:
        self._steers[event.data["steerId"]] = event.seq, event.data["input"]

    def _on_delivered(self, event: Event) -> None:
        for steer in event.data["steerIds"]:
            self._say(event, event.turn_id or "", *self._steers.pop(steer, (event.seq, ())))

    def _on_step(self, event: Event) -> None:
        if self.progress is None:
            return
        self.progress.phase = "asked"
        if event.data.get("fallback"):
            self.progress.fallback = True
        else:
            self.progress.steps += 1
        self._answer = None

    def _on_chunk(self, event: Event) -> None:
        if self.progress is not None:
            item, kind = event.data["itemId"], event.type.partition(".")[0]
            self.progress.partial[item] = (kind, self.progress.partial.get(item, ("", ""))[1] + event.data["text"])

    def _on_message(self, event: Event) -> None:
        size = size_bytes(event.data["text"])
        if self.progress is not None:
            self.progress.output_bytes += size
            self.progress.partial.pop(event.data["itemId"], None)
        if not event.data["inContext"]:
            return
        answer = self._answering(event)
        answer.text += event.data["text"]
        answer.is_maimed |= LOST in event.data
        if self.progress is not None:
            self.progress.text = answer.text

    def _on_reasoning(self, event: Event) -> None:
        if self.progress is not None:
            self.progress.output_bytes += size_bytes(event.data["text"])
            self.progress.partial.pop(event.data["itemId"], None)

    def _on_requested(self, event: Event) -> None:
        data = event.data
        call = ToolCall(data["callId"], data["providerCallId"], data["tool"], data["arguments"])
        answer = self._answering(event)
        answer.calls.append(call)
        answer.is_maimed |= LOST in data
        self._calls[call.call_id] = answer
        if self.progress is not None:
            self.progress.open[call.call_id] = call
            self.progress.tool_calls += 1

    def _on_step_completed(self, event: Event) -> None:
        if self._counted and self._estimated:
            self.tokens_per_estimate = min(4.0, max(0.5, self._counted / self._estimated))
        if self._answer is not None:
            # What is signed over a text that is lost would be refused beside another.
            self._answer.parts = {} if self._answer.is_maimed else event.data.get("parts", {})
        if self.progress is not None:
            paused = event.data.get("stopReason") == "pause"
            self.progress.phase = "called" if self.progress.open else "ask" if paused else "final"

    def _on_tool_started(self, event: Event) -> None:
        if self.progress is not None and event.data["callId"] in self.progress.open:
            self.progress.started[event.data["callId"]] = event.data["effect"]

    def _on_tool_completed(self, event: Event) -> None:
        data = event.data
        answer = self._calls.pop(data["callId"], None)
        if answer is None:
            return
        call = next(call for call in answer.calls if call.call_id == data["callId"])
        failed = data["outcome"] != "ok"
        shown = data.get("images", ()) if answer.is_kept else ()
        notes, images = self.pictures.said([{"type": "image", **image} for image in shown])
        text = "\n".join([data["text"] or "(no output)", *(note["text"] for note in notes)])
        answer.results[call.call_id] = ToolResult(
            call.call_id, call.provider_id, call.tool, text, is_error=failed, images=images
        )
        if self.progress is not None:
            self.progress.open.pop(call.call_id, None)
            self.progress.started.pop(call.call_id, None)
            self.progress.output_bytes += size_bytes(data["text"])
            # One that ran and met a limit of commands is for the model to mend.
            ends = data["outcome"] == "not_run" and (data.get("error") or {}).get("kind") == "limit_exceeded"
            self.progress.cut = self.progress.cut or ends
            if not self.progress.open and self.progress.phase == "called":
                self.progress.phase = "ask"
                self.progress.rounds = [*self.progress.rounds[1 - ROUNDS :], round_of(answer)]

    def _on_used(self, event: Event) -> None:
        self._counted = input_tokens(event.data["counters"]) or 0
        if self.progress is not None:
            self.progress.spending = self.progress.spending.told(event.data)

    def _on_model_requested(self, event: Event) -> None:
        self._estimated, self._counted = event.data.get("estimatedTokens", 0), 0
        if self.progress is not None:
            self.progress.spending = self.progress.spending.asked(event.data)

    def _on_retried(self, event: Event) -> None:
        if self.progress is not None:
            self.progress.spending = self.progress.spending.retried(event.data)

    def _on_loop(self, event: Event) -> None:
        if self.progress is not None:
            self.progress.rounds = []
            self.progress.loops += 1
        if self._keeps(event.seq):
            self._entries.append(Said(event.seq, event.seq, REPEATED, event.turn_id or "", is_note=True))

    def _on_recovered(self, event: Event) -> None:
        if event.data.get("action") == "cut" and self.progress is not None:
            self.progress.severed = True

    def _on_ended(self, event: Event) -> None:
        self._inputs.pop(event.turn_id or "", None)
        self._instructions.pop(event.turn_id or "", None)
        runs = self.progress is not None and self.progress.turn_id == event.turn_id
        # What ended without an attempt never ran, or had joined another. Where the log is told from its midst, the
        # start of what ends may not be told.
        if not runs and event.attempt is None:
            return
        self.progress = None
        self._answer = None
        self._steers.clear()
        if event.type == "turn.cancelled":
            self._notes.append((event.seq, "[The turn above was cancelled before it finished.]"))
        elif event.type == "turn.failed":
            self._notes.append((event.seq, f"[The turn above failed: {event.data['error']['kind']}.]"))

    def _say(self, event: Event, turn_id: str, from_seq: int, slots: Sequence[Mapping[str, Any]]) -> None:
        notes, self._notes = self._notes, []
        if self._keeps(event.seq):
            slots, images = self.pictures.said(slots)
            said = slot_text(slots)
            if said and self._replacement is not None and self._replacement.is_earlier(event.seq, turn_id):
                said = f"{EARLIER}\n{said}"
            text = "\n\n".join(part for part in (*(note for _, note in notes), said) if part)
            first = min([from_seq, *(seq for seq, _ in notes)])
            self._entries.append(Said(event.seq, first, text, turn_id, images))
        self._answer = None
        if self.progress is not None and self.progress.phase == "final":
            self.progress.phase = "ask"

    def _on_composed(self, event: Event) -> None:
        self.composition = Composition.of(event)
        kept = [entry for entry in self._entries if not (isinstance(entry, Said) and entry.is_change)]
        if len(kept) < len(self._entries):
            self._entries, self._settled, self._settled_entries = kept, [], 0
            self.prefix = Prefix()

    def _on_resource(self, event: Event) -> None:
        if self.composition is not None and self._keeps(event.seq):
            self.composition = self.composition.after(event.data)
            text, turn_id = shown_change(event.data), event.turn_id or ""
            self._entries.append(Said(event.seq, event.seq, text, turn_id, is_change=True))

    def _on_repaired(self, event: Event) -> None:
        self.repairs_told = counts(event.data)

    def _answering(self, event: Event) -> Answer:
        if self._answer is None:
            self._answer = Answer(event.seq, event.turn_id or "", self._keeps(event.seq))
            if self._answer.is_kept:
                self._entries.append(self._answer)
        return self._answer

    def _keeps(self, seq: int) -> bool:
        return self._replacement is None or self._replacement.keeps(seq)


_HANDLERS = {
    "turn.queued": Conversation._on_queued,
    "turn.updated": Conversation._on_updated,
    "turn.started": Conversation._on_started,
    "turn.joined": Conversation._on_joined,
    "turn.steered": Conversation._on_steered,
    "steer.delivered": Conversation._on_delivered,
    "step.started": Conversation._on_step,
    "message.chunk": Conversation._on_chunk,
    "reasoning.chunk": Conversation._on_chunk,
    "message.completed": Conversation._on_message,
    "reasoning.completed": Conversation._on_reasoning,
    "tool.requested": Conversation._on_requested,
    "step.completed": Conversation._on_step_completed,
    "tool.started": Conversation._on_tool_started,
    "tool.completed": Conversation._on_tool_completed,
    "loop.detected": Conversation._on_loop,
    "model.requested": Conversation._on_model_requested,
    "model.retried": Conversation._on_retried,
    "usage.recorded": Conversation._on_used,
    "turn.completed": Conversation._on_ended,
    "turn.failed": Conversation._on_ended,
    "turn.cancelled": Conversation._on_ended,
    "log.recovered": Conversation._on_recovered,
    "context.composed": Conversation._on_composed,
    "resources.changed": Conversation._on_resource,
    "context.repaired": Conversation._on_repaired,
}
