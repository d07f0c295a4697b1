"""One HTTP exchange with a provider within limits, over httpx: `HttpRoute.exchange` feeds a `Sink`.

Rule 1: one cancel scope bounds an exchange, and its deadline moves with the phase; any byte of the answer moves it,
a comment too. The first byte is that of the body: many servers send their head before they read the prompt. Leaving
the scope closes the connection.
Rule 2: an exchange is never broken off by an exception within the loop over its bytes: the scope is cancelled and
the loop goes on to the cancellation. So every generator of the HTTP client ends where it stands.
Rule 3: foreign exceptions end here, in `_translated`.
Rule 4: nothing that a server sends is kept for another exchange: no cookie, since an exchange of another session is
none of its business, and since a server may set more of them than it takes.
Rule 5: a body is opened in bounded pieces (`decoding`), and others have their turn between two of them.

`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` of the environment are obeyed, as httpx does
by default (https://www.python-httpx.org/environment_variables/); but what is on this machine is never asked for
through a proxy, which would look for it on its own.
httpx is imported with the first exchange: it takes 80 ms, which a start must not pay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import anyio

from hames import __version__
from hames.connecting import Connecting
from hames.ports import ModelLimits, ProviderFailed
from hames.protocol.errors import HamesError
from hames.providers.decoding import READ, BrokenCoding, Decoder, UnknownCoding
from hames.providers.failures import Phase, Said, failed, read_error_bytes, redacted, refused_by_provider

if TYPE_CHECKING:
    import httpx

URLS_KEPT = 64
"""Parsed, of one provider: one for each model at most."""

ERROR_BYTES = 64 * 1024
"""Read of the body of an error. Longer ones are web pages."""

KEEP_ALIVE_S = 30
"""How long an idle connection is kept: a tool call between two requests should not cost a TLS handshake."""

TAIL_MS = 5_000
"""Wait for what is not needed any more: usage after the finish reason, the body of an error."""

DRAIN_MS = 50
"""Wait for the end of a body whose content is whole: a connection that is closed before cannot be used again."""

NO_HEADERS: Final[Mapping[str, str]] = {}

Want = Literal["more", "tail", "enough"]
"""What a sink wants next: more; the tail of an answer that is whole already; nothing."""

_State = Literal["open", "enough", "broken", "over"]
"""Of a body: more may be taken; nothing is wanted; nothing can be made of the rest; the exchange is cancelled."""

Advise = Callable[[int | None, Said], str | None]
"""What to do about a failure, by its status and what the server says; None where nothing is known."""


def _no_advice(status: int | None, said: Said) -> None:
    return None


_MISSED: Mapping[Phase, str] = {
    "connect": "could not be reached",
    "first_byte": "sent no byte of the answer",
    "idle": "sent no further byte",
    "total": "did not end its answer",
    "stream": "did not end its answer",
}


class Sink(Protocol):
    """What an answer is fed to. `feed` and `finish` may raise `ProviderFailed`, which ends the exchange."""

    def begin(self, headers: Mapping[str, str]) -> None:
        """The answer is a success; `headers` have lower-case names."""
        ...

    def feed(self, data: bytes) -> Want:
        """Take some of the body."""
        ...

    def finish(self) -> None:
        """The body has ended properly."""
        ...

    def is_whole(self) -> bool:
        """Whether what came will do, however the exchange ends."""
        ...


class HttpRoute:
    """A base URL, a credential, and the connections to it, kept for the next exchange.

    `headers` go with every request and carry the credential; `key` is taken out of what is told of a failure.
    """

    def __init__(self, base_url: str, key: str | None, headers: Mapping[str, str]) -> None:
        self._base_url = base_url
        self._key = key
        self._headers = headers
        self._client: httpx.AsyncClient | None = None
        self._urls: dict[str, httpx.URL] = {}

    async def exchange(
        self,
        path: str,
        content: bytes | None,
        limits: ModelLimits,
        sink: Sink,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        advise: Advise = _no_advice,
    ) -> None:
        """POST `content` to `path`, or GET it for None, and feed the answer to `sink`. `headers` are of this one.

        `advise` says what to do about an answer that is a failure.

        Raises:
            ProviderFailed: no answer, an answer that is no success, a limit, or what the sink raised.
        """
        client = self._ready()
        import httpx

        failure: HamesError | None = None
        with anyio.CancelScope() as scope:
            run = _Exchange(scope, limits, sink, self._key, advise)
            try:
                async with client.stream(
                    "GET" if content is None else "POST",
                    self._url(path),
                    content=content,
                    headers={**headers, **_headers(content is not None), **self._headers},
                    extensions={"trace": run.trace},
                ) as response:
                    await run.receive(response)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
                if not run.will_do():
                    failure = _translated(error, run.phase, self._base_url, self._key)
                    failure.__cause__ = error
            finally:
                await run.connecting.aclose()
        failure = run.failure() or failure
        if failure is None and scope.cancelled_caught and not run.will_do():
            failure = run.timeout(self._base_url)
        if failure is not None:
            raise failure

    def _url(self, path: str) -> httpx.URL:
        """The same few, again and again: they are parsed once."""
        import httpx

        if path not in self._urls:
            if len(self._urls) >= URLS_KEPT:
                self._urls.clear()
            self._urls[path] = httpx.URL(self._base_url + path)
        return self._urls[path]

    async def aclose(self) -> None:
        """Close connections; a later exchange opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _ready(self) -> httpx.AsyncClient:
        if self._client is None:
            from http.cookiejar import CookieJar, DefaultCookiePolicy

            import httpx

            try:
                # An http:// URL needs no certificates, and loading them takes 25 ms.
                verify = False if self._base_url.startswith("http://") else httpx.create_ssl_context()
                self._client = httpx.AsyncClient(
                    verify=verify,
                    trust_env=not is_loopback(self._base_url),
                    timeout=None,
                    limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_S),
                    # It takes none, and reads none.
                    cookies=CookieJar(DefaultCookiePolicy(netscape=False)),
                )
            except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
                # The text of the error may hold the password of a proxy.
                raise failed(
                    "invalid_config",
                    "The HTTP client cannot be set up: check the proxy and certificate variables of the environment.",
                    retryable=False,
                    phase="connect",
                ) from error
        return self._client


