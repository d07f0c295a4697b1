"""The life of a background process, without I/O: what may happen to one, what did, and how it is published.

    started -> (stop requested) -> exited

Rule 1: a process is in the log before it runs, and its end only when nothing of it runs.
Rule 2: it is owned by the session: a turn that ends leaves it, a session that closes does not close before it ended.
Rule 3: of those that ended, the newest are folded; the log has all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hames.core.commands import By, Decision, Draft, Known, ProcessCommand, StartProcess, StopProcess
from hames.core.records import replaced
from hames.core.state import ENDED_PROCESSES, Process, State
from hames.protocol.errors import Refused

CLOSED = "session_closed"
"""The cause of a stop that is for a close of the session."""


def decide_process(state: State, command: ProcessCommand, known: Known) -> Decision:
    """What follows from `command`.

    Raises:
        Refused: `lease_lost`, `no_active_turn`, `process_not_found`.
    """
    if not isinstance(command, StopProcess) and command.fence != known.fence:
        raise Refused("lease_lost", "Another process runs this session now.", fence=command.fence, current=known.fence)
    if isinstance(command, StartProcess):
        return _start(state, command)
    process = find(state, command.process_id)
    if process.ended:
        return Decision()
    if isinstance(command, StopProcess):
        return Decision(() if process.stop is not None else (_stop(process, command.by, "client"),))
    data = {"processId": process.process_id, **command.data, "originTurnId": process.turn_id}
    return Decision((Draft("process.exited", data),))


def _start(state: State, command: StartProcess) -> Decision:
    turn = state.active
    if turn is None or turn.turn_id != command.turn_id or turn.fence != command.fence:
        raise Refused("lease_lost", f"This attempt of turn {command.turn_id} is over.", turnId=command.turn_id)
    if turn.cancel is not None:
        # Nothing of a turn begins behind a cancel that is durable.
        raise Refused("no_active_turn", f"Turn {turn.turn_id} is being cancelled.", turnId=turn.turn_id)
    data = {"processId": command.process_id, **command.data}
    return Decision((Draft("process.started", data, turn.turn_id, turn.attempt),))


def _stop(process: Process, by: By, cause: str) -> Draft:
    return Draft("process.stop_requested", {"processId": process.process_id, "by": by, "cause": cause})


def stop_all(state: State, by: By) -> tuple[Draft, ...]:
    """What a close asks of the processes that run."""
    return tuple(_stop(each, by, CLOSED) for each in state.open_processes() if (each.stop or {}).get("cause") != CLOSED)


def is_closing(state: State) -> bool:
    """The session closes as soon as its processes have ended."""
    return any((each.stop or {}).get("cause") == CLOSED for each in state.open_processes())


def find(state: State, process_id: str) -> Process:
    """A process by its id.

    Raises:
        Refused: `process_not_found`.
    """
    process = state.processes.get(process_id)
    if process is None:
        raise Refused("process_not_found", processId=process_id)
    return process


def started(
    processes: Mapping[str, Process], data: Mapping[str, Any], *, turn_id: str, time: str
) -> Mapping[str, Process]:
    """`processes` and the one that `process.started` tells of."""
    process = Process(
        process_id=data["processId"],
        turn_id=turn_id,
        call_id=data["callId"],
        command=data["command"],
        started_at=time,
        name=data.get("name"),
        reaper=data.get("reaper"),
    )
    return {**processes, process.process_id: process}


def stopping(processes: Mapping[str, Process], data: Mapping[str, Any], *, time: str) -> Mapping[str, Process]:
    """`processes` after `process.stop_requested`."""
    stop = {"by": data["by"], "at": time, "cause": data["cause"]}
    return _changed(processes, data["processId"], stop=stop)


def exited(processes: Mapping[str, Process], data: Mapping[str, Any], *, time: str) -> Mapping[str, Process]:
    """`processes` after `process.exited`: the newest to end stands last, and the oldest of those go."""
    process_id = data["processId"]
    told = {name: value for name, value in data.items() if name not in ("processId", "originTurnId")}
    after = dict(_changed(processes, process_id, exit=told, ended_at=time))
    if process_id in after:
        after[process_id] = after.pop(process_id)
    ended = [key for key, process in after.items() if process.ended]
    for key in ended[:-ENDED_PROCESSES]:
        del after[key]
    return after


def _changed(processes: Mapping[str, Process], process_id: str, **changes: Any) -> Mapping[str, Process]:
    # A repair may have cut its start away, and a later build may have folded more of them.
    if process_id not in processes:
        return processes
    return {**processes, process_id: replaced(processes[process_id], **changes)}


def process_view(
    process: Process, *, output_bytes: int | None, runner: Literal["local", "remote", "none"]
) -> dict[str, Any]:
    """A process as published. `output_bytes` is what it has written so far, where it runs."""
    status = "exited" if process.ended else "running" if process.stop is None else "stopping"
    view: dict[str, Any] = {
        "processId": process.process_id,
        "status": status,
        "runner": "none" if process.ended else runner,
        "command": process.command,
        "turnId": process.turn_id,
        "callId": process.call_id,
        "startedAt": process.started_at,
        "outputBytes": output_bytes or 0,
    }
    optional = {"name": process.name, "stopRequested": process.stop, "endedAt": process.ended_at}
    view |= {name: value for name, value in optional.items() if value is not None}
    return view if process.exit is None else {**view, **process.exit}
