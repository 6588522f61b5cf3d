"""Internal topics have their names in one place."""

from __future__ import annotations

import ast
from pathlib import Path

from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, is_internal

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "core" / "blumfeld" / "spi" / "internal_topics.py"


def test_no_other_module_spells_the_name_of_an_internal_topic() -> None:
    """A literal that is exactly such a name. Docstrings may mention one."""
    names = {*INTERNAL_TOPICS, CLUSTER_METADATA_TOPIC}
    sources = {
        path: path.read_text(encoding="utf-8")
        for base in ("core", "plugins")
        for path in sorted((ROOT / base).rglob("*.py"))
        if path != HOME
    }
    places = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, source in sources.items()
        if any(name in source for name in names)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert not places, places


def test_the_metadata_log_is_no_topic_of_a_coordinator() -> None:
    assert all(is_internal(name) for name in INTERNAL_TOPICS)
    assert not is_internal(CLUSTER_METADATA_TOPIC)
