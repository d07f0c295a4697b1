"""`HttpProvider`: a model behind HTTP, whatever its dialect. `Dialect` is what an adapter says of its own.

Rule 1: one try is one request. Nothing is sent twice here, and no other route is taken (AH-INV-5).
Rule 2: what a server answers is told by its first byte, not by its content type, which many get wrong: an event
stream, JSON (a whole answer or an error, though a stream was asked for), or a web page.
Rule 3: the credential is in a header of the request and nowhere else.

The proxy and certificate variables of the environment are obeyed: see `http_route`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from hames.core.conversation import ModelRequest, Part, Reply
from hames.core.cost import Money
from hames.core.limits import DEFAULTS
from hames.ports import ModelLimits, ProviderFailed
from hames.protocol.errors import Refused
from hames.providers.advice import Asked
from hames.providers.answer import Builder, ErrorInAnswer, MalformedAnswer, Reader
from hames.providers.failures import (
    failed,
    read_error,
    read_error_bytes,
    redacted,
    refused_by_provider,
    without_secret,
)
from hames.providers.http_route import ERROR_BYTES, NO_HEADERS, HttpRoute, Want
from hames.providers.sse import MAX_EVENT_BYTES, SseParser
from hames.providers.surrogates import without_surrogates

MODELS_MS = 30_000
"""Bound of a listing of models: it is a small answer, and somebody waits for it."""

_Form = Literal["unknown", "sse", "json", "page"]
_FORMS: Mapping[bytes, _Form] = {b"{": "json", b"[": "json", b"<": "page"}
_BOM = b"\xef\xbb\xbf"


class Dialect(Protocol):
    """What differs from one provider to the next. Without state: one serves all sessions."""

    name: str
    signs_as: str
    """The name under which the provider's own parts of an answer are kept: see `core/signed.py`."""
    base_path: str
    """What the base URL of such a server usually ends with."""
    models_path: str
    """Where the models are listed, with its query."""

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The headers of every request beside those of HTTP: the credential, a version."""
        ...

    def headers_for(self, request: ModelRequest) -> Mapping[str, str]:
        """Headers that this request needs beside those."""
        ...

    def path(self, request: ModelRequest) -> str:
        """Where `request` is posted, from the base URL on."""
        ...

    def body(self, request: ModelRequest) -> bytes:
        """`request` as JSON. Equal requests give equal bytes."""
        ...

    def builder(self, request: ModelRequest, secret: str | None) -> Builder:
        """What takes the answer to `request`."""
        ...

    def model_names(self, listing: Any) -> Sequence[Any]:
        """The names in a listing of models, as one asks for them.

        Raises:
            MalformedAnswer, KeyError, TypeError, AttributeError: it is no such listing.
        """
        ...


class HttpProvider:
    """A server at `base_url` (`https://host/v1`) that speaks `dialect`, with a credential or without.

    `key_source` names where the key comes from, never the key. `salt` is of the installation: fingerprints of
    one key differ between two. `owner` is a label of whose it is.

    Raises:
        Refused: `base_url` or the key cannot be used (`invalid_config`).
    """

    def __init__(
        self,
        dialect: Dialect,
        base_url: str,
        api_key: str | None,
        *,
        key_source: str,
        salt: bytes,
        owner: str | None = None,
    ) -> None:
        url = _checked_url(base_url)
        self.name = dialect.name
        self.signs_as = dialect.signs_as
        self._dialect = dialect
        self._key = _checked_key(api_key, key_source)
        self._route = HttpRoute(url, self._key, dialect.headers(self._key))
        self.route: Mapping[str, Any] = {
            "provider": self.name,
            "baseUrl": url,
            "credential": _credential(self._key, key_source, salt, owner),
        }

    async def stream(
        self,
        request: ModelRequest,
        on_part: Callable[[Part], None],
        limits: ModelLimits,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Reply:
        """See `Provider.stream`. `headers` go with this request, beside those of every one."""
        asked = self._asked(self._dialect.path(request), has_tools=bool(request.tools))
        answer = _Answer(self._dialect.builder(request, self._key), on_part, self._key, asked)
        try:
            body = self._dialect.body(request)
            headers = {**self._dialect.headers_for(request), **headers}
            await self._route.exchange(asked.path, body, limits, answer, headers=headers, advise=asked.advice)
            return answer.reply()
        except ProviderFailed as error:
            error.usage, error.cost, error.usage_is_whole = answer.usage, answer.cost, answer.usage_is_whole
            raise

    async def models(self) -> Sequence[str]:
        """See `Provider.models`."""
        listing = _Listing(self._dialect, self._key)
        limits = ModelLimits(DEFAULTS["connectMs"], MODELS_MS, MODELS_MS, MODELS_MS)
        asked = self._asked(self._dialect.models_path, is_listing=True)
        await self._route.exchange(asked.path, None, limits, listing, advise=asked.advice)
        return listing.names

    async def aclose(self) -> None:
        """See `Provider.aclose`. A later request opens new connections."""
        await self._route.aclose()

    def _asked(self, path: str, *, has_tools: bool = False, is_listing: bool = False) -> Asked:
        url, base_path = self.route["baseUrl"], self._dialect.base_path
        return Asked(self.name, url, path, base_path, has_tools=has_tools, is_listing=is_listing)


class _Answer:
    """The sink of one answer."""

    def __init__(self, builder: Builder, on_part: Callable[[Part], None], key: str | None, asked: Asked) -> None:
        self._on_part = on_part
        self._key = key
        self._asked = asked
        self._headers: Mapping[str, str] = {}
        self._builder = builder
        self._sse = SseParser()
        self._form: _Form = "unknown"
        self._whole_body = bytearray()
        """What came, unless it is an event stream."""

    @property
    def usage(self) -> Mapping[str, int] | None:
        return self._builder.usage

    @property
    def usage_is_whole(self) -> bool:
        return self._builder.usage_is_whole

    @property
    def cost(self) -> Money | None:
        return self._builder.cost

    def begin(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def feed(self, data: bytes) -> Want:
        if self._form == "unknown":
            data = self._recognise(data)
        if self._form == "sse":
            return self._events(self._sse.feed(data))
        if self._form != "unknown":
            self._whole_body += data
            if len(self._whole_body) > MAX_EVENT_BYTES:
                raise self._malformed(f"an answer of more than {MAX_EVENT_BYTES} bytes")
        return "more"

    def finish(self) -> None:
        if self._form == "sse":
            self._events(self._sse.flush())
        elif self._form == "json":
            self._add(bytes(self._whole_body).removeprefix(_BOM))
        elif self._form == "page":
            said = read_error_bytes(bytes(self._whole_body), self._key)
            advice = without_secret(self._asked.check_address(), self._key)
            message = f"The provider answered with {redacted(said.message, self._key)}. {advice}"
            raise failed("model_gateway", message, retryable=False, phase="stream")

    def is_whole(self) -> bool:
        return self._builder.finished

    def reply(self) -> Reply:
        """The whole answer.

        Raises:
            ProviderFailed: it is not whole.
        """
        if not self._builder.finished:
            raise self._malformed("an answer that ends without a finish reason")
        try:
            for part in self._builder.end():
                self._on_part(part)
            return self._builder.reply()
        except MalformedAnswer as error:
            raise self._malformed(str(error)) from error

    def _recognise(self, data: bytes) -> bytes:
        """Set the form by the first byte that is no white space; gives back what is still to be taken."""
        self._whole_body += data
        start = self._whole_body.removeprefix(_BOM).lstrip()[:1]
        if not start and len(self._whole_body) < ERROR_BYTES:
            return b""
        self._form = _FORMS.get(bytes(start), "sse")
        data = bytes(self._whole_body)
        self._whole_body.clear()
        return data

    def _events(self, events: list[bytes]) -> Want:
        for event in events:
            if event.startswith(b"[DONE]"):
                if not self._builder.finished:
                    raise self._malformed("an end without a finish reason")
                return "enough"
            self._add(event)
            if self._builder.closed:
                return "enough"
        return "tail" if self._builder.finished else "more"

    def _add(self, payload: bytes) -> None:
        try:
            parts = self._builder.add(payload)
        except MalformedAnswer as error:
            raise self._malformed(str(error)) from error
        except ErrorInAnswer as error:
            said = read_error(error.document, self._key)
            raise refused_by_provider(
                None,
                said,
                phase="stream",
                secret=self._key,
                headers=self._headers,
                now_s=time.time(),
                advice=self._asked.advice(None, said),
            ) from error
        for part in parts:
            self._on_part(part)

    def _malformed(self, what: str) -> ProviderFailed:
        return failed("model_gateway", f"The provider sent {what}.", retryable=True, phase="stream")


class _Listing:
    """The sink of a listing of models."""

    def __init__(self, dialect: Dialect, key: str | None) -> None:
        self.names: list[str] = []
        self._dialect = dialect
        self._key = key
        self._body = bytearray()
        self._is_whole = False

    def begin(self, headers: Mapping[str, str]) -> None:
        pass

    def feed(self, data: bytes) -> Want:
        self._body += data
        if len(self._body) > MAX_EVENT_BYTES:
            raise self._malformed()
        return "more"

    def finish(self) -> None:
        try:
            names = self._dialect.model_names(Reader(self._key).read(bytes(self._body)))
        except (MalformedAnswer, KeyError, TypeError, AttributeError) as error:
            raise self._malformed() from error
        self.names = sorted({without_surrogates(name) for name in names if isinstance(name, str) and name})
        self._is_whole = True

    def is_whole(self) -> bool:
        return self._is_whole

    def _malformed(self) -> ProviderFailed:
        said = redacted(read_error_bytes(bytes(self._body), self._key).message, self._key)
        message = f"The provider gave no list of models: {said or 'an empty answer'}"
        return failed("model_gateway", message, retryable=False, phase="stream")


def _checked_url(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Refused("invalid_config", "The base URL of the provider is not a URL.") from error
    if parts.scheme not in ("http", "https") or not host:
        raise Refused(
            "invalid_config", "The base URL of the provider must be `http://host/path` or `https://host/path`."
        )
    if parts.username is not None or parts.query or parts.fragment:
        # The route is stored and shown, so it must have no place for a credential.
        raise Refused("invalid_config", "The base URL of the provider must have no user, query or fragment.")
    return base_url.rstrip("/")


def _checked_key(api_key: str | None, key_source: str) -> str | None:
    key = (api_key or "").strip()
    if not key:
        return None
    if not key.isascii() or not key.isprintable():
        raise Refused(
            "invalid_config", f"The credential of {key_source} has a character that no HTTP header can carry."
        )
    return key


def _credential(key: str | None, key_source: str, salt: bytes, owner: str | None) -> Mapping[str, str]:
    if key is None:
        return {"source": "none"}
    fingerprint = hashlib.blake2b(key.encode(), key=hashlib.blake2b(salt).digest(), digest_size=6).hexdigest()
    told = {"source": key_source, "fingerprint": fingerprint}
    return told if owner is None else {**told, "owner": owner}
