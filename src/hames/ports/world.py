"""What the engine asks of everything else: equipment of a session, and who watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from hames.core.catalog import ModelFacts
from hames.core.cost import Prices
from hames.core.records import record
from hames.ports.provider import Provider
from hames.ports.sandbox import Processes, Sandbox
from hames.ports.store import Owner, Spool
from hames.ports.tools import Tool


class Output(Protocol):
    """What a background process writes, the newest bytes of it, on disk. Blocking, and quick: the bytes go to a cache.

    It outlives the process that writes it, and any process on this host may read it meanwhile.
    """

    @property
    def total_bytes(self) -> int:
        """All that was written, also what is not kept any more."""
        ...

    def write(self, data: bytes) -> None:
        """More of it. What the disk does not take is not kept, nor is anything before it; nobody is told."""
        ...

    def read(self, offset: int, length: int) -> tuple[int, bytes]:
        """At most `length` bytes from `offset` on, or from the oldest that is kept; and where they begin. Empty at the
        end."""
        ...

    def copy_to(self, spool: Spool) -> None:
        """Write all that is kept to `spool`.

        Raises:
            HarnessFault: as `Spool.write`; the output cannot be read.
        """
        ...

    def discard(self) -> None:
        """It is not needed any more."""
        ...


class Outputs(Protocol):
    """Where background processes of all sessions write."""

    def make(self, session_id: str, process_id: str) -> Output:
        """A place for one that is about to start.

        Raises:
            HarnessFault: `store_unavailable`.
        """
        ...

    def find(self, session_id: str, process_id: str) -> Output | None:
        """What a process of this host has there; None when there is nothing, or nothing any more."""
        ...

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        ...


@record
class Mismatch:
    """A member of a snapshot that the world does not match: both values, as published."""

    member: str
    recorded: Any
    found: Any


@record
class Equipment:
    """What a session's attempts work with, made from its snapshot.

    `window_tokens`: what a request may have, with its answer where the vendor counts that in. `output_tokens`: the most
    that is asked of an answer, None as much as the provider gives; `answer_tokens`: the most that it can have all the
    same. `prices` are those of the model where it is asked. `cutoff` is up to when it was trained. `images`: whether it
    takes any. None of them: not known. `hide` takes the keys out of a text, which no model may be told.
    """

    provider: Provider
    model: str
    sandbox: Sandbox
    tools: Sequence[Tool]
    assurance: Mapping[str, Any]
    window_tokens: int | None = None
    output_tokens: int | None = None
    answer_tokens: int | None = None
    prices: Prices | None = None
    cutoff: str | None = None
    images: bool | None = None
    hide: Callable[[str], str] = str


class World(Protocol):
    """Where snapshots come from and are held against: the composition of adapters and configuration.

    `limits` are the operator's values of every limit in `core/limits.py`.
    """

    limits: Mapping[str, int]

    @property
    def processes(self) -> Processes:
        """The reaper of this process."""
        ...

    @property
    def outputs(self) -> Outputs:
        """Where background processes write."""
        ...

    async def unlock(self, model: str | None) -> None:
        """Have at hand what asking a model needs, by its name, its provider's, or the configured one: a key that comes
        from a program. `snapshot`, `route`, `mismatches`, `provider`, `facts` and `equip` wait for nothing, and so
        come after it; it costs nothing where there is no such thing.

        Raises:
            Refused: `credential_missing`, `invalid_config`.
        """
        ...

    async def prove(self, backend: str | None) -> None:
        """Find out what a sandbox, as named in `session/create` or a snapshot, guarantees here; of None, the configured
        one. Once for a process, and nothing where nothing is to be proved. `snapshot`, `mismatches` and `equip` come
        after it."""
        ...

    def snapshot(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """What a session may do, from the params of `session/create`; defaults are named.

        Raises:
            Refused: `invalid_config`, `path_outside_mounts`, `capability_unavailable`, `credential_missing`,
                `containment_unavailable`.
        """
        ...

    def route(self, model: str) -> dict[str, Any]:
        """The route of a model by its name, as `snapshot` has it.

        Raises:
            Refused: `invalid_config`, `credential_missing`.
        """
        ...

    def mismatches(self, snapshot: Mapping[str, Any]) -> list[Mismatch]:
        """What of `snapshot` the world does not match now, before anything is sent anywhere (AH-INT-4)."""
        ...

    def provider(self, name: str | None) -> Provider:
        """A provider by name, or the configured one.

        Raises:
            Refused: `capability_unavailable`, `invalid_config`, `credential_missing`.
        """
        ...

    def facts(self, provider: str, model: str) -> ModelFacts | None:
        """What is known of a model of a provider by name, as it is configured; None where nothing is.

        Raises:
            Refused: as `provider` does; `invalid_config`: the operator's file of models.
        """
        ...

    async def prepare(self) -> None:
        """Start what must run before the first attempt: the reaper. Cheap, and again at once when it runs."""
        ...

    async def check(self, dependency: str, snapshot: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Whether `sandbox`, `provider` or `workspace` works now: `{status, why?, details?}`."""
        ...

    def equip(self, session_id: str, snapshot: Mapping[str, Any]) -> Equipment:
        """Open what `snapshot` names. Starts no model request.

        Raises:
            Refused, HarnessFault: it cannot be had.
        """
        ...

    async def aclose(self) -> None:
        """Close providers and processes."""
        ...


class Observer(Protocol):
    """Sees what this process does with sessions. No turn waits for it, and none fails with it."""

    def owned(self, session_id: str, owner: Owner | None) -> None:
        """Who runs a session, whenever that changes: called before this process starts turns of it."""
        ...

    async def aclose(self) -> None:
        """Hand over what was seen, within two seconds or so. The store is still open."""
        ...
