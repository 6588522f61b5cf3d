"""An archive of market data: topics become Parquet files that any tool reads, each record exactly once. A ledger beside
the files accounts for every offset.

These parts are pure (no Spark, no clock): ``tables``, ``records``, ``decoders``, ``quality``, ``book``, ``fetching``
without its connection, and the rules of ``ledger``. ``stores`` reads and writes folders and object stores, ``files``
writes Parquet, ``ledger`` records the commits, and ``compaction`` uses both. Only ``spark`` imports pyspark.
``commands`` are the verbs of ``blumfeld archive``. No two packages import each other (tests/test_circles.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blumfeld_sink_spark.plugin import Plugin

__all__ = ["Plugin"]


def __getattr__(name: str) -> Any:
    """Imports the plug-in at its first use. Spark's workers never use it, and so start without the hooks' imports."""
    if name != "Plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from blumfeld_sink_spark.plugin import Plugin

    return Plugin
