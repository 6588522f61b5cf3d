"""docs/write-a-plugin.md has each role, and the examples are made as a new plug-in is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from blumfeld_kit.templates.distribution import ROLES, distribution_files

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_has_a_row_for_each_role() -> None:
    page = (ROOT / "docs" / "write-a-plugin.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \|", page, flags=re.M) == list(ROLES)


@pytest.mark.parametrize(
    "example", sorted(path.parent.name for path in ROOT.glob("examples/*/pyproject.toml"))
)
def test_an_example_is_packaged_as_a_new_plug_in(example: str) -> None:
    """A template is where a plug-in begins, an example where one ended. This is all that is the same in both."""
    new = tomllib.loads(distribution_files("observer", example)["pyproject.toml"])
    there = tomllib.loads((ROOT / "examples" / example / "pyproject.toml").read_text())
    assert there["build-system"] == new["build-system"]
    assert there["tool"]["hatch"] == new["tool"]["hatch"]
    for key in ("name", "version", "readme", "requires-python"):
        assert there["project"][key] == new["project"][key]
    assert list(there["project"]["entry-points"]["blumfeld.plugins"].values()) == [f"{example}:Plugin"]
