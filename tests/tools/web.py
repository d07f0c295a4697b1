"""A web server that says what it is told to, byte for byte, and keeps what it was asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Say = Callable[[socket.socket], object]


def answer(body: bytes = b"", *, status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer; `content_type` and so on are headers."""
    lines = {"content-length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"HTTP/1.1 {status}\r\nconnection: close\r\n{head}\r\n".encode("latin-1") + body


def redirect(to: str) -> bytes:
    return answer(status="302 Found", location=to)


@dataclass
class Web:
    """Answers by path; `asked` are the requests as they came."""

    port: int
    pages: dict[str, bytes | Say] = field(default_factory=dict)
    asked: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(10)
            request = b""
            while b"\r\n\r\n" not in request and (more := connection.recv(65536)):
                request += more
                if request.startswith(b"\x16"):  # a TLS handshake: nobody here can answer it
                    break
            self.asked.append(request)
            path = request.split(b" ")[1].decode("latin-1") if request.count(b" ") > 1 else ""
            page = self.pages.get(path.partition("?")[0], answer(status="404 Not Found"))
            if isinstance(page, bytes):
                connection.sendall(page)
            else:
                page(connection)


@contextmanager
def running() -> Iterator[Web]:
    """A server on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        web = Web(listener.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=web.serve, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield web
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
