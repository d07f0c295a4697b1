"""The text of a web page, with as much of Markdown as tells headings, lists, links and tables. Pure.

Rule: what comes out is bounded, whatever went in: short markup can stand for long addresses.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urljoin

from hames.core.records import record
from hames.tools.markup import Tag, Text, tokens

_UNSEEN: Final = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "head"})
"""What a reader does not see. `head` has the title only."""

_PARAGRAPHS: Final = {
    *("p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "ul", "ol", "dl", "table", "form"),
    *("blockquote", "pre", "figure", "fieldset", "address", "hr", "details", "summary", "body"),
    *("h1", "h2", "h3", "h4", "h5", "h6"),
}
_ROWS: Final = {"br", "li", "tr", "dt", "dd", "option"}

_SPACE: Final = re.compile(r"[ \t\n\r\f\v\u00a0]+")

LINK_CHARS: Final = 500
"""A longer address is left out: it is a tracker's or an embedded file."""


@record
class Readable:
    """A page: its title, and its text. `cut`: it goes on."""

    title: str
    text: str
    cut: bool


def readable(page: str, address: str, *, most: int) -> Readable:
    """The text of the HTML `page`, which came from `address`: `most` characters of it, and the rest of the text that
    goes beyond."""
    made = _Text(address)
    for token in tokens(page):
        if made.size > most:
            return made.result(cut=True)
        if isinstance(token, Text):
            made.add(token)
        elif token.closes:
            made.close(token.name)
        else:
            made.open(token)
    return made.result(cut=False)


class _Text:
    def __init__(self, address: str) -> None:
        self.size = 0
        self._address = address
        self._title = ""
        self._parts: list[str] = []
        self._breaks = 0
        self._space = False
        self._unseen: dict[str, int] = {}
        self._pre = 0
        self._links: list[str] = []

    def add(self, token: Text) -> None:
        """Text of the page."""
        if token.raw == "title" and not self._title:
            self._title = _SPACE.sub(" ", token.text).strip()[:LINK_CHARS]
        if token.raw not in ("", "textarea") or self._unseen:
            return
        if self._pre:
            self._put(token.text.replace("\r\n", "\n"))
            return
        words = _SPACE.sub(" ", token.text)
        if words.startswith(" "):
            self._space = True
        if words.strip(" "):
            self._put(words.strip(" "))
            self._space = words.endswith(" ")

    def open(self, tag: Tag) -> None:
        """A start tag."""
        name = tag.name
        if name in _UNSEEN and not tag.attributes.endswith("/"):
            self._unseen[name] = self._unseen.get(name, 0) + 1
        if name in _PARAGRAPHS:
            # Whoever forgets to end the head begins the body so.
            self._unseen.pop("head", None)
        if self._unseen:
            return
        if name == "base":
            self._address = _joined(self._address, tag.attribute("href")) or self._address
        self._break(name)
        if name == "pre":
            self._pre += 1
        elif name == "li":
            self._put("- ")
        elif re.fullmatch("h[1-6]", name):
            self._put("#" * int(name[1]) + " ")
        elif name in ("td", "th"):
            self._space = True
            self._put("| ")
        elif name == "img" and (alternative := tag.attribute("alt")):
            self.add(Text(f" [image: {alternative}] "))
        elif name == "a":
            link = _joined(self._address, tag.attribute("href"))
            self._links.append(link)
            if link:
                self._put("[")

    def close(self, name: str) -> None:
        """An end tag."""
        if name in self._unseen:
            self._unseen[name] -= 1
            if self._unseen[name] == 0:
                del self._unseen[name]
            return
        if self._unseen:
            return
        if name == "a" and self._links and (link := self._links.pop()):
            self._space = False
            self._put(f"]({link})")
        if name == "pre" and self._pre:
            self._pre -= 1
        if name != "br":
            self._break(name)

    def _break(self, name: str) -> None:
        if name in _PARAGRAPHS:
            self._breaks = max(self._breaks, 2)
        elif name in _ROWS:
            self._breaks = max(self._breaks, 1)

    def _put(self, text: str) -> None:
        if not text:
            return
        if self._parts:
            text = ("\n" * self._breaks or " " * self._space) + text
        self._breaks, self._space = 0, False
        self._parts.append(text)
        self.size += len(text)

    def result(self, *, cut: bool) -> Readable:
        """What came of it."""
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        return Readable(self._title, "\n".join(lines).strip("\n"), cut)


def _joined(address: str, link: str) -> str:
    """The address that `link` leads to; empty where it leads to no other page."""
    if not link or link.startswith("#"):
        return ""
    try:
        joined = urljoin(address, link)
    except ValueError:
        return ""
    return joined if joined.startswith(("http://", "https://")) and len(joined) <= LINK_CHARS else ""
