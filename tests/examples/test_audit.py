"""An observer as a stranger would write it: found, named in a manifest, and what it wrote of a client's requests."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer

from tests.examples.stranger import EXAMPLES, Stranger

EXAMPLE = EXAMPLES / "acme_audit"
MANIFEST = '[plugins]\nobservers = ["audit"]\n'


def test_it_is_found_by_its_entry_point(stranger: Stranger) -> None:
    plan = stranger.plan()
    assert any("observers" in line and "acme-audit 0.1.0" in line for line in plan.splitlines()), plan


def test_it_writes_who_asked_what(stranger: Stranger) -> None:
    with stranger.broker() as address:
        producer = Producer({"bootstrap.servers": address, "client.id": "ticker"})
        producer.produce("audited", b"x")
        assert producer.flush(20) == 0
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
    stranger.kit(EXAMPLE)


def test_options_of_an_observer_that_is_not_named_are_refused(stranger: Stranger) -> None:
    stranger.manifest.write_text("[plugins.options.audit]\npath = 'x'\n")
    with pytest.raises(
        AssertionError, match=r"plugins\.options\.audit: found options for a plug-in that isn't"
    ):
        stranger.plan()
