"""One GET over HTTP within bounds, to a host that was looked at first.

Rule 1: a name is resolved once, and the connection goes to an address that was looked at: a name that leads elsewhere
a moment later gains nothing. Each redirect is looked at in the same way.
Rule 2: no proxy is used, since it would resolve names by itself. Certificates are always checked, for the name.
Rule 3: a body is taken to its bound and no further, also where it was compressed.
Rule 4: foreign exceptions end here.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import anyio

from hames import __version__
from hames.connecting import Connecting
from hames.core.records import record
from hames.protocol.errors import ToolFailed
from hames.tools.web_address import is_public

if TYPE_CHECKING:
    import httpx

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

MAX_URL_CHARS = 4_096

CONNECT_S = 10.0
"""For one address; the whole is bounded by the caller."""

ADDRESSES = 4
"""Tried of a name: some of them may not be reachable from here."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})


@record
class Answer:
    """What came: from `url` in the end. `cut`: the body is longer than was taken."""

    url: str
    status: int
    content_type: str
    body: bytes
    cut: bool


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of `host` by the system's resolver.

    Raises:
        OSError: there are none.
    """
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))


@record
class WebClient:
    """Gets pages from the addresses that it `allows`. `resolver` finds those of a name."""

    allows: Callable[[str], bool] = is_public
    resolver: Resolve = resolve

    async def get(
        self, url: str, *, headers: Mapping[str, str], timeout_ms: int, max_bytes: int, redirects: int
    ) -> Answer:
        """GET `url`, following up to `redirects` redirects.

        Raises:
            ToolFailed: `invalid_url`, `not_resolved`, `address_not_allowed`, `not_reachable`, `tls_failed`,
                `connection_broken`, `too_many_redirects`, `timed_out`.
        """
        try:
            with anyio.fail_after(timeout_ms / 1000):
                return await self._follow(url, headers=headers, max_bytes=max_bytes, redirects=redirects)
        except TimeoutError as error:
            raise ToolFailed("timed_out", f"The server did not answer whole within {timeout_ms} ms.") from error

    async def _follow(self, url: str, *, headers: Mapping[str, str], max_bytes: int, redirects: int) -> Answer:
        for _ in range(redirects + 1):
            answer, location = await self._one(parsed(url), headers=headers, max_bytes=max_bytes)
            if location is None:
                return answer
            try:
                url = urljoin(answer.url, location)
            except ValueError as error:
                raise ToolFailed("invalid_url", "The server redirects to what is not a URL.") from error
        raise ToolFailed("too_many_redirects", f"The server redirects more than {redirects} times.")

    async def _one(self, url: httpx.URL, *, headers: Mapping[str, str], max_bytes: int) -> tuple[Answer, str | None]:
        """One request: what came, and where it redirects to."""
        import httpx

        addresses = await self._addresses(url)
        # An http:// URL needs no certificates, and loading them takes 25 ms.
        verify = httpx.create_ssl_context() if url.scheme == "https" else False
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        async with httpx.AsyncClient(verify=verify, trust_env=False, timeout=timeout) as client:
            for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
                connecting = Connecting()
                request = client.build_request(
                    "GET",
                    url.copy_with(host=address),
                    headers={"host": url.netloc.decode("ascii"), **_headers(), **headers},
                    extensions={"sni_hostname": url.raw_host.decode("ascii"), "trace": connecting.step},
                )
                try:
                    response = await client.send(request, stream=True)
                    async with aclosing(response):
                        return await _answer(url, response, max_bytes)
                except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, OSError) as error:
                    if left and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                        continue
                    raise _translated(error) from error
                finally:
                    await connecting.aclose()
        raise ToolFailed("not_resolved", "The name of the host leads to no address.")

    async def _addresses(self, url: httpx.URL) -> Sequence[str]:
        """Where the host is; all of them are allowed."""
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await self.resolver(url.raw_host.decode("ascii"), port)
        except (OSError, UnicodeError) as error:
            raise ToolFailed("not_resolved", "The name of the host is not known.") from error
        if not all(self.allows(address) for address in found):
            message = "The host is on this machine or in a private network, where this tool may not go."
            raise ToolFailed("address_not_allowed", message)
        return found[:ADDRESSES]


def parsed(text: str) -> httpx.URL:
    """A URL that can be got, without its fragment.

    Raises:
        ToolFailed: `invalid_url`.
    """
    import httpx

    if len(text) > MAX_URL_CHARS:
        raise ToolFailed("invalid_url", f"The URL is longer than {MAX_URL_CHARS} characters.")
    try:
        url = httpx.URL(text)
        host = url.host  # decoded when it is asked for: a name of an international domain may be none
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise ToolFailed("invalid_url", "This is not a URL.") from error
    if url.scheme not in ("http", "https") or not host:
        raise ToolFailed("invalid_url", "A whole URL is wanted, which begins with http:// or https:// and a host.")
    if (url.port or 1) > 65_535 or any(char.isspace() or char == "%" for char in host):
        raise ToolFailed("invalid_url", "The host or the port of the URL is none.")
    if url.userinfo:
        raise ToolFailed("invalid_url", "A URL with a user name or a password in it is not sent.")
    return url.copy_with(fragment=None)


def _headers() -> Mapping[str, str]:
    return {"accept-encoding": "gzip", "user-agent": f"hames/{__version__}"}


async def _answer(url: httpx.URL, response: httpx.Response, max_bytes: int) -> tuple[Answer, str | None]:
    content_type = response.headers.get("content-type", "")
    location = response.headers.get("location") if response.status_code in REDIRECTS else None
    if location is not None or response.status_code >= 400:
        return Answer(str(url), response.status_code, content_type, b"", False), location
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("gzip", "x-gzip", "identity", ""):
        raise ToolFailed("unsupported_type", "The server sends a content encoding that was not asked for.")
    body = _Body(max_bytes, compressed=encoding.endswith("gzip"))
    with anyio.CancelScope() as enough:
        # Left by cancellation and not by `break`: so the generators of the HTTP client end where they stand.
        async for chunk in response.aiter_raw():
            if not body.take(chunk):
                enough.cancel()
    if body.broken:
        raise ToolFailed("connection_broken", "The compressed content of the server's answer is damaged.")
    return Answer(str(url), response.status_code, content_type, body.whole(), body.full), None


class _Body:
    """A body as it comes, `most` bytes of it at most."""

    def __init__(self, most: int, *, compressed: bool) -> None:
        self.full = False
        self.broken = False
        self._most = most
        self._taken = bytearray()
        # zlib.MAX_WBITS + 16 reads gzip (zlib, inflateInit2).
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS + 16) if compressed else None

    def take(self, chunk: bytes) -> bool:
        """Take more; False when no more is wanted."""
        room = self._most + 1 - len(self._taken)
        if room > 0 and not self.broken:
            try:
                self._taken += chunk[:room] if self._inflate is None else self._inflate.decompress(chunk, room)
            except zlib.error:
                self.broken = True
        self.full = len(self._taken) > self._most
        return not (self.full or self.broken)

    def whole(self) -> bytes:
        """What was taken."""
        return bytes(self._taken[: self._most])


def _translated(error: Exception) -> ToolFailed:
    from ssl import SSLError

    import httpx

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SSLError):
            return ToolFailed("tls_failed", "No secure connection: the server's certificate or its TLS is not good.")
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.TimeoutException):
        return ToolFailed("timed_out", "The server did not answer in time.")
    if isinstance(error, httpx.ConnectError):
        return ToolFailed("not_reachable", "The host cannot be reached, or nothing answers at that port.")
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | UnicodeError):
        return ToolFailed("invalid_url", "This is not a URL that can be got.")
    return ToolFailed("connection_broken", "The server did not send a whole answer in HTTP.")
