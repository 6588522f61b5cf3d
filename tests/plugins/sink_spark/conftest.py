"""Modules that are not collected where a dependency of ``blumfeld-archive`` isn't installed."""

from __future__ import annotations

from importlib.util import find_spec

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
