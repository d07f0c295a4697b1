"""HTML as tags and text: as much of its grammar as reading a page needs. Pure.

Rule 1: linear in the size of the text, whatever it holds: pages come from anybody. (`html.parser` of the standard
library takes minutes for a megabyte of `<a `.)
Rule 2: nothing is an error. What a browser would mend in ways of its own is read in the simplest way that goes on.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final

from hames.core.records import record

_TAG: Final = re.compile(r"""</?([a-zA-Z][^\s/>]{0,50}+)((?:[^>"']++|"[^"]*+"|'[^']*+')*+)>""")
_HASTY_TAG: Final = re.compile(r"</?([a-zA-Z][^\s/>]{0,50}+)([^>]*+)>")
"""Possessive, so that a tag that does not end is found out once and not from each of its characters."""

_RAW: Final = {
    name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "textarea", "title", "noscript")
}
"""Elements whose content holds no tags (HTML, 13.1.2); and `noscript`, which is for browsers that run nothing."""

_ATTRIBUTE: Final = r"""(?:^|[\s"'/])%s\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))"""
_LONG_REFERENCE: Final = re.compile(r"&#(?:[0-9]{8,}+|[xX][0-9a-fA-F]{8,}+);?")
"""A character reference beyond Unicode, with more digits than Python converts."""


@record
class Text:
    """Text, its character references resolved. `raw`: of which element, where that one holds no tags."""

    text: str
    raw: str = ""


@record
class Tag:
    """A start or end tag. `attributes` as they are written."""

    name: str
    attributes: str
    closes: bool

    def attribute(self, name: str) -> str:
        """An attribute's value, empty where there is none."""
        found = re.search(_ATTRIBUTE % re.escape(name), self.attributes, re.IGNORECASE)
        return "" if found is None else resolved(found[1] or found[2] or found[3] or "").strip()


def resolved(text: str) -> str:
    """`text` with its character references resolved."""
    return html.unescape(_LONG_REFERENCE.sub("\ufffd", text)) if "&" in text else text


def tokens(page: str) -> Iterator[Text | Tag]:
    """The tags and texts of `page`; comments, declarations and a tag that does not end are left out."""
    pattern = _TAG
    place = 0
    while place < len(page):
        start = page.find("<", place)
        if start < 0:
            yield Text(resolved(page[place:]))
            return
        if start > place:
            yield Text(resolved(page[place:start]))
        if page.startswith(("<!", "<?"), start):
            closing = "-->" if page.startswith("<!--", start) else ">"
            end = page.find(closing, start + 2)
            if end < 0:
                return
            place = end + len(closing)
            continue
        if not page[start + 1 : start + 3].lstrip("/")[:1].isalpha():
            yield Text("<")
            place = start + 1
            continue
        found = pattern.match(page, start)
        if found is None and pattern is _TAG:
            # A quote does not end. From here on quotes mean nothing, or each tag would look for its end again.
            pattern = _HASTY_TAG
            found = pattern.match(page, start)
        if found is None:
            if page.find(">", start) < 0:
                return
            yield Text("<")
            place = start + 1
            continue
        tag = Tag(found[1].lower(), found[2], page.startswith("</", start))
        yield tag
        place = found.end()
        if tag.name in _RAW and not tag.closes:
            end_tag = _RAW[tag.name].search(page, place)
            end = len(page) if end_tag is None else end_tag.start()
            yield Text(resolved(page[place:end]), tag.name)
            place = end
