"""Each client of the matrix, check by check, against one broker of this build; skipped where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.testing.brokers.process import BrokerProcess
from campaigns.clients.__main__ import NO_REBALANCE_DELAY
from campaigns.clients.catalogue import CLIENTS, client_class
from campaigns.clients.checks.columns import columns_of
from campaigns.clients.matrix import FAILED, NOT_OFFERED, run_cell

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("clients")
    broker = BrokerProcess(folder, settings=(NO_REBALANCE_DELAY,))
    broker.start()
    yield broker.address
    assert broker.stop() == 0


@pytest.mark.parametrize(
    ("name", "column"), [(name, column) for name in CLIENTS for column in columns_of(name)]
)
def test_client(name: str, column: str, bootstrap: str) -> None:
    """What the client offers works."""
    absent = client_class(name).absent()
    if absent is not None:
        pytest.skip(absent)
    cell = run_cell(name, column, bootstrap, f"{name}-{column}")
    if cell.verdict == NOT_OFFERED:
        pytest.skip(cell.note)
    assert cell.verdict != FAILED, cell.note
