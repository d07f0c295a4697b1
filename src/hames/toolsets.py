"""Which tools a session gets, and the tools as they are configured here.

Rule: what a session names is what it gets, or it is refused; what it does not name is chosen by its model's family
(`tools.tools_for`). Either way the names stand in its snapshot, and stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hames.config import SETTINGS, Config
from hames.protocol.errors import Refused

if TYPE_CHECKING:
    from hames.ports import Tool


class Toolsets:
    """The tools of a process, as `config` has them. Each is made once, when a session first gets it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._made: dict[tuple[str, bool], Tool] = {}

    def choose(self, wish: Mapping[str, Any], route: Mapping[str, Any], *, network: bool) -> list[str]:
        """The names that stand in the snapshot, from `tools` and `mode` of the params of `session/create`.

        Raises:
            Refused: `invalid_config`: a tool that does not exist, or goes out where there is no network;
                `credential_missing`: one that needs a key.
        """
        from hames.tools import TABLE, tools_for

        if "tools" not in wish:
            strict = wish.get("mode") == "strict"
            return tools_for(route["provider"], route["model"], strict=strict, network=network, is_set=self._is_set)
        wanted = wish["tools"]
        if any(name not in TABLE for name in wanted):
            known = ", ".join(TABLE)
            message = f"`tools` names one that does not exist; there are: {known}."
            raise Refused("invalid_config", message, member="tools", known=list(TABLE))
        chosen = [name for name in TABLE if name in wanted]
        for name in chosen:
            if TABLE[name].uses_network and not network:
                message = f"The tool {name} needs a network, and this session has none."
                raise Refused("invalid_config", message, member="tools")
            needs = TABLE[name].needs
            if needs is not None and not self._is_set(needs):
                variables = " or ".join((SETTINGS[needs].environment, *SETTINGS[needs].fallbacks))
                message = f"The tool {name} wants a key: set {variables}, or run: hames config set {needs} -"
                raise Refused("credential_missing", message, setting=needs)
        return chosen

    def missing(self, names: Collection[str]) -> list[str]:
        """Those of `names` that this build does not have."""
        from hames.tools import TABLE

        return sorted(set(names) - set(TABLE))

    def open(self, names: Collection[str]) -> Sequence[Tool]:
        """The tools called `names`, in the order of the table."""
        from hames.tools import TABLE, ToolSettings

        background = "process" in names
        settings = ToolSettings(
            background=background,
            private_addresses=self._config.get("tools.webFetch.privateAddresses") == "allow",
            search_key=self._config.get("tools.webSearch.apiKey"),
            search_url=self._config.get("tools.webSearch.baseUrl"),
        )
        for name, row in TABLE.items():
            if name in names and (name, background) not in self._made:
                self._made[name, background] = row.make(settings)
        return [self._made[name, background] for name in TABLE if name in names]

    def _is_set(self, setting: str) -> bool:
        return bool(self._config.get(setting))


def about() -> list[dict[str, Any]]:
    """The tools of this build, for `capabilities/describe` and `tools/list`."""
    from hames.tools import TABLE, all_tools

    rows = []
    for tool in all_tools():
        row = TABLE[tool.spec.name]
        offered: dict[str, Any] = {"families": sorted(row.families), "strict": row.is_core}
        if row.needs is not None:
            offered["needs"] = row.needs
        rows.append(
            {
                "name": tool.spec.name,
                "description": tool.spec.description,
                "parameters": dict(tool.spec.parameters),
                "effect": tool.effect,
                "runs": "host" if row.uses_network else "sandbox",
                "offered": offered,
            }
        )
    return rows
