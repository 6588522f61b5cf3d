"""The small client that a bench asks a server with."""

from __future__ import annotations

import pytest

from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.testing.process import free_port
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import EARLIEST, WireClient


def test_it_makes_a_topic_and_finds_its_leaders() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.host, broker.port) as client:
        assert client.broker_count() == 1
        assert client.versions()[0][1] >= 7
        client.create_topic("t", 3, 1, {"retention.ms": "60000"})
        leaders = client.wait_for_leaders("t")
        assert [leader.port for leader in leaders] == [broker.port] * 3
        assert client.latest_offsets("t", leaders) == [0, 0, 0]
        assert client.offsets("t", leaders, EARLIEST) == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "replication_factor", "config", "error"),
    [
        ("there", 1, {}, "TOPIC_ALREADY_EXISTS"),
        ("new", 3, {}, "INVALID_REPLICATION_FACTOR"),
        ("new", 1, {"no.such.key": "1"}, "INVALID_CONFIG"),
    ],
)
def test_a_refusal_has_the_broker_s_name_of_it(
    name: str, replication_factor: int, config: dict[str, str], error: str
) -> None:
    with EmbeddedBroker() as broker, WireClient(broker.host, broker.port) as client:
        client.create_topic("there", 1)
        with pytest.raises(DriverError, match=error):
            client.create_topic(name, 1, replication_factor, config)


def test_nobody_there_is_told() -> None:
    port = free_port()
    with pytest.raises(DriverError, match=f"127.0.0.1:{port}"):
        WireClient("127.0.0.1", port)
