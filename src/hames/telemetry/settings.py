"""The values of the settings `telemetry.*`. Light, without I/O: every start checks its configuration."""

from __future__ import annotations

import re

TRACES_PATH = "/v1/traces"
"""Added to an endpoint (https://opentelemetry.io/docs/specs/otlp/#otlphttp-request)."""

_OF_A_CREDENTIAL = re.compile("auth|cookie|credential|dsn|key|password|secret|token", re.IGNORECASE)
"""In the name of a header."""

_LIKE_A_KEY = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z]).{16,}")
"""A value under another name: some collectors take their key as that of a team. A name of a tenant is none."""

TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
"""A name of a header: RFC 9110, section 5.6.2."""


def checked(name: str, value: str) -> str:
    """`value` of a setting `telemetry.<name>`.

    Raises:
        ValueError: it is none; the text goes on a sentence that begins with the setting, and holds no secret.
    """
    match name:
        case "endpoint":
            if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", value):
                raise ValueError("must be an http or https URL without user, query and fragment")
        case "headers":
            headers_of(value)
    return value


def traces_url(endpoint: str) -> str:
    """Where spans are posted."""
    base = endpoint.rstrip("/")
    return base if base.endswith(TRACES_PATH) else base + TRACES_PATH


def headers_of(text: str) -> dict[str, str]:
    """`name=value,…` with percent-encoded values, as in `OTEL_EXPORTER_OTLP_HEADERS`
    (https://opentelemetry.io/docs/specs/otel/protocol/exporter/).

    Raises:
        ValueError: it is no such list.
    """
    from urllib.parse import unquote

    headers = {}
    for pair in filter(None, (pair.strip() for pair in text.split(","))):
        name, is_pair, value = (part.strip() for part in pair.partition("="))
        value = unquote(value)
        if not is_pair or not re.fullmatch(TOKEN, name) or not value.isascii() or not value.isprintable():
            raise ValueError("must be `name=value`, several with commas between, with percent-encoded values")
        headers[name.lower()] = value
    return headers


def secrets_of(text: str | None) -> tuple[str, ...]:
    """What of `text`, a value of `telemetry.headers`, gives access: values, also without a `Bearer` before them."""
    try:
        headers = headers_of(text or "")
    except ValueError:
        return ()
    values = [
        value
        for name, value in headers.items()
        if _OF_A_CREDENTIAL.search(name) or _LIKE_A_KEY.fullmatch(value.rpartition(" ")[2])
    ]
    return tuple(dict.fromkeys(secret for value in values for secret in (value, value.rpartition(" ")[2]) if secret))
