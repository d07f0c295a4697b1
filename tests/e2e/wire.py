"""Bytes of the wire as a client makes and takes them: lines, header frames, requests, inputs."""

from __future__ import annotations

import json
from typing import Any


def cut_lines(data: bytes) -> tuple[list[bytes], bytes]:
    *lines, rest = data.split(b"\n")
    return lines, rest


def cut_headed(data: bytes) -> tuple[list[bytes], bytes]:
    bodies = []
    while b"\r\n\r\n" in data:
        head, _, rest = data.partition(b"\r\n\r\n")
        if not head.startswith(b"Content-Length: ") or not head[16:].isdigit():
            raise ValueError(f"no header: {head[:200]!r}")
        size = int(head[16:])
        if len(rest) < size:
            break
        bodies.append(rest[:size])
        data = rest[size:]
    return bodies, data


def headed(body: bytes, newline: bytes = b"\r\n", more: bytes = b"") -> bytes:
    """`body` with a `Content-Length` header, behind the header line `more` where there is one."""
    return (more + newline if more else b"") + b"Content-Length: %d%b%b%b" % (len(body), newline, newline, body)


def line(identifier: str | int, method: str, /, **params: Any) -> bytes:
    """A request as a line; characters beyond ASCII as escapes."""
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}).encode() + b"\n"


def said(text: str) -> list[dict[str, Any]]:
    """A text as `input`."""
    return [{"type": "text", "text": text}]
