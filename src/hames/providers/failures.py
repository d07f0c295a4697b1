"""What a provider's failure means, without I/O: its kind, whether to send again, and when.

Rule 1: one table says what a status means. What the provider says of itself (a code, words about the length of
the context, a used-up quota) goes before the status, since vendors disagree about statuses.
Rule 2: what leaves here is bounded and free of the credential, also where the provider echoes it.
Rule 3: waiting alone must be able to cure what is called retryable: a request that is wrong stays wrong.
Rule 4: `Said` holds no credential, and the credential is taken out of a text before the text is cut: half of it is no
secret to a filter, and may be most of it to a reader.
Rule 5: no more than `LOOKED_AT_CHARS` of a text is looked at, and what looks for words in it goes over it once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import orjson

from hames.core.records import record
from hames.core.redaction import without_spelled, without_spelled_before_cut
from hames.ports import ProviderFailed
from hames.protocol.errors import ErrorKind
from hames.providers.surrogates import without_surrogates

Phase = Literal["connect", "first_byte", "idle", "total", "stream"]

MESSAGE_CHARS = 500
"""Longest text of a provider that is passed on."""

LOOKED_AT_CHARS = 64 * 1024
"""Of a text that a provider gives for its reason. Longer ones are web pages, or made to take long."""

_DETAILS = 100
"""Looked at, of the details of an error."""

_CODE_CHARS = 200
_FIGURE_CHARS = 100
"""Of a wait, however it is written: a date takes 29."""

MAX_RETRY_AFTER_MS = 24 * 3_600_000
"""A longer wait that a provider asks for is taken for a day: no budget of waiting reaches that far."""

STATUSES: Final[Mapping[int, tuple[ErrorKind, bool]]] = {
    400: ("model_gateway", False),
    401: ("credential_rejected", False),
    402: ("model_gateway", False),
    403: ("credential_rejected", False),
    404: ("model_unavailable", False),
    408: ("model_gateway", True),
    409: ("model_gateway", True),
    413: ("model_gateway", False),
    422: ("model_gateway", False),
    425: ("model_gateway", True),
    429: ("model_gateway", True),
}
"""What a status means. Of the others, 500 and more may be sent again and the rest may not."""

_OVERFLOW_CODES = {
    *("context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded"),
    "exceed_context_size_error",  # llama.cpp
}
_TOO_LARGE_WORDS = re.compile(r"tokens must be reduced in order to run", re.IGNORECASE)
"""OpenAI, of one request that is over the limit of a minute: 429, and no wait cures it, but a shorter request does."""
_OVERFLOW_WORDS = re.compile(
    r"context[ _](length|window|size)|maximum context|prompt is too long|too many (input )?tokens"
    r"|input is too long|input token count|exceeds? the (maximum|available) (number of )?(context|tokens)"
    r"|exceeds? context limit",
    re.IGNORECASE,
)
_QUOTA_CODES = {
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "insufficient_balance",
    "exceeded_current_quota_error",
    "billing_error",
}
_QUOTA_WORDS = re.compile(
    r"exceeded your current quota|insufficient (balance|credits|funds)"
    r"|credits are depleted|exceeded its monthly spending cap",
    re.IGNORECASE,
)
_CREDENTIAL_CODES = {
    *("invalid_api_key", "authentication_error", "invalid_authentication", "permission_error"),
    "api_key_invalid",  # Gemini answers 400 with it
}
_WRONG_CODES = {
    *("invalid_request_error", "invalid_request", "invalid_prompt", "content_filter", "request_too_large"),
    *("bio_policy", "cyber_policy", "misalignment_policy_violation", "data_residency_mismatch"),
    *("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url", "invalid_image_mode"),
    *("image_too_large", "image_too_small", "image_parse_error", "image_content_policy_violation"),
    *("image_file_too_large", "unsupported_image_media_type", "empty_image_file", "image_file_not_found"),
}
UNKNOWN_MODEL_CODES = {"model_not_found", "not_found_error"}
_TRY_AGAIN = re.compile(
    r"(?:try again|retry) (?:in|after) ((?:\d{1,12}(?:\.\d{1,12})?\s?(?:ms|h|m|s)(?![a-z])){1,4})", re.IGNORECASE
)
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s?(ms|h|m|s)", re.IGNORECASE)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


@record
class Said:
    """What a provider says about its failure: `codes` are its `code`, `type`, `status` and reasons, lower case."""

    message: str
    codes: tuple[str, ...] = ()
    status: int | None = None
    details: tuple[Mapping[str, Any], ...] = ()

    @property
    def code(self) -> str | None:
        return self.codes[0] if self.codes else None


def read_error(document: Any, secret: str | None) -> Said:
    """What a parsed error says. Takes `{"error": {...}}`, `{"error": "text"}` and the shapes of other servers."""
    if isinstance(document, list) and document:  # Gemini's compatible endpoint wraps its error in an array
        document = document[0]
    error = (document.get("error") or document) if isinstance(document, dict) else document
    if not isinstance(error, dict):
        return Said(_looked_at(_text(error), secret))
    numbers = [error.get(name) for name in ("code", "status", "status_code")]
    status = next((n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and 400 <= n <= 599), None)
    given = error.get("details")
    details = tuple(item for item in given[:_DETAILS] if isinstance(item, dict)) if isinstance(given, list) else ()
    codes = [error.get(name) for name in ("code", "type", "status")]
    codes += [item.get("reason") for item in details]  # of a google.rpc.ErrorInfo
    message = _text(next((error[name] for name in ("message", "detail", "msg") if error.get(name)), error))
    return Said(
        _looked_at(message, secret),
        tuple(_looked_at(code, secret)[:_CODE_CHARS].lower() for code in codes if isinstance(code, str) and code),
        status,
        details,
    )


def read_error_bytes(raw: bytes, secret: str | None, *, is_cut: bool = False) -> Said:
    """As `read_error`, of a body that may be JSON, HTML or anything. `is_cut`: there was more of it."""
    try:
        return read_error(orjson.loads(raw), secret)
    except orjson.JSONDecodeError:
        is_cut = is_cut or len(raw) > LOOKED_AT_CHARS
        text = _looked_at(raw[:LOOKED_AT_CHARS].decode("utf-8", "replace"), secret, is_cut=is_cut).strip()
    if text.startswith("<"):
        title = _title(text)
        return Said("a web page" + (f" titled {' '.join(title.split())!r}" if title else ""))
    return Said(text)


def classify(status: int | None, said: Said) -> tuple[ErrorKind, bool]:
    """The kind of a failure and whether the same request may be sent again.

    `status` is that of the answer, None for an error within a stream that began well.
    """
    codes = set(said.codes)
    status = said.status if status is None else status
    overflow = codes & _OVERFLOW_CODES or (status in (None, 400, 422) and _OVERFLOW_WORDS.search(said.message))
    # 413 is the server's own bound of a body (RFC 9110, 15.5.14): a shorter request may do.
    if status == 413 or (overflow and status != 429) or _TOO_LARGE_WORDS.search(said.message):
        return "context_overflow", False
    if _is_used_up(said, codes):
        return "model_gateway", False
    if codes & _CREDENTIAL_CODES:
        return "credential_rejected", False
    if status is not None:
        return STATUSES.get(status, ("model_gateway", status >= 500))
    if codes & UNKNOWN_MODEL_CODES:
        return "model_unavailable", False
    return "model_gateway", not codes & _WRONG_CODES


def retry_after_ms(headers: Mapping[str, str], said: Said, now_s: float) -> int | None:
    """How long the provider asks to wait, None when it does not say.

    Looks at `retry-after-ms`, at `retry-after` (seconds, or a date, RFC 9110 section 10.2.3), at the
    `google.rpc.RetryInfo` of the body and at the words "try again in". `headers` have lower-case names; `now_s`
    is the Unix time, used when the answer has no date of its own.
    """
    wait = _number(headers.get("retry-after-ms"), 1)
    after = headers.get("retry-after")
    if wait is None:
        wait = _number(after, 1_000)
    if wait is None and after is not None:
        wait = _until(after, headers.get("date"), now_s)
    if wait is None:
        delays = [item.get("retryDelay") for item in said.details if _is_a(item, "RetryInfo")]
        wait = next((_duration(delay) for delay in delays if isinstance(delay, str)), None)
    if wait is None and (words := _TRY_AGAIN.search(said.message)):
        wait = _duration(words[1])
    return None if wait is None else int(min(wait, MAX_RETRY_AFTER_MS))


def redacted(text: str, secret: str | None) -> str:
    """`text` without `secret`, in one line of at most `MESSAGE_CHARS` characters."""
    text = " ".join(_looked_at(text, secret).split())
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"


def without_secret(text: str, secret: str | None) -> str:
    """`text` without `secret`, however it is spelled: codes are lower case here, and a provider writes as it likes."""
    return without_spelled(text, secret) if secret else text


def failed(
    kind: ErrorKind,
    message: str,
    *,
    retryable: bool,
    phase: Phase,
    wait_ms: int | None = None,
    usage: Mapping[str, int] | None = None,
    **details: Any,
) -> ProviderFailed:
    """A `ProviderFailed` of the model gateway; details that are None are left out."""
    known = {name: value for name, value in details.items() if value is not None}
    error = ProviderFailed(kind, message, boundary="model_gateway", retryable=retryable, phase=phase, **known)
    error.retry_after_ms = wait_ms
    error.usage = usage
    return error


def refused_by_provider(
    status: int | None,
    said: Said,
    *,
    phase: Phase,
    secret: str | None,
    headers: Mapping[str, str],
    now_s: float,
    advice: str | None = None,
) -> ProviderFailed:
    """The failure that an answer of the provider is, by its status or by an error within the stream.

    `advice` is told behind the provider's own words.
    """
    kind, retryable = classify(status, said)
    message = redacted(said.message, secret)
    seen = f"answered {status}" if status is not None and status >= 300 else "reported an error"
    told = f"The provider {seen}: {message or 'no reason given'}"
    if advice is not None:
        told = f"{told.rstrip('.')}. {without_secret(advice, secret)}"
    return failed(
        kind,
        told,
        retryable=retryable,
        phase=phase,
        wait_ms=retry_after_ms(headers, said, now_s),
        status=status,
        providerCode=redacted(said.code, secret)[:100] if said.code else None,
        providerMessage=message or None,
        requestId=request_id(headers, secret),
    )


def request_id(headers: Mapping[str, str], secret: str | None) -> str | None:
    """What the provider calls this request in its own log."""
    found = next((headers[name] for name in ("x-request-id", "request-id") if headers.get(name)), None)
    return redacted(found, secret)[:200] if found else None


def _looked_at(text: str, secret: str | None, *, is_cut: bool = False) -> str:
    """What is looked at of `text`, without `secret`."""
    is_cut = is_cut or len(text) > LOOKED_AT_CHARS
    text = without_surrogates(text[:LOOKED_AT_CHARS])
    if not secret:
        return text
    return without_spelled_before_cut(text, secret) if is_cut else without_spelled(text, secret)


def _title(page: str) -> str | None:
    raw = page.encode()
    # Bytes, since the lower case of a text may be longer than the text.
    small = raw.lower()
    start = small.find(b"<title")
    opened = small.find(b">", start) + 1
    end = small.find(b"</title", opened)
    return raw[opened:end].decode() if start >= 0 and opened and end >= 0 else None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # half of a pair, an integer beyond 64 bits, or nested too deep
        pass
    try:
        return json.dumps(value)
    except (ValueError, RecursionError):
        return "an error that is no JSON to be shown"


def _is_used_up(said: Said, codes: set[str]) -> bool:
    if codes & _QUOTA_CODES:
        return True
    # Gemini words a limit per minute as a quota too, but then says when to come back.
    quotas = [item.get("violations") for item in said.details if _is_a(item, "QuotaFailure")]
    if quotas:
        return "PerDay" in _text(quotas)
    return bool(_QUOTA_WORDS.search(said.message)) and not _TRY_AGAIN.search(said.message)


def _is_a(detail: Mapping[str, Any], kind: str) -> bool:
    name = detail.get("@type")
    return isinstance(name, str) and name.endswith(kind)


def _number(text: str | None, unit_ms: int) -> float | None:
    try:
        value = float((text or "")[:_FIGURE_CHARS])
    except ValueError:
        return None
    return min(value, MAX_RETRY_AFTER_MS) * unit_ms if value >= 0 else None


def _until(date: str, server_date: str | None, now_s: float) -> float | None:
    then_s = _unix_time(date)
    if then_s is None:
        return None
    # The server's own clock, where it tells it: ours may be wrong by more than the wait.
    return max(0.0, then_s - (_unix_time(server_date) or now_s)) * 1_000


def _unix_time(date: str | None) -> float | None:
    from email.utils import parsedate_to_datetime  # 10 ms to import, needed after a failure only

    try:
        return parsedate_to_datetime(date[:_FIGURE_CHARS]).timestamp() if date else None
    except (ValueError, OverflowError):
        return None


def _duration(text: str) -> float | None:
    parts = _DURATION.findall(text[:_FIGURE_CHARS])
    return sum(float(number) * _UNIT_MS[unit.lower()] for number, unit in parts) if parts else None
