"""What to do about a failure that a server answers with, by what it cannot know: where it was asked, and for what.

Rule: advice follows from the status and the server's own words alone, so that one failure is never told for another.
The address that is named has no place for a credential: see `http_provider`.
"""

from __future__ import annotations

import re
from typing import Final

from hames.core.records import record
from hames.providers.failures import UNKNOWN_MODEL_CODES, Said

_ELSEWHERE: Final = {*range(300, 400), 404, 405}
"""Statuses of an address at which there is no such API."""

_OF_A_MODEL = re.compile(r"\bmodels?\b|\bdeployment\b|\bendpoints\b", re.IGNORECASE)
"""In a 404: the address is right, and the name is wrong. The last two are words of Azure and of OpenRouter."""

_TOOLS = r"[`'\"]?(tools?|tool[ _-]?(use|calls?|calling)|function[ _-]?call(s|ing)?)[`'\"]?"
_NO_TOOLS = re.compile(
    rf"(not|n't|cannot|that) support (the (use|parameter)( of)? )?{_TOOLS}(?!\w)"
    rf"|\b{_TOOLS} (is|are) (not|un)[ ]?supported"
    r"|enable-auto-tool-choice|tools param requires",  # vLLM and llama.cpp, started without what they need for it
    re.IGNORECASE,
)


@record
class Asked:
    """One request of a provider: `path` below `base_url`, which usually ends with `base_path`."""

    provider: str
    base_url: str
    path: str
    base_path: str
    has_tools: bool = False
    is_listing: bool = False

    def advice(self, status: int | None, said: Said) -> str | None:
        """What to do about a failure, None where nothing is known. `status` is None within a stream that began well."""
        if self.has_tools and status not in (401, 403, 429) and _NO_TOOLS.search(said.message):
            return (
                "Hames sent tools with the request: take a model, or a setting of the server, that knows them, or make "
                "a session without (`hames run --tools none`, `tools: []` of `session/create`)."
            )
        if self._is_of_the_model(status, said):
            return f"`hames models {self.provider}` lists the names that it knows."
        return self.check_address() if status in _ELSEWHERE else None

    def check_address(self) -> str:
        """What to look at where something else than the API answers."""
        setting = f"`providers.{self.provider}.baseUrl`"
        usual = "" if self.base_url.endswith(self.base_path) else f", which usually ends with {self.base_path}"
        return f"Asked was {self.base_url}{self.path}: check the base URL, {setting}{usual}."

    def _is_of_the_model(self, status: int | None, said: Said) -> bool:
        if self.is_listing or status not in (None, 404):
            return False
        if "model_not_found" in said.codes or (status is None and UNKNOWN_MODEL_CODES & set(said.codes)):
            return True
        # A server that repeats the path has said nothing of a model, though Gemini's paths name one.
        words = said.message.replace(self.path.partition("?")[0], "")
        return status == 404 and bool(_OF_A_MODEL.search(words))
