"""docs/configuration.md is what the tables say."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_tables_say() -> None:
    """Red? Run ``python tools/configuration_page.py > docs/configuration.md``."""
    page = runpy.run_path(str(ROOT / "tools" / "configuration_page.py"))["page"]
    assert (ROOT / "docs" / "configuration.md").read_text() == "\n".join(page()) + "\n"
