"""What a caller holds while a store thread works: a result that comes later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from hames.protocol.errors import HamesError
from hames.threads import Signal, signal

T = TypeVar("T")


class Ticket(Generic[T]):
    """Settled once, in the event loop; may be waited for by any number of tasks, or by none."""

    __slots__ = ("_event", "_failure", "_result", "_settled")

    def __init__(self) -> None:
        self._settled = False
        self._failure: HamesError | None = None
        self._result: T | None = None
        self._event: Signal | None = None

    @property
    def settled(self) -> bool:
        """It has its result."""
        return self._settled

    @property
    def failure(self) -> HamesError | None:
        """Why there is no result, once that is known."""
        return self._failure

    def settle(self, outcome: T | HamesError) -> None:
        """Give it its result, or why there is none; a second one is not heard."""
        if self._settled:
            return
        self._settled = True
        if isinstance(outcome, HamesError):
            self._failure = outcome
        else:
            self._result = outcome
        if self._event is not None:
            self._event.set()

    async def wait(self) -> T:
        """The result. Cancelling the wait changes nothing about the work.

        Raises:
            Refused, HarnessFault: the work failed.
        """
        if not self._settled:
            if self._event is None:
                self._event = signal()
            await self._event.wait()
        if self._failure is not None:
            raise self._failure
        return self._result  # type: ignore[return-value]


class Job(NamedTuple):
    """Something for the writer to do within a transaction, given to `work`, and who waits for it. `facts_of`: it is a
    fact of this attempt, session and fence, which stands only behind the attempt's facts before it. `frees`: it makes
    room."""

    ticket: Ticket[Any]
    work: Callable[[Any], Any]
    weight_bytes: int = 512
    facts_of: tuple[str, int] | None = None
    frees: bool = False
