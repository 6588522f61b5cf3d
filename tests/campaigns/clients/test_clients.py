"""Each client of the matrix, check by check, against one broker of this build and against a cluster of three.

A client that isn't installed is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.clients.brokers import start_brokers
from campaigns.clients.catalogue import CLIENTS, client_class
from campaigns.clients.checks.columns import columns_of
from campaigns.clients.matrix import FAILED, NOT_OFFERED, run_cell

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module", params=[1, 3], ids=["one-node", "three-nodes"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("clients")
    brokers, addresses = start_brokers(request.param, folder)
    yield addresses
    assert brokers.stop() == 0


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
