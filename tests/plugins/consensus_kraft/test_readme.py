"""The page of consensus_kraft lists the configuration keys that the plug-in and the controller read."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PLUGIN = ROOT / "plugins" / "consensus_kraft"
READ = re.compile(r"config\.(?:int|list|bool|float|str)\(\s*\"([a-z.]+)\"")


def _read_in(folder: Path) -> set[str]:
    return {key for path in folder.rglob("*.py") for key in READ.findall(path.read_text())}


def test_the_options_are_the_keys_that_are_read() -> None:
    """Keys that are put together from parts are not looked for: the bounds of group configurations."""
    read = _read_in(PLUGIN / "blumfeld_consensus_kraft") | _read_in(ROOT / "core" / "blumfeld" / "metadata")
    options = (PLUGIN / "README.md").read_text().partition("## Options")[2].partition("##")[0]
    assert len(read) >= 10
    assert set(re.findall(r"`([a-z.]+\.[a-z.]+)`", options)) == read
