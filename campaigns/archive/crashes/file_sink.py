"""Spark's own way, for comparison under the same kills: its Kafka connector, ``from_json`` and its Parquet file sink.

``python -m campaigns.archive.crashes.file_sink BOOTSTRAP TOPIC ROOT CHECKPOINT MAX_OFFSETS [once]`` archives the trades
of the feed until it is killed, or with ``once`` until the topic's present end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import attrs

from campaigns.archive.common.tallies import spark_session


@attrs.frozen
class FileSinkFiles:
    """Counts of what a glob over the sink's folder finds."""

    rows: int
    duplicates: int
    unreadable: int
    files: int


def inspect(root: Path) -> FileSinkFiles:
    """Counts rows and files. Reads each file by itself, because one torn file fails a whole glob."""
    import duckdb

    rows, unreadable, ids = 0, 0, set()
    files = sorted(path for path in root.rglob("*.parquet") if not path.name.startswith("."))
    for path in files:
        try:
            found = duckdb.sql(f"SELECT k_partition, k_offset FROM read_parquet('{path}')").fetchall()
        except duckdb.Error:
            unreadable += 1
            continue
        rows += len(found)
        ids.update(found)
    return FileSinkFiles(rows, rows - len(ids), unreadable, len(files))


def main() -> int:
    """Runs the query."""
    bootstrap, topic, root, checkpoint, max_offsets = sys.argv[1:6]
    session = spark_session("file-sink", **{"spark.jars": _jars(), "spark.sql.caseSensitive": "true"})
    from blumfeld_sink_spark.bench import rival

    fetch = {"maxOffsetsPerTrigger": max_offsets, "failOnDataLoss": "true"}
    trades: Any = rival.rows(session, "trade", bootstrap, topic, fetch).where("trade_id is not null")
    writer = (
        trades.writeStream.format("parquet").option("path", root).option("checkpointLocation", checkpoint)
    )
    once = len(sys.argv) > 6
    trigger = {"availableNow": True} if once else {"processingTime": "500 milliseconds"}
    writer.trigger(**trigger).start().awaitTermination()
    return 0


def _jars() -> str:
    """Returns the connector's jars as the archive finds them. Exits if there are none."""
    import pyspark

    from blumfeld_sink_spark.spark.runtime.jars import find_jars

    found = find_jars(os.environ.get("BLUMFELD_SPARK_JARS", ""), pyspark.__version__)
    if found is None:
        raise SystemExit("no Kafka connector for this pyspark: the file sink needs one")
    return ",".join(found.paths)


if __name__ == "__main__":
    sys.exit(main())