class _Exchange:
    """The clock and the fate of one exchange."""

    def __init__(
        self, scope: anyio.CancelScope, limits: ModelLimits, sink: Sink, key: str | None, advise: Advise
    ) -> None:
        self.phase: Phase = "connect"
        self.connecting = Connecting()
        self._scope = scope
        self._limits = limits
        self._sink = sink
        self._key = key
        self._advise = advise
        self._end = anyio.current_time() + limits.request_ms / 1000
        self._limit_ms = 0
        self._in_tail = False
        self._error: tuple[int, Mapping[str, str], bytearray] | None = None
        self._failure: HamesError | None = None
        self._allow("connect", limits.connect_ms)

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by httpcore at each step of a request: the one way to learn that the connection stands."""
        await self.connecting.step(event, info)
        if event.endswith("send_request_headers.started"):
            self._allow("first_byte", self._limits.first_byte_ms)

    async def receive(self, response: httpx.Response) -> None:
        """Feed the body to the sink, to its end or until the scope is cancelled."""
        headers = dict(response.headers.items())
        if response.is_success:
            self._sink.begin(headers)
        else:
            self._error = (response.status_code, headers, bytearray())
            self._allow_tail()
        body = self._decoder(headers.get("content-encoding", ""))
        state: _State = "open"
        async for data in response.aiter_raw():
            if body is not None and state == "open":
                state = await self._take(body, data)
        if state == "over":
            # All of it had come before the cancellation; what is left of it was not looked at.
            await anyio.sleep_forever()
        if self._failure is None and self._error is None and state != "broken":
            self._sink.finish()

    def will_do(self) -> bool:
        """Whether the exchange succeeded, however it ended."""
        return self._failure is None and self._error is None and self._sink.is_whole()

    def failure(self) -> HamesError | None:
        """What the provider or the sink said, which goes before how the exchange ended."""
        if self._failure is None and self._error is not None:
            status, headers, raw = self._error
            said = Said("a redirect, which is not followed")
            if status >= 400:
                said = read_error_bytes(bytes(raw), self._key, is_cut=len(raw) >= ERROR_BYTES)
            return refused_by_provider(
                status,
                said,
                phase="first_byte",
                secret=self._key,
                headers=headers,
                now_s=time.time(),
                advice=self._advise(status, said),
            )
        return self._failure

    def timeout(self, base_url: str) -> ProviderFailed:
        """The failure that the end of the time is."""
        limit_ms = self._limit_ms
        phase = self.phase
        if self._scope.deadline >= self._end:
            phase, limit_ms = "total", self._limits.request_ms
        through = _through(base_url) if phase == "connect" else ""
        message = f"The provider {_MISSED[phase]}{through} within {limit_ms} ms."
        return failed("model_gateway", message, retryable=True, phase=phase, limitMs=limit_ms)

    def _decoder(self, coding: str) -> Decoder | None:
        """What opens the body, None where nothing can: that is the failure, unless the answer is one anyway."""
        try:
            return Decoder(coding)
        except UnknownCoding as error:
            shown = redacted(str(error), self._key)
            what = f"a body in the content encoding {shown!r}, where `identity` was asked for"
            if self._error is None:
                advice = f"Hames reads {', '.join(READ)} too, but one at a time: see what stands before the server."
                message = f"The provider sent {what}. {advice}"
                self._fail(failed("model_gateway", message, retryable=False, phase=self.phase))
            else:
                self._error[2].extend(what.encode())
                self._allow("stream", DRAIN_MS)
            return None

    async def _take(self, body: Decoder, data: bytes) -> _State:
        """Feed what `data` adds to the body."""
        try:
            for number, piece in enumerate(body.pieces(data)):
                if number:
                    with anyio.CancelScope(shield=True):  # rule 2
                        await anyio.lowlevel.checkpoint()
                    if anyio.current_effective_deadline() <= anyio.current_time():
                        return "over"
                if self._feed(piece) == "enough":
                    return "enough"
        except BrokenCoding as error:
            message = f"The provider sent a compressed answer that is damaged: {error}"
            if self._error is None and not self._sink.is_whole():
                self._fail(failed("model_gateway", message, retryable=True, phase="stream"))
            return "broken"
        return "open"

    def _fail(self, failure: HamesError) -> None:
        self._failure = failure
        self._scope.cancel()

    def _feed(self, data: bytes) -> Want:
        try:
            want = self._sink.feed(data) if self._error is None else self._feed_error(self._error[2], data)
        except HamesError as error:
            self._fail(error)
            return "enough"
        match want:
            case "more":
                self._allow("idle", self._limits.idle_ms)
            case "tail":
                self._allow_tail()
            case "enough":
                self._allow("stream", DRAIN_MS)
        return want

    def _feed_error(self, raw: bytearray, data: bytes) -> Want:
        raw += data[: ERROR_BYTES - len(raw)]
        return "tail" if len(raw) < ERROR_BYTES else "enough"

    def _allow_tail(self) -> None:
        if not self._in_tail:
            self._in_tail = True
            self._allow("stream", TAIL_MS)

    def _allow(self, phase: Phase, limit_ms: int) -> None:
        self.phase = phase
        self._limit_ms = limit_ms
        self._scope.deadline = min(anyio.current_time() + limit_ms / 1000, self._end)


def is_loopback(base_url: str) -> bool:
    """Whether a URL is of this machine, by its host: `localhost`, 127.0.0.0/8, ::1 (RFC 6761, RFC 1122, RFC 4291)."""
    host = (urlsplit(base_url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_of(base_url: str) -> str | None:
    """The proxy that the environment names for a URL, as `scheme://host:port`: a proxy's URL may hold a password."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(base_url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or is_loopback(base_url) or proxy_bypass(parts.hostname or ""):
        return None
    found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return f"{found.scheme}://{found.netloc.rpartition('@')[2]}"


def _through(base_url: str) -> str:
    proxy = proxy_of(base_url)
    return "" if proxy is None else f" through the proxy {proxy} of the environment"


def _headers(sends: bool) -> dict[str, str]:
    headers = {"accept-encoding": "identity", "user-agent": f"hames/{__version__}"}
    if sends:
        headers["content-type"] = "application/json"
        headers["accept"] = "text/event-stream, application/json"
    else:
        headers["accept"] = "application/json"
    return headers


def _translated(error: Exception, phase: Phase, base_url: str, key: str | None) -> ProviderFailed:
    text = redacted(str(error) or type(error).__name__, key)
    if phase == "connect":
        # A certificate that is not trusted stays so; every other reason may pass.
        untrusted = "CERTIFICATE_VERIFY_FAILED" in text
        message = f"No connection to {base_url}{_through(base_url)}: {text}"
        return failed("model_unavailable", message, retryable=not untrusted, phase=phase)
    if phase == "first_byte":
        return failed("model_gateway", f"The provider sent no answer: {text}", retryable=True, phase=phase)
    message = f"The answer was cut before it was whole: {text}"
    return failed("model_gateway", message, retryable=True, phase="stream")
