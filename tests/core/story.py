"""A log of one session told event by event to a `Conversation`."""

from __future__ import annotations

from typing import Any

from hames.core.context import Conversation
from hames.core.conversation import Message, history_faults
from hames.core.session import Event


class Story:
    """`messages` are checked to be sendable whenever they are looked at."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.seq = 0

    def tell(self, type_: str, turn_id: str | None = "t1", **data: Any) -> None:
        self.seq += 1
        self.conversation.apply(Event(self.seq, "time", type_, data, turn_id, None))

    def queue(self, turn_id: str, text: str, **data: Any) -> None:
        self.tell("turn.queued", turn_id, input=slots(text), **data)

    def start(self, turn_id: str, text: str, **data: Any) -> None:
        self.queue(turn_id, text, **data)
        self.tell("turn.started", turn_id, attempt=1)

    def step(self, text: str, *calls: str, turn_id: str = "t1", whole: bool = True) -> None:
        self.tell("step.started", turn_id, step=1)
        if text:
            self.tell("message.completed", turn_id, itemId=f"i{self.seq}", text=text, inContext=True)
        for call in calls:
            self.tell("tool.requested", turn_id, callId=call, providerCallId=f"p{call}", tool="read", arguments="{}")
        if whole:
            self.tell("step.completed", turn_id, step=1)

    def result(self, call: str, text: str = "text", outcome: str = "ok", **data: Any) -> None:
        self.tell("tool.completed", callId=call, tool="read", outcome=outcome, text=text, **data)

    @property
    def messages(self) -> tuple[Message, ...]:
        messages = self.conversation.messages()
        assert history_faults(messages) == []
        return messages

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]


def slots(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
