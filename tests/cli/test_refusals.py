"""What differs of a session that does not fit is told in words, with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from hames.commands.refusals import MISMATCH, told_refusal

KEY = {"source": "file", "fingerprint": "0a1b2c", "owner": "team compilers"}


@pytest.mark.parametrize(
    ("member", "recorded", "found", "told", "advice"),
    [
        ("workspace", "/one", "/two", "recorded /one, found /two", "--workspace"),
        ("workspace.path", "/one", None, "recorded /one, found none", "Put the directory back"),
        ("model.baseUrl", "http://one/v1", "http://two/v1", "recorded http://one/v1, found http://two/v1", "--model"),
        (
            "model.credential",
            KEY,
            {"source": "none"},
            "recorded the key 0a1b2c (file, of team compilers), found no key",
            "--model <provider>/<model>",
        ),
        ("tools", ["read", "bash"], [], "recorded read, bash, found none", "a build of Hames that has"),
        (
            "sandbox.guarantees",
            {"net.disabled": "yes", "fs.read_confined": "yes"},
            {"net.disabled": "no", "fs.read_confined": None},
            "recorded net.disabled yes, fs.read_confined yes, found net.disabled no, fs.read_confined none",
            "hames doctor",
        ),
        ("of.another.build", 1, 2, "recorded 1, found 2", "begin a new session"),
    ],
)
def test_a_member_that_differs_is_told_in_words(member: str, recorded: Any, found: Any, told: str, advice: str) -> None:
    fields = [{"member": member, "recorded": recorded, "found": found}]

    first, row, last = told_refusal("authority_mismatch", "m", {"fields": fields}).split("\n  ")

    assert first == f"{MISMATCH} [authority_mismatch]"
    assert row == f"{member}: {told}"
    assert advice in last


def test_what_to_do_is_told_once_for_all_that_it_mends() -> None:
    fields = [
        {"member": "model.baseUrl", "recorded": "a", "found": "b"},
        {"member": "model.credential", "recorded": KEY, "found": {**KEY, "fingerprint": "ff"}},
    ]

    assert told_refusal("authority_mismatch", "m", {"fields": fields}).count("--model <provider>/<model>") == 1


def test_another_refusal_keeps_its_words() -> None:
    assert told_refusal("session_not_found", "There is none.", {}) == "There is none. [session_not_found]"
    assert told_refusal("", "params.x is wrong", {}) == "params.x is wrong"
