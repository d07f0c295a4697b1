"""The replacement of what belongs to one run."""

from __future__ import annotations

from docs.normal import LONGEST_LIST, LONGEST_TEXT, Normal


def test_the_same_value_is_replaced_by_the_same_one_everywhere() -> None:
    normal = Normal({})
    one, other = (normal.plain({"turnId": f"t-{digit * 20}", "cursor": f"7.{digit * 12}"}) for digit in "ab")
    again = normal.plain({"events": [{"cursor": f"7.{'a' * 12}"}]})

    assert one["turnId"] != other["turnId"]
    assert again["events"][0]["cursor"] == one["cursor"]
    assert one["cursor"].startswith("7.")


def test_two_runs_give_the_same() -> None:
    runs = [
        {
            "sessionId": f"s-{digit * 20}",
            "seq": 3,
            "time": f"2026-11-30T12:00:00.00{digit}Z",
            "data": {"pid": int(digit * 4), "durationMs": int(digit), "message": f"in /tmp/{digit}/w, pid {digit * 4}"},
        }
        for digit in "12"
    ]

    one, other = (
        Normal({f"/tmp/{digit}/w": "/home/ada/project", digit * 4: "4711"}).plain(run)
        for digit, run in zip("12", runs, strict=True)
    )

    assert one == other
    assert one["data"]["message"] == "in /home/ada/project, pid 4711"


def test_an_artifact_keeps_the_beginning_of_its_digest() -> None:
    digest = "0123456789abcdef" * 4

    plain = Normal({}).plain({"artifact": f"a-{digest[:32]}", "sha256": digest})

    assert plain["sha256"] != digest
    assert plain["artifact"] == f"a-{plain['sha256'][:32]}"


def test_long_values_are_shortened_and_messages_are_not() -> None:
    long = "x" * 1_000

    plain = Normal({}).plain({"text": long, "message": long, "list": [1, 2, 3, 4, 5, 6, 7]})

    assert (len(plain["text"]), plain["message"]) == (LONGEST_TEXT, long)
    assert len(plain["list"]) == LONGEST_LIST - 1
