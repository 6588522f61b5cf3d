"""Each client of the matrix, check by check, against one broker of this build and against a cluster of three.

A client that isn't installed is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blumfeld_kit.cluster import cluster_of_this_build
from campaigns.clients.catalogue import CLIENTS, client_class
from campaigns.clients.checks.columns import columns_of
from campaigns.clients.client import NO_REBALANCE_DELAY
from campaigns.clients.matrix import FAILED, NOT_OFFERED, run_cell

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module", params=[1, 3], ids=["one-node", "three-nodes"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = cluster_of_this_build(request.param, tmp_path_factory.mktemp("clients"), [NO_REBALANCE_DELAY])
    try:
        cluster.start()
        yield cluster.addresses
    finally:
        cluster.stop()


@pytest.mark.parametrize(
    ("name", "column"), [(name, column) for name in CLIENTS for column in columns_of(name)]
)
def test_client(name: str, column: str, bootstrap: str) -> None:
    """All that the client offers works."""
    absent = client_class(name).absent()
    if absent is not None:
        pytest.skip(absent)
    cell = run_cell(name, column, bootstrap, f"{name}-{column}")
    if cell.verdict == NOT_OFFERED:
        pytest.skip(cell.note)
    assert cell.verdict != FAILED, cell.note
