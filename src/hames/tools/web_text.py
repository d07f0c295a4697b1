"""What a server's answer is, and its text. Pure.

Rule: the encoding is one that pages use; a name of Python's own (`rot13`, `unicode_escape`) is none.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from hames.tools.clip import valid

HTML: Final = frozenset({"text/html", "application/xhtml+xml"})

_TEXTS: Final = frozenset(
    {
        "application/json",
        "application/xml",
        "application/javascript",
        "application/x-javascript",
        "application/ecmascript",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/x-sh",
        "application/x-ndjson",
        "application/sql",
    }
)

_ENCODINGS: Final = re.compile(
    "utf-?8.*|utf-?16.*|ascii|iso8859.*|latin.*|cp1?[0-9]{3}|koi8-.|gb.*|big5.*|euc_.*|shift_jis.*|mac-.*|tis-620"
)
"""By Python's names for them; those of the WHATWG's Encoding Standard."""

_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))

SNIFF_BYTES: Final = 1_024
"""Where a page says its encoding (HTML, 13.2.3.2)."""


def media_type(content_type: str) -> str:
    """The type without its parameters, in lower case; empty where there is none."""
    return content_type.partition(";")[0].strip().lower()


def is_text(media: str, body: bytes) -> bool:
    """`body` of the type `media` is for reading. What says no type, or `application/octet-stream`, is looked at."""
    if media in ("", "application/octet-stream"):
        return b"\0" not in body[:SNIFF_BYTES]
    return media.startswith("text/") or media in HTML | _TEXTS or media.endswith(("+json", "+xml"))


def decoded(body: bytes, content_type: str) -> str:
    """`body` as text, by its mark, its header, or what the page says itself, else as UTF-8; always valid Unicode."""
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            return _clean(body, encoding)
    declared = _CHARSET.search(content_type) or _CHARSET.search(body[:SNIFF_BYTES].decode("latin-1"))
    return _clean(body, _known(declared[1]) if declared else "utf-8")


def _known(name: str) -> str:
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return "utf-8"
    if found in ("iso8859-1", "ascii"):
        # What is called so on the web is this (Encoding Standard, 4.2).
        return "cp1252"
    return found if _ENCODINGS.fullmatch(found) else "utf-8"


def _clean(body: bytes, encoding: str) -> str:
    return valid(body.decode(encoding, "replace")).replace("\0", "\ufffd").replace("\r\n", "\n")
