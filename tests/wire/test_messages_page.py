"""Each message module says how it is made, and the index names it."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.everyday import for_each

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "messages_page.py"))
CONVERTER = runpy.run_path(str(ROOT / "tools" / "convert_messages.py"))
MESSAGES = ROOT / "core" / "blumfeld" / "wire" / "messages"


def test_the_index_is_what_the_tool_prints() -> None:
    """Red? Run ``python tools/messages_page.py > core/blumfeld/wire/messages/README.md``."""
    assert (MESSAGES / "README.md").read_text() == TOOL["page"]()


@for_each(sorted(TOOL["modules"]()))
def test_a_module_says_how_it_is_made_and_is_in_the_index(module: str) -> None:
    kafkas = CONVERTER["KAFKA"], CONVERTER["ZOOKEEPERS_KAFKA"]
    banners = tuple(CONVERTER["BANNER"].format(kafka) + '"""' for kafka in kafkas)
    assert (MESSAGES / f"{module}.py").read_text().startswith(banners)
    assert f"| [{module}]({module}.py) |" in (MESSAGES / "README.md").read_text()
