"""`Collector`: an OTLP/HTTP endpoint on 127.0.0.1 in threads of its own, which keeps the spans that it takes."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

WAIT_S = 30.0


class Collector:
    """Takes what is posted to `url`. `statuses` are answered first, one a request; `hold` keeps requests waiting."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        """Path, headers with lower-case names, and body, also of what was not taken."""
        self.spans: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.hold = threading.Event()
        self.hold.set()
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status = collector._take(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                collector.hold.wait(WAIT_S)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # the client left: that is its right
                    super().handle()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> int:
        with self._changed:
            self.requests.append((path, headers, body))
            status = self.statuses.pop(0) if self.statuses else 200
            if status == 200:
                for resource in body["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        self.spans += scope["spans"]
            self._changed.notify_all()
        return status

    def wait(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        """The spans of a name, once there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.named(name)) >= count, WAIT_S), self.spans
            return self.named(name)

    def wait_requests(self, count: int) -> None:
        """Until there were so many requests."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, WAIT_S), len(self.requests)

    def named(self, name: str) -> list[dict[str, Any]]:
        """The spans of a name."""
        return [span for span in self.spans if span["name"] == name]


def attributes(span: dict[str, Any]) -> dict[str, str | int]:
    """The attributes of a span, by name."""
    found: dict[str, str | int] = {}
    for each in span["attributes"]:
        value = each["value"]
        found[each["key"]] = int(value["intValue"]) if "intValue" in value else value["stringValue"]
    return found
