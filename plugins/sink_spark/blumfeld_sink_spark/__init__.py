"""An archive of market data: topics into columnar files that any tool reads, exactly once, with the proof beside
them.

Pure rooms (no Spark, no clock): ``tables``, ``records``, ``decoders``, ``quality``, ``book``, ``fetching`` but for its
connection, and of ``ledger`` the rules. ``stores`` are the places where an archive can lie; ``files`` writes Parquet,
``ledger`` records what was committed, and ``compaction`` uses both. ``spark`` alone imports pyspark; ``commands`` are
the verbs that a person types. No room needs another that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blumfeld_sink_spark.plugin import Plugin

__all__ = ["Plugin"]


def __getattr__(name: str) -> Any:
    """The plug-in, imported when it is asked for: Spark's processes never do, and start without its hooks."""
    if name != "Plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from blumfeld_sink_spark.plugin import Plugin

    return Plugin
