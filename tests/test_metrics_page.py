"""docs/metrics.md is what a running broker measures, and the operator's page names nothing else."""

from __future__ import annotations

import re
import runpy
from functools import cache
from pathlib import Path

from blumfeld.cli.manifest import load_manifest
from blumfeld.kernel.composing.plan import make_plan

ROOT = Path(__file__).resolve().parents[1]


@cache
def page() -> list[str]:
    """What the tool writes."""
    lines: list[str] = runpy.run_path(str(ROOT / "tools" / "metrics_page.py"))["page"]()
    return lines


def names(text: str) -> set[str]:
    """The metrics that a text names."""
    return set(re.findall(r"`(blumfeld_\w+)`", text))


def test_the_page_is_what_a_broker_measures() -> None:
    """Red? Run ``python tools/metrics_page.py > docs/metrics.md``."""
    assert (ROOT / "docs" / "metrics.md").read_text() == "\n".join(page()) + "\n"


def test_groups_are_measured() -> None:
    """The metrics port opens before the broker does, and must have the groups' metrics all the same."""
    assert {"blumfeld_groups", "blumfeld_group_rebalances_total"} <= names("\n".join(page()))


def test_what_operators_are_told_to_watch_is_there() -> None:
    """docs/operations.md and docs/manifest.md name metrics; each is one that a broker has."""
    measured = names("\n".join(page()))
    for page_name in ("operations.md", "manifest.md"):
        assert names((ROOT / "docs" / page_name).read_text()) <= measured


def test_events_that_operators_are_told_of_are_logged() -> None:
    """Each event in the table of docs/operations.md is a string in the code."""
    section = (ROOT / "docs" / "operations.md").read_text().partition("## Logs")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    events = {event for row in rows for event in re.findall(r"`([^`]+)`", row)}
    assert len(events) >= 10
    code = [path.read_text() for top in ("core", "plugins") for path in (ROOT / top).rglob("*.py")]
    assert not {event for event in events if not any(f'"{event}"' in text for text in code)}


def test_the_container_s_manifest_can_be_run() -> None:
    """The image starts it as it stands."""
    made = make_plan(load_manifest(str(ROOT / "examples" / "container" / "broker.toml")))
    assert [listener.port for listener in made.listeners] == [9092]
