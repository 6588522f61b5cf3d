"""docs/plugin-api.txt is what a plug-in may import, with signatures; examples and templates need no more than that."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from blumfeld import moved, spi

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "plugin-api.txt"
TOOL: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "plugin_api_page.py"))
MESSAGES = "blumfeld.wire.messages"


def imports(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(file, module, name) of every import of Blumfeld below a folder."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
                "blumfeld",
                "blumfeld_kit",
            ):
                yield from (
                    (str(path.relative_to(ROOT)), str(node.module), alias.name) for alias in node.names
                )


def test_a_change_of_a_public_name_changes_the_file() -> None:
    """Red? Run ``python tools/plugin_api_page.py``, read what it changes, and raise ``spi.VERSION`` by the rules of
    docs/plugin-api.md.
    """
    assert FILE.read_text() == TOOL["page"]()


def test_the_examples_and_the_templates_import_public_names_only() -> None:
    """Strangers copy them. A name that they need is public, or they must do without it."""
    public: set[tuple[str, str]] = TOOL["names"](FILE.read_text())
    templates = ROOT / "kit" / "blumfeld_kit" / "templates"
    all_imports = [*imports(ROOT / "examples"), *imports(templates)]
    assert len(all_imports) > 80
    of_the_command = {str(path.relative_to(ROOT)) for path in templates.glob("*.py")}
    private = [
        entry
        for entry in all_imports
        if entry[1:] not in public and not entry[1].startswith(MESSAGES) and entry[0] not in of_the_command
    ]
    assert private == []


def test_what_has_moved_is_public_at_its_new_place() -> None:
    public: set[tuple[str, str]] = TOOL["names"](FILE.read_text())
    modules = {module for module, _ in public}
    for (_, name), new in moved.NAMES.items():
        assert (new, name) in public
    for new in moved.MODULES.values():
        assert new in modules or any(new.startswith(f"{module}.") for module in modules)


BEFORE = """# names, spi 1.4. rules

blumfeld.spi.groups
    class TransactionCoordinator(Protocol)
        def start(self) -> None

blumfeld.spi.parts
    join: Callable
    def release(parts: Sequence[Part]) -> None

blumfeld.wire.records
    async def records(batch: RecordBatch) -> None
"""


Change = Callable[[str], str]
JOIN, RELEASE = "blumfeld.spi.parts.join", "blumfeld.spi.parts.release"
CHANGES: list[tuple[str, Change, list[str]]] = [
    ("nothing", lambda text: text, []),
    ("a name", lambda text: text.replace("    join: Callable\n", ""), [JOIN]),
    (
        "a name, by a major version",
        lambda text: text.replace("    join: Callable\n", "").replace("1.4", "2.0"),
        [],
    ),
    (
        "a module, and one that has moved",
        lambda text: text.partition("blumfeld.spi.parts")[0],
        [JOIN, RELEASE],
    ),
    ("a name that has moved", lambda text: text.replace("class TransactionCoordinator", "class Other"), []),
    ("a signature", lambda text: text.replace("-> None", "-> int"), []),
]


@pytest.mark.parametrize(
    ("change", "gone"), [change[1:] for change in CHANGES], ids=[change[0] for change in CHANGES]
)
def test_no_public_name_is_dropped_in_silence(change: Change, gone: list[str]) -> None:
    assert TOOL["dropped"](BEFORE, change(BEFORE)) == gone


def test_the_file_and_the_page_name_the_version() -> None:
    assert TOOL["version"](FILE.read_text()) == spi.VERSION
    assert f"`{spi.VERSION}`" in (ROOT / "docs" / "plugin-api.md").read_text()
