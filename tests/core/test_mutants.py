"""Whether the state machine would notice: hand-made faults in `decide` and `session`, each of which it must find.

A mutant is a replacement of text that occurs exactly once, compiled into a fresh module; nothing is patched.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from core.ledger import Core
from core.machine import Machine
from core.walk import walk
from hames.core import decide, session

WALKS = 400
"""Most mutants fall within the first ten walks; the hardest needs a hold, a join or a steer at the right moment."""

STEPS = 60


@dataclass(frozen=True)
class Mutant:
    """`fault`: what the changed source does wrong."""

    fault: str
    module: ModuleType
    before: str
    after: str


MUTANTS = (
    Mutant("a stale fence is not refused", decide, "command.fence != known.fence", "command.fence < 0"),
    Mutant("an attempt of an older fence goes on", decide, " or (fence is not None and turn.fence != fence)", ""),
    Mutant("any id counts as the running turn", decide, " or turn.turn_id != turn_id", ""),
    Mutant(
        "a cancel does not beat success",
        decide,
        'ending = replace(ending, status="cancelled", error=None)',
        "pass",
    ),
    Mutant("a cancel without intent is taken", decide, 'turn.cancel is None and ending.status == "cancelled"', "False"),
    Mutant("a steer does not put off completion", decide, "state.steers and turn.cancel is None:", "False:"),
    Mutant(
        "undelivered steers are forgotten", decide, '{"undelivered": list(state.steers)} if state.steers', "{} if 1"
    ),
    Mutant("joined turns are left without an end", decide, "for other in state.joined()", "for other in ()"),
    Mutant(
        "a joined turn ends after its host",
        decide,
        "terminals.append(_terminal(turn, ending,",
        "terminals.insert(0, _terminal(turn, ending,",
    ),
    Mutant("the terminal is written twice", decide, "(*drafts, *terminals)", "(*drafts, *terminals, terminals[-1])"),
    Mutant("a joined turn copies its host's failure", decide, 'if ending.status != "failed":', "if True:"),
    Mutant("a joined turn is forced with its host", decide, "forced=False, may_still_run=()", ""),
    Mutant(
        "a join crosses principals",
        decide,
        'turn.delivery == "join" and turn.by.get("principal") == host.by.get("principal")',
        'turn.delivery == "join"',
    ),
    Mutant(
        "everything queued joins",
        decide,
        'turn.delivery == "join" and turn.by',
        "turn.by",
    ),
    Mutant("a cancelled turn is joined", decide, "    if host.cancel is not None:\n", "    if False:\n"),
    Mutant("only the first steer is delivered", decide, "list(state.steers), ", "list(state.steers)[:1], "),
    Mutant("other content under a key is taken", decide, "before.digest != digest or", ""),
    Mutant("a submit answers a steer's key", decide, "or (before.steer_id is not None) != steer", ""),
    Mutant("an id is admitted twice", decide, 'raise Refused("turn_exists", turnId=command.turn_id)', "pass"),
    Mutant("a closed session admits turns", decide, "    _open(state)\n    busy =", "    busy ="),
    Mutant("the queue has no limit", decide, ">= command.queue_limit", ">= 10 + command.queue_limit"),
    Mutant("a held queue starts", decide, " or state.hold is not None or not state.queue:", " or not state.queue:"),
    Mutant("the newest turn starts first", decide, "state.turns[state.queue[0]]", "state.turns[state.queue[-1]]"),
    Mutant("an attempt starts twice", decide, "turn.fence == command.fence and command.previous is None", "False"),
    Mutant("attempts are not counted", decide, 'data["attempt"] = turn.attempt + 1', 'data["attempt"] = 1'),
    Mutant(
        "an attempt says what the one before left",
        decide,
        "(*_of_attempt(turn, command.drafts), draft)",
        "(draft, *_of_attempt(turn, command.drafts))",
    ),
    Mutant("settling needs an attempt", decide, "None if command.recovering else command.fence", "command.fence"),
    Mutant("an empty queue is held", decide, "turn.cancel is None and state.queue and", "turn.cancel is None and"),
    Mutant("a cancel holds nothing", decide, 'others = (Draft("queue.held"', 'others = () and (Draft("queue.held"'),
    Mutant("a hold is never lifted", decide, "() if state.hold is None else", "() if True else"),
    Mutant("drop takes one only", decide, "_cancelled(turn, cause, None))", "_cancelled(turn, cause, None)); break"),
    Mutant("a joined turn is cancelled by itself", decide, "if turn.host is not None:", "if False:"),
    Mutant("a cancel is recorded twice", decide, "() if turn.cancel is not None else (asked,)", "(asked,)"),
    Mutant("an ended turn is cancelled", decide, "    if turn.ended:\n", "    if False:\n"),
    Mutant(
        "a close leaves the running turn",
        decide,
        '"session_closed", "drop", None))\n    return',
        '"session_closed", "drop", None))[:-1]\n    return',
    ),
    Mutant("a close leaves what runs in the background", decide, "() if state.open_processes() else", "() if 0 else"),
    Mutant("a session that closes takes turns", decide, " or is_closing(state)", ""),
    Mutant("a process is forgotten with its start", session, '    "process.started": _process_started,\n', ""),
    Mutant("a cancelled turn is steered", decide, "turn is None or turn.cancel is not None:", "turn is None:"),
    Mutant(
        "a steer reaches another turn",
        decide,
        "command.expected is not None and command.expected != turn.turn_id",
        "False",
    ),
    Mutant("a running turn is updated", decide, 'if turn.status != "queued":', "if False:"),
    Mutant("the fence is not recorded", session, '        fence=event.data["fence"],\n', ""),
    Mutant(
        "the host runs on after its end",
        session,
        "running=None if was_running else state.running",
        "running=state.running",
    ),
    Mutant("steers outlive their turn", session, "steers=() if was_running else state.steers", "steers=state.steers"),
    Mutant(
        "an emptied queue stays held after an end",
        session,
        "        queue=queue,\n        hold=state.hold if queue else None,",
        "        queue=queue,\n        hold=state.hold,",
    ),
    Mutant("a started turn stays queued", session, "running=turn.turn_id, queue=queue,", "running=turn.turn_id,"),
    Mutant(
        "a joined turn stays queued",
        session,
        "queue=tuple(w for w in state.queue if w != turn.turn_id)",
        "queue=state.queue",
    ),
    Mutant("delivered steers are delivered again", session, "if steer not in given", "if True"),
    Mutant(
        "an update takes another place",
        session,
        '    return _with(state, replaced(turn, delivery=event.data.get("delivery", turn.delivery)))',
        "    return replaced(state, queue=state.queue[::-1])",
    ),
    Mutant("a file counts each time", session, "    if path in turn.files:\n        return state\n", ""),
    Mutant(
        "a wish for a shorter context is granted for ever",
        session,
        "replaced_at=event.seq, compact=None",
        "compact=state.compact",
    ),
    Mutant("what was composed is not found again", session, "composed_at=event.seq", "composed_at=0"),
    Mutant("a wish is noted twice", decide, "if state.compact is None else ()", ""),
    Mutant("the fold is of nothing", session, '"digest": state.digest()', '"digest": ""'),
)


def mutated(mutant: Mutant) -> Core:
    """The functions with one of their modules changed."""
    source = Path(str(mutant.module.__file__)).read_text(encoding="utf-8")
    assert source.count(mutant.before) == 1, f"{mutant.before!r} is not in {mutant.module.__name__} exactly once"
    copy: Any = ModuleType("mutant")
    sys.modules[copy.__name__] = copy  # dataclasses look their module up
    exec(compile(source.replace(mutant.before, mutant.after), "mutant", "exec"), copy.__dict__)
    return Core.of(copy, session) if mutant.module is decide else Core.of(decide, copy)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_the_machine_finds(mutant: Mutant) -> None:
    core = mutated(mutant)
    with pytest.raises((AssertionError, LookupError)):
        _walk_all(core, WALKS)


@pytest.mark.slow
def test_the_machine_finds_nothing_in_the_source() -> None:
    core = mutated(Mutant("none", decide, "def _end(", "def _end("))
    _walk_all(core, WALKS // 4)


def _walk_all(core: Core, walks: int) -> None:
    for seed in range(walks):
        walk(Machine(core), seed, steps=STEPS)
