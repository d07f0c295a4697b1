"""A doorbell between processes on one store: after a commit, the ids of the sessions that moved, by unix datagram.

Rule: a bell is a hint. It may get lost; who hears it reads the store. So ringing never waits and never fails.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 4096
"""In one ring; more sessions than fit are told as `any`, by an empty ring."""


class Bell:
    """This process's bell, heard in a thread of its own. `heard` gets session ids, none of them for `any`."""

    def __init__(self, directory: Path, owner_id: str, heard: Callable[[list[str]], object]) -> None:
        self._heard = heard
        self._closing = False
        # Through /proc a path may be longer than the 107 bytes of a socket address.
        self._directory_fd = os.open(directory / "bell", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        through_proc = Path(f"/proc/self/fd/{self._directory_fd}")
        self._base = through_proc if through_proc.exists() else directory / "bell"
        self._owner_id = owner_id
        self._name = f"{owner_id}.sock"
        self._path = directory / "bell" / self._name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._listen, name="hames-bell", daemon=True)

    def hang(self) -> bool:
        """Bind it and listen; False when that is not possible here."""
        try:
            self._socket.bind(os.fspath(self._base / self._name))
            os.chmod(self._path, 0o600)
        except OSError:
            return False
        self._thread.start()
        return True

    def ring(self, others: Sequence[str], session_ids: Iterable[str]) -> None:
        """Tell `others` (owner ids) that these sessions moved."""
        if not others:
            return
        text = "\n".join(session_ids).encode()
        if len(text) > MOST_BYTES:
            text = b""
        for owner_id in others:
            with suppress(OSError):
                self._socket.sendto(text, socket.MSG_DONTWAIT, os.fspath(self._base / f"{owner_id}.sock"))

    def close(self) -> None:
        """Stop listening, remove the socket."""
        self._closing = True
        if self._thread.is_alive():
            # Either wakes the thread: the ring unless the socket's file is gone, the shutdown on Linux.
            self.ring([self._owner_id], [])
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._thread.join(1)
        with suppress(OSError):
            os.unlink(self._path)
        self._socket.close()
        os.close(self._directory_fd)

    def _listen(self) -> None:
        while not self._closing:
            try:
                text = self._socket.recv(2 * MOST_BYTES)
            except OSError:
                return
            if not self._closing:
                self._heard(text.decode(errors="replace").split("\n") if text else [])
