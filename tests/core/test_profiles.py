from __future__ import annotations

import pytest

from hames.core.framing import FRAME
from hames.core.profiles import PROFILES, profile_of


@pytest.mark.parametrize(
    ("provider", "model", "family"),
    [
        ("anthropic", "anything", "anthropic"),
        ("openai", "o9", "openai"),
        ("gemini", "x", "gemini"),
        ("compatible", "anthropic/Claude-Sonnet-9", "anthropic"),
        ("compatible", "gpt-oss-20b", "openai"),
        ("compatible", "google/gemini-9-flash", "gemini"),
        ("compatible", "qwen3", "other"),
        ("offline", "offline", "other"),
        ("other", "x", "other"),
    ],
)
def test_a_family_is_told_by_the_provider_or_the_name_of_the_model(provider: str, model: str, family: str) -> None:
    assert profile_of(provider, model).family == family


def test_every_profile_reads_agents_md_first_and_says_the_same_in_common() -> None:
    prompts = [profile.prompt for profile in PROFILES.values()]

    assert all(profile.documents[0] == "AGENTS.md" for profile in PROFILES.values())
    assert len({prompt.split("\n")[0] for prompt in prompts}) == 1
    assert len(set(prompts)) == len(prompts)
    assert not any(FRAME in prompt for prompt in prompts)
