"""A spawned `hames serve` and a client that sees every byte: what the end-to-end and crash tests drive.

Rule 1: stdout is cut at LF alone, and each line is a strict JSON-RPC frame or the test fails (`e2e.checks`).
Rule 2: threads read stdout and stderr all the time, so that no pipe fills, save where a test wants it full.
Rule 3: only processes of this driver are signalled, by their pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

from e2e.checks import Frame, check_frames, strict_frame
from e2e.processes import alive, compatible, descendants, environment, status_bytes
from e2e.wire import cut_headed, cut_lines, headed, line, said

__all__ = [
    "TIMEOUT_S",
    "CallFailed",
    "Server",
    "alive",
    "compatible",
    "descendants",
    "environment",
    "headed",
    "line",
    "said",
]

TIMEOUT_S = 30.0
"""No wait of a test is longer: a hang fails and does not block the run."""


class CallFailed(AssertionError):
    """A call that had to succeed was answered with an error."""

    def __init__(self, method: str, error: Mapping[str, Any]) -> None:
        self.error = error
        super().__init__(f"{method}: {error}")


class Server:
    """One process on pipes. `with Server(home) as server:` ends with end of input, exit code 0 and all frames checked.

    `env` is laid over `environment(home)`; `via` is a command that runs the one behind it. Frames are numbered from 0
    in the order they came.
    """

    def __init__(
        self,
        home: Path,
        *,
        env: Mapping[str, str | None] | None = None,
        args: Sequence[str] = (),
        cwd: Path | None = None,
        initialize: bool = True,
        framing: Literal["line", "header"] = "line",
        drain_stderr: bool = True,
        via: Sequence[str] = (),
    ) -> None:
        self.home = home
        self.framing = framing
        self.process = subprocess.Popen(
            [*via, sys.executable, "-m", "hames", "serve", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(home, env),
            cwd=cwd or home,
            bufsize=0,
        )
        self.frames: list[Frame] = []
        self.bytes_out = 0
        self.read_bytes = 1 << 16
        """How much is read at once; a small number and many frames are a slow reader."""
        self.faults: list[str] = []
        self.sent: dict[str | int, tuple[str, int]] = {}
        """By id: the method, and how many frames had come when it was sent."""
        self._changed = threading.Condition()
        self._reading = threading.Event()
        self._reading.set()
        self._answers: dict[str | int, Frame] = {}
        self._next_id = 0
        self._stderr = bytearray()
        self._eof = False
        self._threads = [threading.Thread(target=self._read, name="driver-stdout", daemon=True)]
        if drain_stderr:
            self._threads.append(threading.Thread(target=self._drain, name="driver-stderr", daemon=True))
        for thread in self._threads:
            thread.start()
        if initialize:
            self.initialize()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                code = self.stop()
                assert code == 0, f"exit code {code}; stderr: {self.stderr[-2000:]}"
                self.check()
        finally:
            self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    # --- out ------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Raw bytes. Blocks while the server takes none; a server that is gone is no error."""
        assert self.process.stdin is not None
        rest = memoryview(data)
        with contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[self.process.stdin.write(rest) or 0 :]

    def request(self, method: str, /, **params: Any) -> bytes:
        """The frame of a request with a fresh id, not sent yet; its answer is checked against the method's schema."""
        self._next_id += 1
        self.expect(self._next_id, method)
        frame = line(self._next_id, method, **params)
        return frame if self.framing == "line" else headed(frame[:-1])

    def expect(self, identifier: str | int, method: str) -> None:
        """Note that a request of this id is sent by `write`."""
        self.sent[identifier] = (method, len(self.frames))

    def send(self, method: str, /, **params: Any) -> int:
        """Send a request and do not wait; its id."""
        self.write(self.request(method, **params))
        return self._next_id

    def notify(self, method: str, /, **params: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    # --- in -------------------------------------------------------------------------------------------------

    def answer(self, identifier: str | int, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        """The whole response with this id, waited for."""
        response: dict[str, Any] = self.answer_frame(identifier, timeout).value
        return response

    def answer_frame(self, identifier: str | int, timeout: float = TIMEOUT_S) -> Frame:
        self.wait_until(lambda: identifier in self._answers, timeout, f"the answer to {identifier!r}")
        return self._answers[identifier]

    def answered(self, identifier: str | int) -> bool:
        return identifier in self._answers

    def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Send and wait: the whole response, result or error."""
        return self.answer(self.send(method, **params))

    def call(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Send and wait: the result.

        Raises:
            CallFailed: it was an error.
        """
        response = self.ask(method, **params)
        if "error" in response:
            raise CallFailed(method, response["error"])
        result: dict[str, Any] = response["result"]
        return result

    def refused(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Send and wait: the error; a result fails the test."""
        response = self.ask(method, **params)
        assert "error" in response, f"{method} {params!r:.300} was taken: {response!r:.300}"
        error: dict[str, Any] = response["error"]
        return error

    def exchange(self, data: bytes, *, answers: int = 1) -> list[dict[str, Any]]:
        """Write `data` and a `ping` behind it: the `answers` responses that come besides its answer, and no more."""
        start = len(self.frames)
        self._write_ping(data)

        def found() -> list[dict[str, Any]]:
            responses = [value for frame in self.frames[start:] for value in frame.responses]
            return [value for value in responses if not str(value["id"]).startswith("ping-")]

        self.wait_until(lambda: len(found()) >= answers, what=f"{answers} answers to {data[:120]!r}")
        self._write_ping(b"")
        seen = found()
        assert len(seen) == answers, seen
        return seen

    def _write_ping(self, before: bytes) -> None:
        self._next_id += 1
        identifier = f"ping-{self._next_id}"
        self.write(before + line(identifier, "ping"))
        assert self.answer(identifier)["result"] == {}

    def wait_for(
        self, predicate: Callable[[Frame], bool], *, start: int = 0, timeout: float = TIMEOUT_S, what: str = ""
    ) -> Frame:
        """The first frame from `start` on that fits, waited for. Each frame is looked at once."""
        at = start

        def found() -> bool:
            nonlocal at
            while at < len(self.frames):
                if predicate(self.frames[at]):
                    return True
                at += 1
            return False

        self.wait_until(found, timeout, what or "a frame that fits")
        return self.frames[at]

    def wait_until(self, condition: Callable[[], bool], timeout: float = TIMEOUT_S, what: str = "a condition") -> None:
        """Block until `condition`, looked at after each frame and at the end of stdout."""
        with self._changed:
            done = self._changed.wait_for(lambda: condition() or self._eof or bool(self.faults), timeout)
            if done and condition():
                return
        state = "stdout ended" if self._eof else f"not in {timeout} s"
        tail = [frame.raw[:200] for frame in self.frames[-3:]]
        raise AssertionError(f"{what}: {state}; faults {self.faults[:3]}; last {tail}; stderr {self.stderr[-1500:]!r}")

    def poll_until(self, condition: Callable[[], bool], timeout: float = TIMEOUT_S, what: str = "a condition") -> None:
        """Block until `condition`, which nothing tells of: it is looked at now and then."""
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not in {timeout} s; stderr {self.stderr[-1500:]!r}")
            time.sleep(0.02)

    def notifications(self, method: str | None = None, **params: Any) -> list[dict[str, Any]]:
        """The params of the notifications so far, of one method, with these members."""
        with self._changed:
            frames = list(self.frames)
        return [
            frame.value["params"]
            for frame in frames
            if "method" in frame.value
            and (method is None or frame.value["method"] == method)
            and all(frame.value["params"].get(name) == value for name, value in params.items())
        ]

    def events(self, session_id: str | None = None, type_: str | None = None) -> list[dict[str, Any]]:
        """The events so far, of all subscriptions, in the order they came."""
        return [
            params["event"]
            for params in self.notifications("event")
            if session_id in (None, params["event"]["sessionId"]) and type_ in (None, params["event"]["type"])
        ]

    def wait_event(self, type_: str, *, start: int = 0, session_id: str | None = None, **data: Any) -> dict[str, Any]:
        """The first event of this type from frame `start` on, with these members in its data, waited for."""

        def fits(frame: Frame) -> bool:
            event = frame.event
            return (
                event is not None
                and event["type"] == type_
                and session_id in (None, event["sessionId"])
                and all(event["data"].get(name) == value for name, value in data.items())
            )

        event = self.wait_for(fits, start=start, what=f"{type_} {data}").event
        assert event is not None
        return event

    def pause_reading(self) -> None:
        """Be a client that stops reading stdout, once what is being read has come."""
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    @property
    def stderr(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    # --- usual requests -------------------------------------------------------------------------------------

    def initialize(self) -> dict[str, Any]:
        return self.call("initialize", protocolVersions=["1"], clientInfo={"name": "driver", "version": "1"})

    def create(self, workspace: Path, session_id: str | None = None, **params: Any) -> str:
        """Make a session that this connection follows; its id."""
        if session_id is not None:
            params["sessionId"] = session_id
        params.setdefault("subscribe", {})
        result = self.call("session/create", workspace=str(workspace), **params)
        made: str = result["session"]["sessionId"]
        return made

    def submit(self, session_id: str, text: str = "go", **params: Any) -> str:
        """Admit a turn; its id."""
        result = self.call("turn/submit", sessionId=session_id, input=said(text), **params)
        turn_id: str = result["turn"]["turnId"]
        return turn_id

    def finish(self, session_id: str, turn_id: str) -> dict[str, Any]:
        """Wait for the turn to end: the turn."""
        result = self.call("turn/wait", sessionId=session_id, turnId=turn_id)
        assert result["why"] == "ended", result
        turn: dict[str, Any] = result["turn"]
        return turn

    def log(self, session_id: str, **params: Any) -> list[dict[str, Any]]:
        """The whole log by `events/read`: `{cursor, event}` each."""
        entries: list[dict[str, Any]] = []
        after: dict[str, str] = {}
        while True:
            page = self.call("events/read", sessionId=session_id, **after, **params)
            entries += page["events"]
            if not page["hasMore"]:
                return entries
            after = {"after": page["nextCursor"]}

    # --- the process ----------------------------------------------------------------------------------------

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def wait(self, timeout: float = TIMEOUT_S) -> int:
        """The exit code, once the process has ended and all it wrote has been read."""
        code = self.process.wait(timeout)
        self.resume_reading()
        for thread in self._threads:
            thread.join(timeout)
        return code

    def stop(self, timeout: float = TIMEOUT_S) -> int:
        """End of input; the exit code."""
        self.resume_reading()
        self.close_stdin()
        return self.wait(timeout)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        """SIGKILL if it still runs, and close every pipe."""
        self.signal(signal.SIGKILL)
        self.process.wait(TIMEOUT_S)
        self.resume_reading()
        self.close_stdin()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def rss_bytes(self) -> int:
        return status_bytes(self.process.pid, "VmRSS")

    def reset_peak(self) -> int:
        """Forget the highest memory so far; what it is now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self.rss_bytes()

    def peak_bytes(self) -> int:
        """The highest memory since `reset_peak`."""
        return status_bytes(self.process.pid, "VmHWM")

    def descendants(self) -> list[int]:
        """Processes below the server now."""
        return descendants(self.process.pid)

    def check(self, *, receipts: bool = True) -> None:
        """Everything that must hold of all that was seen: see `e2e.checks`. Without `receipts` a turn may have been
        admitted elsewhere: its event is on its way here while it is submitted here again."""
        assert not self.faults, self.faults[:3]
        with self._changed:
            check_frames(self.frames, self.sent, receipts=receipts)

    # --- threads --------------------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        rest = b""
        while True:
            self._reading.wait()
            chunk = os.read(descriptor, self.read_bytes)
            if not chunk:
                break
            try:
                frames, rest = cut_lines(rest + chunk) if self.framing == "line" else cut_headed(rest + chunk)
            except ValueError as error:
                frames, rest = [], b""
                self.faults.append(str(error))
            self._take(frames, len(chunk))
        with self._changed:
            if rest:
                self.faults.append(f"stdout ended within a frame: {rest[:200]!r}")
            self._eof = True
            self._changed.notify_all()

    def _take(self, lines: Iterable[bytes], size: int) -> None:
        taken = []
        for each in lines:
            try:
                taken.append(strict_frame(each))
            except ValueError as error:
                with self._changed:
                    self.faults.append(f"{error}: {each[:300]!r}")
        with self._changed:
            self.bytes_out += size
            for frame in taken:
                frame.index = len(self.frames)
                self.frames.append(frame)
                for value in frame.responses:
                    identifier = value["id"]
                    if identifier is not None:
                        self._answers.setdefault(identifier, Frame(frame.raw, value, frame.index))
            self._changed.notify_all()

    def _drain(self) -> None:
        pipe: IO[bytes] | None = self.process.stderr
        assert pipe is not None
        while chunk := os.read(pipe.fileno(), 1 << 16):
            self._stderr += chunk
