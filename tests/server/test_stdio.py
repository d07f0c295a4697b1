from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import anyio
import pytest

from hames.server.stdio import MAX_UNREAD_BYTES, READ_BYTES, WRITE_BYTES, EndReason, Reader, Writer
from hames.threads import LoopPort

SOURCE = Path(__file__).parents[2] / "src"
PEER = Path(__file__).with_name("stdio_peer.py")

NO_DESCRIPTOR = 1_000_000

pytestmark = pytest.mark.anyio


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - what changes it is another thread
            await anyio.sleep(0.001)


class Received:
    """What a reader of `descriptor` delivered."""

    def __init__(self, descriptor: int, *, consume: bool = True, follow_parent: bool = False) -> None:
        self.data = bytearray()
        self.ends: list[EndReason] = []
        self.ended = anyio.Event()
        self._consume = consume
        self.reader = Reader(
            descriptor, LoopPort(), on_data=self._on_data, on_end=self._on_end, follow_parent=follow_parent
        )
        self.reader.start()

    def _on_data(self, data: bytes) -> None:
        assert data
        assert not self.ends
        self.data += data
        if self._consume:
            self.reader.consumed(len(data))

    def _on_end(self, reason: EndReason) -> None:
        self.ends.append(reason)
        self.ended.set()

    async def all(self) -> tuple[bytes, list[EndReason]]:
        with anyio.fail_after(30):
            await self.ended.wait()
        await anyio.wait_all_tasks_blocked()
        self.reader.stop()
        return bytes(self.data), self.ends


@pytest.fixture
def pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb", 0) as reading, os.fdopen(write_end, "wb", 0) as writing:
        yield reading, writing


def write_in_background(writing: IO[bytes], data: bytes) -> threading.Thread:
    def run() -> None:
        view = memoryview(data)
        while view:
            view = view[writing.write(view) :]
        writing.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


# --- Reader -------------------------------------------------------------------------------------------------


