"""What may be configured of sandboxes."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from hames import sandboxes
from hames.config import SANDBOXES, load_config
from hames.protocol.errors import Refused
from hames.protocol.objects import SandboxName


def test_the_sandboxes_that_can_be_configured_are_those_that_can_be_asked_for() -> None:
    assert get_args(SandboxName) == SANDBOXES
    assert sandboxes.DEFAULT in SANDBOXES
    assert [row["name"] for row in sandboxes.about()] == [name for name in SANDBOXES if name != "auto"]


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("HAMES_SANDBOX", "docker", "local or contained or landlock or auto"),
        ("HAMES_BUBBLEWRAP", "bwrap", "an absolute path"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(tmp_path: Path, variable: str, value: str, allowed: str) -> None:
    with pytest.raises(Refused) as failure:
        load_config({"HOME": str(tmp_path), variable: value})

    assert failure.value.kind == "invalid_config"
    assert allowed in failure.value.message


def test_settings_of_the_sandbox_are_taken_as_they_are(tmp_path: Path) -> None:
    config = load_config({"HOME": str(tmp_path), "HAMES_SANDBOX": "auto", "HAMES_BUBBLEWRAP": "/opt/bwrap"})

    assert (config.get("sandbox"), config.get("bubblewrap")) == ("auto", "/opt/bwrap")
