"""Documentation and hooks are inseparable: a hook without its section, or with other arguments, is red."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from blumfeld.spi.hooks import Hooks

ROOT = Path(__file__).resolve().parents[1]
HOOKS = {name: spec for name, spec in vars(Hooks).items() if name.startswith("blumfeld_")}


def headings() -> list[str]:
    """The second-level headings of docs/hooks.md."""
    return re.findall(r"^## `(.+)`$", (ROOT / "docs" / "hooks.md").read_text(), flags=re.M)


def test_every_hook_is_documented_with_its_arguments_in_order() -> None:
    """The headings are the specs, in the order of a broker's life."""
    expected = []
    for name, spec in HOOKS.items():
        arguments = [a for a in inspect.signature(spec).parameters if a != "self"]
        expected.append(f"{name}({', '.join(arguments)})")
    assert headings() == expected


@pytest.mark.parametrize("name", HOOKS)
def test_a_hooks_docstring_is_a_contract(name: str) -> None:
    """It says when it is called, and what each argument and the answer are."""
    spec = HOOKS[name]
    text = inspect.getdoc(spec) or ""
    assert "Called" in text
    for argument in inspect.signature(spec).parameters:
        assert argument == "self" or f":param {argument}:" in text
    if inspect.signature(spec).return_annotation not in ("None", None):
        assert ":return:" in text


DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "plugins").glob("*/README.md")], key=str
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_that_a_page_names_is_there(document: Path) -> None:
    """Paths in backticks, from the top, from core/, core/blumfeld/, plugins/ or a plug-in's folder."""
    folders = [ROOT, ROOT / "core", ROOT / "core" / "blumfeld", ROOT / "plugins", document.parent]
    folders += [p for p in (ROOT / "plugins").iterdir() if p.is_dir()]
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
    named = re.findall(r"`([\w.-]+/[\w./-]*(?:\.(?:py|toml|md|txt)|/))`", prose)
    assert not [name for name in named if not any((folder / name).exists() for folder in folders)]
