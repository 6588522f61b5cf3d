"""The rival in ``blumfeld archive bench``: Spark's Kafka connector, ``from_json`` and Spark's own Parquet sink.

It gets what its users would give it: a schema, big fetches, exact decimals, zstd or Spark's default, no
partitioning by symbol (which would cost it a third of its rate), and no check of any sequence. It writes the
columns that the archive writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blumfeld_sink_spark.spark.run.readers import FILE_MANAGER

NUMBER = "decimal(38,18)"
BIG_FETCH = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.receive.buffer.bytes": "1048576",
}
_DATA = {
    "depth": "e string, E bigint, T bigint, s string, U bigint, u bigint, pu bigint, "
    "b array<array<string>>, a array<array<string>>",
    "trade": "e string, E bigint, T bigint, s string, t bigint, p string, q string, X string, m boolean",
    "bbo": "e string, u bigint, s string, b string, B string, a string, A string, T bigint, E bigint",
}
_LEVELS = (
    "explode(concat(transform(j.b, x -> struct(cast(1 as tinyint) as side, x[0] as price, x[1] as size)),"
    " transform(j.a, x -> struct(cast(-1 as tinyint) as side, x[0] as price, x[1] as size)))) as level"
)
_STAMPS = ["j.T * 1000000 as ts_event", "unix_micros(timestamp) * 1000 as ts_recv", "j.s as symbol"]
_LINEAGE = ["partition as k_partition", "offset as k_offset"]


def rows(session: Any, kind: str, bootstrap: str, topic: str, fetch: Mapping[str, str] | None = None) -> Any:
    """A streaming frame of the table that ``kind`` (``depth``, ``trade``, ``bbo``) becomes."""
    reader = session.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    for key, value in (BIG_FETCH if fetch is None else fetch).items():
        reader = reader.option(key, value)
    parsed = reader.load().selectExpr(
        f"from_json(cast(value as string), 'stream string, data struct<{_struct(_DATA[kind])}>').data as j",
        *("partition", "offset", "timestamp"),
    )
    if kind == "depth":
        levels = parsed.selectExpr("j", _LEVELS, "partition", "offset", "timestamp")
        return levels.selectExpr(
            *_STAMPS,
            "j.U as first_id",
            "j.u as last_id",
            "j.pu as prev_id",
            "level.side as side",
            f"cast(level.price as {NUMBER}) as price",
            f"cast(level.size as {NUMBER}) as size",
            *_LINEAGE,
        )
    if kind == "trade":
        return parsed.selectExpr(
            *_STAMPS,
            "j.t as trade_id",
            "cast(if(j.m, -1, 1) as tinyint) as side",
            f"cast(j.p as {NUMBER}) as price",
            f"cast(j.q as {NUMBER}) as size",
            *_LINEAGE,
        )
    quotes = [
        f"cast(j.{field} as {NUMBER}) as {name}"
        for field, name in (("b", "bid"), ("B", "bid_size"), ("a", "ask"), ("A", "ask_size"))
    ]
    return parsed.selectExpr(*_STAMPS, "j.u as update_id", *quotes, *_LINEAGE)


def _struct(columns: str) -> str:
    return ", ".join(
        f"{name}: {kind}" for name, kind in (field.split(" ", 1) for field in columns.split(", "))
    )


def archive(frame: Any, folder: str, checkpoint: str, compression: str) -> None:
    """Writes all records of the topic into Parquet by Spark's file sink, and waits for the end.

    An error of the query is raised again here.
    """
    frame.sparkSession.conf.unset(FILE_MANAGER)  # of our queries in this session: it gets Spark's default
    query = (
        frame.writeStream.format("parquet")
        .option("path", folder)
        .option("checkpointLocation", checkpoint)
        .option("compression", compression)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
