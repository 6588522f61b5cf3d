"""Live groups of real members roll from classic to KIP-848 and back, on a broker of this build."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.testing.process import BrokerProcess
from campaigns.clients.brokers import NO_REBALANCE_DELAY
from campaigns.clients.catalogue import client_class
from campaigns.clients.migration.roll import Plan, Roll

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("migration")
    broker = BrokerProcess(folder, settings=(NO_REBALANCE_DELAY,))
    broker.start()
    yield broker.address
    assert broker.stop() == 0


# A group of librdkafka's cooperative-sticky members can't be upgraded: see the clients' page.
@pytest.mark.parametrize(
    ("clients", "assignor"),
    [
        ("confluent-kafka", "range"),
        ("franz-go", "range"),
        ("franz-go", "cooperative-sticky"),
        ("java", "range"),
        ("java", "cooperative-sticky"),
        ("confluent-kafka+franz-go+java", "range"),
    ],
)
def test_no_partition_goes_without_and_no_record_is_skipped(
    clients: str, assignor: str, bootstrap: str
) -> None:
    """Each member restarts with the other protocol, all of them, and back; a producer never stops meanwhile."""
    names = clients.split("+")
    for name in names:
        absent = client_class(name).absent()
        if absent is not None:
            pytest.skip(absent)
    result = Roll(bootstrap, Plan(names, assignor), f"roll-{'.'.join(names)}-{assignor}", print).run()
    assert result.problems == []
    assert result.records > 0
