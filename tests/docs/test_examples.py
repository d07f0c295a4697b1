"""The examples of the documentation are what happens: they are made by a run, and a run is held against them.

`HAMES_REWRITE=1 pytest tests/docs` keeps what a run gives; `make gen` then shows it in the pages.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from docs import story, trouble
from docs.book import FAMILIES, Book, Record, differences, named, read, write
from e2e.checks import SCHEMAS, check_shape, strict_frame
from e2e.fixtures import Start
from fake.provider import FakeProvider
from hames.protocol.jsontext import dumps


@pytest.mark.slow
def test_a_run_gives_the_examples_of_the_documentation(
    start: Start, fake: FakeProvider, home: Path, workspace: Path
) -> None:
    book = Book()
    book.known = story.standing(home, workspace, fake.url)
    story.tell(book, start, fake, workspace)
    trouble.tell(book, start, fake, home, workspace)
    assert book.missing() == {}
    got = book.normal()
    if os.environ.get("HAMES_REWRITE"):
        write(got)
        return

    differing = differences(named(read()), named(got))
    assert not differing, "\n".join(["if this is meant: HAMES_REWRITE=1, then make gen", *differing])


def test_there_is_an_example_of_everything() -> None:
    kept = read()

    assert {family: [record["name"] for record in records] for family, records in kept.items()} == {
        family: list(names) for family, names in FAMILIES.items()
    }
    played = {name for name, record in named(kept)["kinds"].items() if "answer" in record or "error" in record}
    assert played == set(FAMILIES["kinds"]) - set(trouble.NOT_RAISED)


@pytest.mark.parametrize("family", ["methods", "kinds"])
def test_each_exchange_fits_its_schemas(family: str) -> None:
    for record in read()[family]:
        if "request" in record:
            request = record["request"]
            validate_params(request["method"], request["params"])
            check_shape(strict_frame(dumps(record["answer"])), {request["id"]: (request["method"], 0)})
        if "error" in record:
            error = {"code": -32000, "message": record["error"]["message"]}
            data = {name: value for name, value in record["error"].items() if name != "message"}
            check_shape(strict_frame(dumps({"jsonrpc": "2.0", "id": 1, "error": error | {"data": data}})), {})


def test_each_notification_and_event_fits_its_schema() -> None:
    kept = read()
    for record in kept["notifications"]:
        check_shape(strict_frame(dumps(record["frame"])), {})
    for record in kept["events"]:
        params = {"subscriptionId": "u-1", **record["entry"]}
        check_shape(strict_frame(dumps({"jsonrpc": "2.0", "method": "event", "params": params})), {})


def validate_params(method: str, params: Record) -> None:
    """Against the published schema of the method's params."""
    schema = json.loads((SCHEMAS / f"methods/{method.replace('/', '.')}.params.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(params)