async def test_the_reader_delivers_every_byte_in_order_and_the_end_once(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    data = bytes(range(256)) * 10_000
    thread = write_in_background(pipe[1], data)

    assert await Received(pipe[0].fileno()).all() == (data, ["eof"])
    thread.join()


async def test_the_reader_delivers_what_came_before_the_other_end_was_closed(
    pipe: tuple[IO[bytes], IO[bytes]],
) -> None:
    pipe[1].write(b"last words")
    pipe[1].close()

    assert await Received(pipe[0].fileno()).all() == (b"last words", ["eof"])


async def test_the_reader_stops_while_the_loop_is_behind_and_goes_on(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    data = b"x" * (3 * MAX_UNREAD_BYTES)
    thread = write_in_background(pipe[1], data)
    received = Received(pipe[0].fileno(), consume=False)
    consumed = 0

    while consumed < len(data):
        full = min(consumed + MAX_UNREAD_BYTES, len(data))
        await until(lambda full=full: len(received.data) >= full)  # type: ignore[misc]
        assert len(received.data) - consumed < MAX_UNREAD_BYTES + READ_BYTES
        received.reader.consumed(len(received.data) - consumed)
        consumed = len(received.data)

    assert await received.all() == (data, ["eof"])
    thread.join()


async def test_an_empty_stdin_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for path in (Path(os.devnull), tmp_path / "empty"):
        with path.open("rb") as file:
            assert await Received(file.fileno()).all() == (b"", ["eof"])


async def test_a_regular_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"y" * 1_000_000)

    with path.open("rb") as file:
        assert await Received(file.fileno()).all() == (b"y" * 1_000_000, ["eof"])


async def test_a_terminal_that_hangs_up_is_an_end() -> None:
    ours, theirs = pty.openpty()
    received = Received(theirs)
    os.write(ours, b"typed\n")
    await until(lambda: bytes(received.data) == b"typed\n")
    os.close(ours)

    assert await received.all() == (b"typed\n", ["eof"])
    os.close(theirs)


async def test_what_cannot_be_read_ends_with_an_error(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)

    assert await Received(directory).all() == (b"", ["error"])
    os.close(directory)
    assert await Received(NO_DESCRIPTOR).all() == (b"", ["error"])


async def test_a_non_blocking_stdin_is_read_all_the_same(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    os.set_blocking(pipe[0].fileno(), False)
    received = Received(pipe[0].fileno())
    pipe[1].write(b"a")
    await until(lambda: bytes(received.data) == b"a")
    pipe[1].write(b"b")
    pipe[1].close()

    assert await received.all() == (b"ab", ["eof"])


async def test_a_parent_that_lives_changes_nothing(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    received = Received(pipe[0].fileno(), follow_parent=True)
    pipe[1].write(b"a")
    await until(lambda: bytes(received.data) == b"a")
    pipe[1].close()

    assert await received.all() == (b"a", ["eof"])


async def test_a_stopped_reader_delivers_nothing_more(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    received = Received(pipe[0].fileno())
    pipe[1].write(b"a")
    await until(lambda: bytes(received.data) == b"a")
    received.reader.stop()
    pipe[1].write(b"b")
    pipe[1].close()
    await anyio.wait_all_tasks_blocked()

    assert (bytes(received.data), received.ends) == (b"a", [])
    assert pipe[0].read() == b"b"


# --- Writer -------------------------------------------------------------------------------------------------


def start_writer(descriptor: int, errors: list[OSError] | None = None) -> Writer:
    writer = Writer(descriptor, LoopPort(), on_broken=(errors if errors is not None else []).append)
    writer.start()
    return writer


async def test_frames_go_out_whole_and_in_order(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    frames = [b"%d:" % number + b"x" * (number * 37 % 5000) + b"\n" for number in range(2000)]
    writer = start_writer(pipe[1].fileno())
    for frame in frames:
        writer.send(frame)

    assert writer.pending_bytes > 0
    assert await anyio.to_thread.run_sync(read_exactly, pipe[0], sum(map(len, frames))) == b"".join(frames)
    assert await writer.drain(30)
    assert writer.pending_bytes == 0
    writer.close(30)


def read_exactly(reading: IO[bytes], count: int, at_once: int = 2**16) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = reading.read(min(at_once, count - len(data)))
        assert chunk
        data += chunk
    return bytes(data)


async def test_frames_that_wait_go_out_in_few_writes() -> None:
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, ours:
        writer = Writer(ours.fileno(), LoopPort(), on_broken=print)
        for _ in range(1000):
            writer.send(b"frame\n")
        writer.start()

        assert await anyio.to_thread.run_sync(theirs.recv, 2**20) == b"frame\n" * 1000
        writer.close(30)


async def test_a_frame_larger_than_one_write_goes_out_whole(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    frame = os.urandom(3 * WRITE_BYTES + 1)
    writer = start_writer(pipe[1].fileno())
    writer.send(frame)
    writer.send(b"next")

    assert await anyio.to_thread.run_sync(read_exactly, pipe[0], len(frame) + 4) == frame + b"next"
    writer.close(30)


async def test_a_non_blocking_stdout_with_a_slow_peer_gets_everything(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    os.set_blocking(pipe[1].fileno(), False)
    frames = [b"%d\n" % number for number in range(50_000)]
    writer = start_writer(pipe[1].fileno())
    for frame in frames:
        writer.send(frame)

    size = sum(map(len, frames))
    assert await anyio.to_thread.run_sync(read_exactly, pipe[0], size, 1000) == b"".join(frames)
    writer.close(30)


async def test_a_closed_peer_is_told_once_and_the_rest_is_dropped(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    errors: list[OSError] = []
    writer = start_writer(pipe[1].fileno(), errors)
    pipe[0].close()
    writer.send(b"a\n")
    await until(lambda: bool(errors))
    writer.send(b"b\n" * WRITE_BYTES)
    writer.close(30)
    await anyio.wait_all_tasks_blocked()

    assert [type(error) for error in errors] == [BrokenPipeError]
    assert writer.pending_bytes == 0
    assert not await writer.drain(30)


async def test_a_peer_that_closes_frees_who_waits_for_room(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    writer = start_writer(pipe[1].fileno())
    writer.send(b"x" * 2**21)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(writer.room, 1)
            group.start_soon(writer.room, 2**20)
            await anyio.wait_all_tasks_blocked()
            pipe[0].close()
    writer.close(30)


async def test_a_descriptor_that_is_closed_is_broken() -> None:
    errors: list[OSError] = []
    writer = start_writer(NO_DESCRIPTOR, errors)
    writer.send(b"a\n")
    await until(lambda: bool(errors))

    assert not await writer.drain(30)
    writer.close(30)


async def test_room_comes_to_each_who_waits_as_the_peer_reads(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    writer = start_writer(pipe[1].fileno())
    unread = 8 * WRITE_BYTES
    writer.send(b"x" * unread)
    order: list[int] = []

    async def wait(limit_bytes: int) -> None:
        await writer.room(limit_bytes)
        assert writer.pending_bytes < limit_bytes
        order.append(limit_bytes)

    with anyio.fail_after(30):
        await writer.room(9 * WRITE_BYTES)
        async with anyio.create_task_group() as group:
            for limit_bytes in (1, 6 * WRITE_BYTES, 3 * WRITE_BYTES, 3 * WRITE_BYTES):
                group.start_soon(wait, limit_bytes)
            await anyio.wait_all_tasks_blocked()
            assert order == []
            for left in (6, 3, 0):
                expected = [limit for limit in (6, 3, 3, 1) if limit > left]
                while len(order) < len(expected) and unread:
                    unread -= len(await anyio.to_thread.run_sync(pipe[0].read, 2**16))
                    await anyio.wait_all_tasks_blocked()
                # The thread that writes may not have said yet that all is taken.
                await until(lambda expected=expected: len(order) >= len(expected))  # type: ignore[misc]

    assert order == [6 * WRITE_BYTES, 3 * WRITE_BYTES, 3 * WRITE_BYTES, 1]
    writer.close(30)


async def test_a_wait_for_room_can_be_cancelled_beside_others(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    writer = start_writer(pipe[1].fileno())
    writer.send(b"x" * 2**20)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(writer.room, 1)
            with anyio.move_on_after(0.01) as scope:
                await writer.room(2**19)
            assert scope.cancelled_caught
            await anyio.to_thread.run_sync(read_exactly, pipe[0], 2**20)
    writer.close(30)


async def test_drain_and_close_give_up_on_a_peer_that_does_not_read(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    writer = start_writer(pipe[1].fileno())
    writer.send(b"x" * 2**20)

    assert not await writer.drain(0.01)
    writer.close(0.01)
    assert writer.pending_bytes > 0
    pipe[0].close()
    writer.close(30)


# --- Claimed descriptors ------------------------------------------------------------------------------------


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**clean, "PYTHONPATH": os.pathsep.join([*filter(None, [more.pop("path", "")]), str(SOURCE)]), **more}


@contextmanager
def peer(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    streams = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    options = {**streams, "env": environment(), **options}
    with subprocess.Popen([sys.executable, str(PEER), *arguments], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def pipes_of(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def exchange(*asked: object, arguments: tuple[str, ...] = (), **options: Any) -> tuple[list[Any], str]:
    """The frames that a peer answers to `asked`, and its stderr."""
    with peer(*arguments, **options) as process:
        lines = b"".join(json.dumps(frame).encode() + b"\n" for frame in asked)
        output, noise = process.communicate(lines, timeout=30)
        assert process.returncode == 0, noise
        return [json.loads(line) for line in output.split(b"\n")[:-1]], (noise or b"").decode()


NOISE = ("noise of python", "noise of c", "noise of a child")


def test_stdout_carries_frames_and_nothing_else_whoever_writes(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('noise of a hook')")

    frames, stderr = exchange(1, *NOISE, 2, arguments=("--noise",), env=environment(path=str(tmp_path)))

    assert frames == [1, *({noise: None} for noise in NOISE), 2]
    for noise in ("before", "of a hook", "of print", "of \\ud800 half", "of a stream kept", "of a buffer", "beside"):
        assert f"noise {noise}" in stderr
    for noise in ("of a warning", "of a descriptor", "of puts", "of write", "of a child"):
        assert f"noise {noise}" in stderr
    assert "end eof" in stderr


def test_stderr_on_the_same_pipe_as_stdout_is_silenced() -> None:
    frames, _ = exchange(*NOISE, stderr=subprocess.STDOUT)

    assert frames == [{noise: None} for noise in NOISE]


def test_a_stderr_that_nobody_reads_stops_nothing() -> None:
    with peer() as process:
        stdin, stdout = pipes_of(process)
        stdin.write(b'"flood"\n1\n')
        stdin.flush()

        assert stdout.readline() == b'{"flood":null}\n'
        assert stdout.readline() == b"1\n"


def test_children_have_neither_end_of_the_connection() -> None:
    assert exchange("child sees", "after")[0] == [{"child sees": []}, "after"]


def test_the_pipes_of_the_parent_stay_blocking() -> None:
    ends = [os.pipe(), os.pipe()]
    with peer(stdin=ends[0][0], stdout=ends[1][1]):
        os.write(ends[0][1], b"1\n")

        assert os.read(ends[1][0], 100) == b"1\n"
        assert all(os.get_blocking(descriptor) for end in ends for descriptor in end)
    for descriptor in (*ends[0], *ends[1]):
        os.close(descriptor)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_descriptors_that_are_closed_at_the_start_are_never_given_to_another_file(closed: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    command = f'exec "$0" "$@" {closed}'
    with subprocess.Popen(
        ["sh", "-c", command, sys.executable, str(PEER), "--report", str(report)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        output, _ = process.communicate(b'"standard descriptors"\n"noise of c"\n"child sees"\n', timeout=30)

    assert process.returncode == 0
    assert report.read_text() == "end eof"
    lines = [json.loads(line) for line in output.splitlines()]
    if closed == "2>&-":
        assert lines[0] == {"standard descriptors": [os.devnull] * 3}
    if "<&-" in closed or " >&-" in f" {closed}":
        assert lines == []
    else:
        assert lines[1:] == [{"noise of c": None}, {"child sees": []}]


@pytest.mark.parametrize("kind", ["null", "file", "terminal"])
def test_whatever_stdin_is_the_process_ends_with_it(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1\n2")
    ours = -1
    if kind == "terminal":
        ours, theirs = pty.openpty()
        os.write(ours, b"1\n2\n\x04")
    else:
        theirs = os.open(os.devnull if kind == "null" else path, os.O_RDONLY)
    with peer(stdin=theirs) as process:
        output, noise = process.communicate(timeout=30)
    os.close(theirs)
    if ours >= 0:
        os.close(ours)

    assert (process.returncode, output) == (0, b"" if kind == "null" else b"1\n2\n")
    assert b"end eof" in noise


def test_a_process_whose_stdout_nobody_reads_any_more_ends() -> None:
    with peer() as process:
        stdin, stdout = pipes_of(process)
        stdin.write(b"1\n")
        stdin.flush()
        assert stdout.readline() == b"1\n"
        stdout.close()
        stdin.write(b"2\n")
        stdin.flush()

        assert process.wait(30) == 3


def test_a_peer_that_reads_slowly_gets_whole_frames_after_the_end_of_its_input() -> None:
    frames = [{"number": number, "text": "é" * (number % 500)} for number in range(1000)]
    with peer() as process:
        stdin, stdout = pipes_of(process)
        thread = write_in_background(stdin, b"".join(json.dumps(f).encode() + b"\n" for f in frames))
        output = b"".join(iter(lambda: os.read(stdout.fileno(), 1000), b""))
        thread.join()

        assert process.wait(30) == 0
    assert [json.loads(line) for line in output.splitlines()] == frames


@pytest.mark.parametrize(
    ("follow", "data", "end"),
    [
        (["--follow"], b"2\n", "end parent"),
        pytest.param(["--follow", "--no-pidfd"], b"2\n", "end parent", marks=pytest.mark.slow),
        ([], b"2\n3\n", "end eof"),
    ],
)
def test_the_end_of_the_parent_is_an_end_though_another_process_holds_the_pipe(
    follow: list[str], data: bytes, end: str, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    arguments = [sys.executable, str(PEER), *follow, "--report", str(report)]
    launcher = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
    with subprocess.Popen(
        [sys.executable, "-c", launcher, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as parent:
        stdin, stdout = pipes_of(parent)
        stdin.write(b"1\n")
        stdin.flush()
        assert stdout.readline() == b"1\n"
        stdin.write(b"2\n")
        stdin.flush()
        parent.send_signal(signal.SIGKILL)
        parent.wait(30)
        if not follow:
            stdin.write(b"3\n")
            stdin.close()

        assert stdout.read() == data
    assert report.read_text() == end


def test_what_is_on_the_way_to_the_first_answer_loads_no_event_loop() -> None:
    script = (
        "import sys, hames.server.frames, hames.server.rpc, hames.server.stdio;"
        "print(sorted({'anyio', 'asyncio', 'httpx', 'pydantic', 'trio'} & set(sys.modules)))"
    )

    output = subprocess.run([sys.executable, "-c", script], env=environment(), check=True, stdout=subprocess.PIPE)

    assert output.stdout == b"[]\n"
