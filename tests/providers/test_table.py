"""The table of providers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hames.ports import Provider
from hames.providers import PROVIDERS, ProviderSettings


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_row_makes_the_provider_of_its_name(name: str) -> None:
    provider: Provider = PROVIDERS[name].make(ProviderSettings("http://127.0.0.1:1/v1", None, "none", b"salt"))

    assert provider.name == name
    assert provider.route["provider"] == name


def test_the_table_imports_no_adapter() -> None:
    code = "import sys, hames.providers\nassert not [m for m in sys.modules if m.startswith('hames.providers.')]"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
