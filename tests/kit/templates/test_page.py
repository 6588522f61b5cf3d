"""What is written beside a new plug-in's code: its manifest, and the pages that speak of it."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from blumfeld.kernel.manifest.named import named_plugins
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.plugging.errors import Faults
from blumfeld.plugging.sections import decode_section
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


@pytest.mark.parametrize("role", ROLES)
def test_a_build_of_its_manifest_holds_the_plug_in(role: str) -> None:
    """Each plug-in that the manifest names is bundled or brought by a requirement; a decoder is the archive's."""
    text = distribution_files(role, "acme_x")["broker.toml"]
    faults = Faults("broker.toml")
    manifest = decode_section(tomllib.loads(text), Manifest, "broker.toml", faults=faults)
    faults.tell()
    is_named = "acme_x" in [plugin.name for plugin in named_plugins(manifest)]
    assert is_named == (role != "decoder")
    assert list(manifest.build.requires) == (["acme-x"] if is_named else [])


@pytest.mark.parametrize("role", ROLES)
def test_what_its_code_imports_is_what_it_requires(role: str) -> None:
    texts = distribution_files(role, "acme_x")
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    code = "\n".join(text for path, text in texts.items() if path.startswith("acme_x/"))
    imported = set(re.findall(r"^(?:from|import) (\w+)", code, flags=re.M)) - {"__future__"}
    required = {re.split(r"[^\w-]", line)[0] for line in project["dependencies"]}
    assert imported - sys.stdlib_module_names == required
