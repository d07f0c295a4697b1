"""Random commands on both stores at once: they answer alike, and what is stored is always the fold of the log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hames.core.commands import (
    Boundary,
    CancelTurn,
    CloseSession,
    Command,
    Draft,
    Ending,
    EndTurn,
    OpenSession,
    Record,
    ResumeQueue,
    SteerTurn,
    UpdateTurn,
)
from hames.ports import Committed, Lease, Store
from hames.protocol.errors import Refused
from store.play import BY, World, check_chain, chunk, completion, creation, folded, start, submission, whole

SESSIONS = st.sampled_from(["s-1", "s-2"])
TURNS = st.sampled_from([f"t-{n}" for n in range(6)])
KEYS = st.none() | st.sampled_from(["k-1", "k-2"])
DIGESTS = st.sampled_from(["one", "two"])
FENCES = st.integers(0, 3)


class Pair(RuleBasedStateMachine):
    """A store in memory and one on disk, each with two processes, given the same."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.portal: BlockingPortal = self.stack.enter_context(start_blocking_portal())
        directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.worlds = [World("memory", directory), World("sqlite", directory / "store")]
        self.stores = [[world.make(), world.make()] for world in self.worlds]
        for store in chain.from_iterable(self.stores):
            self.portal.call(store.open)
        self.fences = {"s-1": 0, "s-2": 0}

    def teardown(self) -> None:
        for store in chain.from_iterable(self.stores):
            self.portal.call(store.aclose)
        self.stack.close()

    def each(self, who: int, act: Callable[[Store], Any]) -> Any:
        """Do the same on both kinds of store, by process `who`; the one answer that both gave."""
        answers = [self.portal.call(act, pair[who]) for pair in self.stores]
        assert answers[0] == answers[1]
        return answers[0]

    def commit(self, who: int, session_id: str, make: Callable[[Store], Command]) -> Any:
        async def act(store: Store) -> Any:
            try:
                committed = await store.commit(session_id, make(store)).wait()
            except Refused as refused:
                return refused.kind, refused.details
            return _plain(committed)

        return self.each(who, act)

    who = st.integers(0, 1)

    @rule(who=who, session_id=SESSIONS, key=KEYS, digest=DIGESTS, turn=st.none() | TURNS)
    def create(self, who: int, session_id: str, key: str | None, digest: str, turn: str | None) -> None:
        first = None if turn is None else submission(turn, key=key)
        self.commit(
            who, session_id, lambda store: replace(creation(store, session_id, key=key, turn=first), digest=digest)
        )

    @rule(who=who, session_id=SESSIONS, turn=TURNS, key=KEYS, digest=DIGESTS, join=st.booleans())
    def submit(self, who: int, session_id: str, turn: str, key: str | None, digest: str, join: bool) -> None:
        command = replace(submission(turn, key=key, digest=digest), delivery="join" if join else "queue")
        self.commit(who, session_id, lambda _: command)

    @rule(who=who, session_id=SESSIONS, key=KEYS, digest=DIGESTS, steer=st.sampled_from(["st-1", "st-2"]))
    def steer(self, who: int, session_id: str, key: str | None, digest: str, steer: str) -> None:
        self.commit(who, session_id, lambda _: SteerTurn(steer, ({"text": "left"},), digest, BY, key=key))

    @rule(who=who, session_id=SESSIONS, turn=st.none() | TURNS, queue=st.sampled_from(["hold", "continue", "drop"]))
    def cancel(self, who: int, session_id: str, turn: str | None, queue: Any) -> None:
        self.commit(who, session_id, lambda _: CancelTurn(BY, turn, queue))

    @rule(who=who, session_id=SESSIONS, turn=TURNS)
    def update(self, who: int, session_id: str, turn: str) -> None:
        self.commit(who, session_id, lambda _: UpdateTurn(turn, BY, delivery="join"))

    @rule(who=who, session_id=SESSIONS, command=st.sampled_from([CloseSession(BY), OpenSession(BY), ResumeQueue(BY)]))
    def order(self, who: int, session_id: str, command: Command) -> None:
        self.commit(who, session_id, lambda _: command)

    @rule(who=who, session_id=SESSIONS, force=st.booleans())
    def claim(self, who: int, session_id: str, force: bool) -> None:
        async def act(store: Store) -> Any:
            try:
                answer = await store.claim(session_id, force=force)
            except Refused as refused:
                return refused.kind
            return answer if isinstance(answer, Lease) else (answer.mine, answer.alive, answer.stale)

        answer = self.each(who, act)
        if isinstance(answer, Lease):
            self.fences[session_id] = answer.fence

    @rule(who=who, session_id=SESSIONS)
    def release(self, who: int, session_id: str) -> None:
        async def act(store: Store) -> Any:
            try:
                await store.release(session_id)
            except Refused as refused:
                return refused.kind
            return None

        self.each(who, act)

    @rule(who=who, session_id=SESSIONS)
    def start_turn(self, who: int, session_id: str) -> None:
        self.commit(who, session_id, lambda _: start(self.fences[session_id]))

    @rule(who=who, session_id=SESSIONS, turn=TURNS, fence=st.none() | FENCES, kind=st.integers(0, 4))
    def attempt(self, who: int, session_id: str, turn: str, fence: int | None, kind: int) -> None:
        fence = self.fences[session_id] if fence is None else fence
        usage = Record(fence, turn, (Draft("usage.recorded", {"counters": {"in": 3}}), Draft("model.requested", {})))
        commands: list[Command] = [
            chunk(fence, turn, 0),
            usage,
            Boundary(fence, turn, 1),
            completion(fence, turn),
            EndTurn(fence, turn, Ending("failed", error={"kind": "internal"})),
        ]
        self.commit(who, session_id, lambda _: commands[kind])

    @precondition(lambda self: self.fences["s-1"] > 0)
    @rule(who=who)
    def reopen(self, who: int) -> None:
        for world, pair in zip(self.worlds, self.stores, strict=True):
            self.portal.call(pair[who].aclose)
            pair[who] = world.make()
            self.portal.call(pair[who].open)

    @invariant()
    def what_is_stored_is_the_fold_of_the_log(self) -> None:
        async def act(store: Store) -> Any:
            seen: list[Any] = []
            for session_id in ("s-1", "s-2"):
                try:
                    loaded = await store.load(session_id)
                except Refused:
                    continue
                entries = await whole(store, session_id)
                assert loaded.state == folded(session_id, entries)
                check_chain(session_id, (await store.read(session_id, limit=9999, max_bytes=2**24)).lines)
                turns, _ = await store.turns(session_id, before=None, limit=99, status=None)
                assert {turn.turn_id: turn for turn in turns if not turn.ended} == loaded.state.turns
                assert [turn.n for turn in turns] == list(range(loaded.state.count, 0, -1))
                seen.append((loaded.state.digest(), loaded.state.seq, [(turn.turn_id, turn.status) for turn in turns]))
            return seen

        self.each(0, act)


def _plain(committed: Committed) -> Any:
    """What must be equal, without what has a time in it."""
    events = [(event.seq, event.type, event.turn_id, event.attempt) for event in committed.events]
    seqs = [int(text.split(".")[0]) for text in (committed.cursor, committed.reply_cursor)]
    ended = None if committed.state.ended is None else committed.state.ended.turn_id
    return committed.state.digest(), committed.state.session_id, events, committed.reply, seqs, ended


TestPair = pytest.mark.slow(Pair.TestCase)
TestPair.settings = settings(max_examples=settings().max_examples // 4, stateful_step_count=30, deadline=None)
