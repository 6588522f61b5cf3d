"""The builder stands above the broker and beside the laboratory: the broker doesn't know it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def imported(folder: str) -> set[str]:
    """Top-level names that the modules of a folder import."""
    texts = [path.read_text() for path in (ROOT / folder).rglob("*.py")]
    return {name for text in texts for name in re.findall(r"^\s*(?:from|import) (\w+)", text, flags=re.M)}


def test_the_broker_and_its_plugins_dont_import_the_builder() -> None:
    assert "blumfeld_builder" not in imported("core") | imported("plugins") | imported("kit") | imported(
        "bench"
    )


def test_the_builder_imports_nothing_that_a_broker_lacks() -> None:
    """The kit is run beside a build (`--check`), not in the builder's own process."""
    assert {name for name in imported("builder") if name.startswith("blumfeld_")} == {"blumfeld_builder"}
    assert "campaigns" not in imported("builder")
