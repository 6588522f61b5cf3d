"""An observer as a stranger would write it: found, named in a manifest, and what it wrote of a client's requests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from blumfeld.testing.process import free_port
from tests.examples.test_plugin import ROOT, Stranger, lay_out

EXAMPLE = ROOT / "examples" / "acme_audit"
MANIFEST = '[plugins]\nobservers = ["audit"]\n'


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    """With the plug-in in a folder on the path."""
    target = tmp_path / "site"
    target.mkdir()
    lay_out(target, EXAMPLE)
    made = Stranger(sys.executable, tmp_path, target)
    made.manifest.write_text(MANIFEST)
    return made


def test_it_is_found_by_its_entry_point(stranger: Stranger) -> None:
    plan = stranger.run("blumfeld.cli.main", "plan", str(stranger.manifest))
    assert any("observers" in line and "acme-audit 0.1.0" in line for line in plan.splitlines()), plan


def test_it_writes_who_asked_what(stranger: Stranger) -> None:
    port = free_port()
    process = stranger.broker(port)
    try:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "ticker"})
        producer.produce("audited", b"x")
        assert producer.flush(20) == 0
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    lines = [json.loads(line) for line in (stranger.folder / "data" / "audit.jsonl").read_text().splitlines()]
    events = [(line["event"], line["name"]) for line in lines if "event" in line]
    assert events[:4] == [  # then the partition loses its leader, in the orderly way down
        ("node started", "1"),
        ("topic created", "audited"),
        ("leader changed", "audited-0 to 1 in epoch 0"),
        ("node stopping", "1"),
    ]
    produced = [line for line in lines if line.get("api") == "Produce"]
    assert [(line["client_id"], line["error_code"]) for line in produced] == [("ticker", 0)]


def test_it_passes_the_contract_kit_as_its_author_would_run_it(stranger: Stranger) -> None:
    assert " passed" in stranger.run(
        "pytest", "-q", "--hypothesis-seed=0", "-p", "no:cacheprovider", str(EXAMPLE / "tests")
    )


def test_options_of_an_observer_that_is_not_named_are_refused(stranger: Stranger) -> None:
    stranger.manifest.write_text("[plugins.options.audit]\npath = 'x'\n")
    with pytest.raises(
        AssertionError, match=r"plugins\.options\.audit: found options for a plug-in that isn't"
    ):
        stranger.run("blumfeld.cli.main", "plan", str(stranger.manifest))
