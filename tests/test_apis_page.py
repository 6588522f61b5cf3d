"""docs/apis.md is what a composed broker serves."""

from __future__ import annotations

import runpy
from pathlib import Path

from blumfeld.wire.api import API_BY_KEY

ROOT = Path(__file__).resolve().parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "apis_page.py"))


def test_the_page_is_what_the_broker_serves() -> None:
    """Red? Run ``python tools/apis_page.py > docs/apis.md``."""
    assert (ROOT / "docs" / "apis.md").read_text() == "\n".join(TOOL["page"]()) + "\n"


def test_the_page_has_each_api_once() -> None:
    """An API is served, or it stands among those that are not."""
    rows = [line.split("|")[1].strip() for line in TOOL["page"]() if line.startswith("| ")]
    assert sorted(int(key) for key in rows if key.isdigit()) == sorted(API_BY_KEY)
