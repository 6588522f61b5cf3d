"""An assignor as a stranger would bring it: installed, named in a manifest, offered to clients."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer

from blumfeld_bench.drivers.wire_client import WireClient
from tests.examples.stranger import EXAMPLES, Stranger

EXAMPLE = EXAMPLES / "acme_assignor_standby"
OFFERED = '["uniform", "range", "standby"]'
MANIFEST = f"""
[groups]
assignors = ["assignor_standby"]

[config]
"group.consumer.assignors" = {OFFERED}
"group.consumer.min.heartbeat.interval.ms" = 100
"group.consumer.heartbeat.interval.ms" = 100
"""
WHOLE = [0, 1, 2]


def consumer(server: str, assignor: str) -> Consumer:
    settings = {
        "bootstrap.servers": server,
        "group.id": "books",
        "group.protocol": "consumer",
        "group.remote.assignor": assignor,
        "auto.offset.reset": "earliest",
    }
    made = Consumer(settings)
    made.subscribe(["bids", "asks"])
    return made


def read(consumers: list[Consumer], until: float = 60.0) -> list[dict[str, list[int]]]:
    """Until each has a topic: what each has."""
    deadline = time.monotonic() + until
    while time.monotonic() < deadline:
        held = []
        for member in consumers:
            member.poll(0.1)
            had: dict[str, list[int]] = {}
            for partition in member.assignment():
                had.setdefault(partition.topic, []).append(partition.partition)
            held.append({topic: sorted(partitions) for topic, partitions in had.items()})
        if all(held):
            return held
    raise AssertionError(f"not everybody was assigned: {held}")


def test_clients_get_what_it_deals(stranger: Stranger) -> None:
    """Two topics, two members: each has one, whole. ``uniform`` would have given each half of both."""
    with stranger.broker() as server:
        with WireClient("127.0.0.1", int(server.partition(":")[2])) as client:
            for topic in ("bids", "asks"):
                client.create_topic(topic, 3)
                client.wait_for_leaders(topic)
        first = consumer(server, "standby")
        assert read([first]) == [{"bids": WHOLE, "asks": WHOLE}]
        second = consumer(server, "standby")
        time.sleep(1)
        assert read([first]) == [{"bids": WHOLE, "asks": WHOLE}], "the second stands by"
        first.close()
        assert read([second]) == [{"bids": WHOLE, "asks": WHOLE}], "and takes over"
        second.close()


@pytest.mark.slow
def test_it_passes_the_contract_kit_as_its_author_would_run_it(stranger: Stranger) -> None:
    stranger.kit(EXAMPLE)


def test_one_that_nobody_brings_is_refused_before_anything_opens(stranger: Stranger) -> None:
    """With its place in the manifest, and with those that there are."""
    stranger.manifest.write_text(MANIFEST.replace('["assignor_standby"]', "[]"))
    with pytest.raises(
        AssertionError, match=r'config\."group\.consumer\.assignors".*standby.*uniform, range'
    ):
        stranger.run("blumfeld.cli.main", "run", str(stranger.manifest))
    assert not (stranger.folder / "data").exists()
