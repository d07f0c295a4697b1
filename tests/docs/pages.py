"""The pages of the documentation, taken apart: blocks that are played, headings, links."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PAGES = tuple(
    sorted(
        path.relative_to(ROOT).as_posix()
        for path in (
            *ROOT.glob("*.md"),
            *ROOT.glob("protocol/*.md"),
            *ROOT.glob("docs/**/*.md"),
            *ROOT.glob("clients/*/*.md"),
        )
    )
)

_BLOCK = re.compile(r"^<!-- test: (\w+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def text(page: str) -> str:
    """A page, by its path from the root of the repository."""
    return (ROOT / page).read_text("utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    """The blocks behind `<!-- test: name -->`, each with its name, in order."""
    return _BLOCK.findall(text(page))


def links(page: str) -> list[str]:
    """The targets of a page's links."""
    return _LINK.findall(_FENCED.sub("", text(page)))


def anchors(path: Path) -> set[str]:
    """The fragments that a page's headings can be linked by: lower case, punctuation dropped, spaces as dashes."""
    headings = _HEADING.findall(_FENCED.sub("", path.read_text("utf-8")))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def pattern(shown: str) -> re.Pattern[str]:
    """What a line looks like that is shown so: `…` stands for anything."""
    return re.compile(".*".join(re.escape(part) for part in shown.split("…")))
