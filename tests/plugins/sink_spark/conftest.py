"""A small archive, and the modules that are left out where a dependency of ``blumfeld-archive`` isn't installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("pyarrow") is not None:
    from blumfeld_sink_spark.spark.runtime.lean import leave_pandas_out

    leave_pandas_out()  # 45 MB and 0.4 s of each worker of the suite

_NEEDS = {
    "reading/test_bars.py": "duckdb",
    "reading/test_exports.py": "polars",
    "reading/test_sql.py": "duckdb",
    "spark/test_archive.py": "pyspark",
    "spark/test_cluster.py": "pyspark",
    "spark/test_starts.py": "pyspark",
    "spark/test_transactions.py": "pyspark",
}
collect_ignore = [name for name, module in _NEEDS.items() if find_spec(module) is None]


@pytest.fixture(scope="session")
def small_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of forty seconds over midnight in five batches, beside its capture ``feed.gz``. Tests may add what
    commands make, and change nothing else.
    """
    from tests.plugins.sink_spark.archive_tools import archive, captured, write_capture

    folder = tmp_path_factory.mktemp("small")
    rows = captured([write_capture(folder / "feed.gz")], "ticks", recv_header="ns")
    decoders = ("binance-usdm", "raw")
    archive(folder / "archive", rows, decoders=decoders, recv_header="ns", batch_rows=40)
    return folder / "archive"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The address of a broker of the test's module."""
    from blumfeld.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers
