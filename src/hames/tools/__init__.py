"""The tools a model may call, and the table of them.

Rule 1: a tool is one module and one row in `TABLE`; it reaches files and commands only through its context.
Rule 2: what the model can mend is `ToolFailed`; what it is told holds no path outside the workspace (AH-TOOL-10).
Rule 3: every answer is bounded by `context.limits`, and says what was left out.
Rule 4: a session gets the tools that its snapshot names. What is not named when it is made, `tools_for` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, get_args

from hames.core.profiles import Family, profile_of
from hames.core.records import record
from hames.ports import Tool
from hames.tools.bash import BashTool
from hames.tools.edit import EditTool
from hames.tools.glob import GlobTool
from hames.tools.grep import GrepTool
from hames.tools.read import ReadTool
from hames.tools.write import WriteTool

__all__ = ["CORE", "TABLE", "ToolRow", "ToolSettings", "all_tools", "tools_for"]

ALL: Final[frozenset[Family]] = frozenset(get_args(Family))


@record
class ToolSettings:
    """What the operator configures of tools: see `config.SETTINGS`. `background`: the session has the tool that looks
    after what runs there."""

    private_addresses: bool = False
    search_key: str | None = None
    search_url: str | None = None
    background: bool = True


@record
class ToolRow:
    """A tool, and who gets it unasked: the `families` of models whose own harness has one like it.

    `is_core`: a strict session gets it too. `needs`: the setting without which nobody gets it. `uses_network`: it goes
    out by itself, so no session without a network gets it.
    """

    make: Callable[[ToolSettings], Tool]
    families: frozenset[Family] = ALL
    is_core: bool = False
    needs: str | None = None
    uses_network: bool = False


# Beyond the core, a tool is imported by who gets it: every first session waits for what stands above.


def _apply_patch(_settings: ToolSettings) -> Tool:
    from hames.tools.apply_patch import ApplyPatchTool

    return ApplyPatchTool()


def _list_dir(_settings: ToolSettings) -> Tool:
    from hames.tools.list_dir import ListDirTool

    return ListDirTool()


def _process(_settings: ToolSettings) -> Tool:
    from hames.tools.process import ProcessTool

    return ProcessTool()


def _read_many_files(_settings: ToolSettings) -> Tool:
    from hames.tools.read_many_files import ReadManyFilesTool

    return ReadManyFilesTool()


def _todo(_settings: ToolSettings) -> Tool:
    from hames.tools.todo import TodoTool

    return TodoTool()


def _view_image(_settings: ToolSettings) -> Tool:
    from hames.tools.view_image import ViewImageTool

    return ViewImageTool()


def _web_fetch(settings: ToolSettings) -> Tool:
    from hames.tools.web_address import anywhere
    from hames.tools.web_client import WebClient
    from hames.tools.web_fetch import WebFetchTool

    return WebFetchTool(WebClient(anywhere) if settings.private_addresses else WebClient())


def _web_search(settings: ToolSettings) -> Tool:
    from hames.tools.web_address import anywhere
    from hames.tools.web_client import WebClient
    from hames.tools.web_search import WebSearchTool

    # The address is the operator's own.
    return WebSearchTool(WebClient(anywhere), settings.search_key, base_url=settings.search_url)


TABLE: Final[Mapping[str, ToolRow]] = {
    "read": ToolRow(lambda _: ReadTool(), is_core=True),
    "write": ToolRow(lambda _: WriteTool(), is_core=True),
    "edit": ToolRow(lambda _: EditTool(), is_core=True),
    "bash": ToolRow(lambda settings: BashTool(background=settings.background), is_core=True),
    "grep": ToolRow(lambda _: GrepTool(), is_core=True),
    "glob": ToolRow(lambda _: GlobTool(), is_core=True),
    "process": ToolRow(_process),
    "apply_patch": ToolRow(_apply_patch, frozenset({"openai"})),
    "view_image": ToolRow(_view_image, frozenset({"openai"})),
    "list_dir": ToolRow(_list_dir, frozenset({"gemini"})),
    "read_many_files": ToolRow(_read_many_files, frozenset({"gemini"})),
    "todo": ToolRow(_todo),
    "web_fetch": ToolRow(_web_fetch, uses_network=True),
    "web_search": ToolRow(_web_search, needs="tools.webSearch.apiKey", uses_network=True),
}

CORE: Final[tuple[str, ...]] = tuple(name for name, row in TABLE.items() if row.is_core)


def tools_for(provider: str, model: str, *, strict: bool, network: bool, is_set: Callable[[str], bool]) -> list[str]:
    """The tools of a session that names none. `is_set` tells of a setting whether it has a value."""
    if strict:
        return list(CORE)
    family = profile_of(provider, model).family
    return [
        name
        for name, row in TABLE.items()
        if family in row.families and (network or not row.uses_network) and (row.needs is None or is_set(row.needs))
    ]


def all_tools(settings: ToolSettings | None = None) -> list[Tool]:
    """One of each, made for the `settings`; without any as nothing is configured, for describing them."""
    return [row.make(settings or ToolSettings()) for row in TABLE.values()]
