from __future__ import annotations

from typing import get_args

import pytest

from hames.protocol.errors import (
    KINDS,
    ErrorKind,
    HamesError,
    HarnessFault,
    InvalidParams,
    Refused,
    ToolFailed,
)

EVERY: tuple[ErrorKind, ...] = get_args(ErrorKind)


def test_the_table_has_every_kind_and_no_other() -> None:
    assert set(KINDS) == set(EVERY)


@pytest.mark.parametrize("kind", EVERY)
def test_every_kind_says_what_it_means_and_what_to_do(kind: ErrorKind) -> None:
    info = KINDS[kind]

    assert info.meaning.endswith(".")
    assert info.advice.endswith(".")
    assert info.meaning != info.advice


@pytest.mark.parametrize("kind", EVERY)
def test_an_error_carries_its_kind_and_what_the_table_says(kind: ErrorKind) -> None:
    error = Refused(kind)

    assert error.message == f"{KINDS[kind].meaning} {KINDS[kind].advice}"
    assert error.data() == {"kind": kind, "retryable": KINDS[kind].retryable, "details": {}}
    assert str(error).startswith(f"{kind}: ")


def test_what_was_given_wins_over_the_table() -> None:
    error = HarnessFault(
        "model_gateway", "It said 500.", boundary="model_gateway", retryable=False, status=500, kind_of="x"
    )

    assert error.message == "It said 500."
    assert error.data() == {
        "kind": "model_gateway",
        "retryable": False,
        "boundary": "model_gateway",
        "details": {"status": 500, "kind_of": "x"},
    }


def test_refusals_and_faults_are_told_apart() -> None:
    assert not issubclass(Refused, HarnessFault)
    assert not issubclass(HarnessFault, Refused)
    assert issubclass(Refused, HamesError)
    assert not issubclass(ToolFailed, HamesError)


def test_a_failed_tool_keeps_what_goes_back_to_the_model() -> None:
    failed = ToolFailed("not_found", "There is no file a.txt.", path="a.txt")

    assert (failed.kind, failed.message, failed.details) == (
        "not_found",
        "There is no file a.txt.",
        {"path": "a.txt"},
    )
    assert str(failed) == "not_found: There is no file a.txt."


def test_invalid_params_name_the_member_if_there_is_one() -> None:
    assert str(InvalidParams("input[0].text", "is required")) == "input[0].text: is required"
    assert str(InvalidParams("", "must be an object")) == "must be an object"
