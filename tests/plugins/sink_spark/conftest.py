"""Modules that are not collected where a dependency of ``blumfeld-archive`` isn't installed."""

from __future__ import annotations

from importlib.util import find_spec

_NEEDS = {
    "test_reading_bars.py": "duckdb",
    "test_reading_exports.py": "polars",
    "test_reading_sql.py": "duckdb",
    "test_spark_archive.py": "pyspark",
    "test_spark_cluster.py": "pyspark",
    "test_spark_transactions.py": "pyspark",
}
collect_ignore = [name for name, module in _NEEDS.items() if find_spec(module) is None]
