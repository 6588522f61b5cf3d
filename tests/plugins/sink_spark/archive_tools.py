"""An archive without Spark: the same decoding, writing and publishing, in this process."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.apply import decode_rows, decoders_for
from blumfeld_sink_spark.files.writer import TaskWriter
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.publishing.publish import publish
from blumfeld_sink_spark.quality import Summariser, continuity_of
from blumfeld_sink_spark.range_counter import RangeCounter
from blumfeld_sink_spark.reading.producing.load import LoadPlan, Record, records
from blumfeld_sink_spark.records import CommitRecord, OffsetRange, TaskResult
from blumfeld_sink_spark.rows import RAW_ROWS, RAW_ROWS_WITH_HEADERS
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.stores.roots import open_store

CREATE_TIME = 0
MIDNIGHT_S = 1_723_161_600
"""2024-08-09 UTC, in ns."""
DECODE_ROWS = 5000
"""Messages in one Arrow batch, as Spark hands them over."""


def rows_of(
    sent: Iterable[Record], topic: str, partition: int = 0, start: int = 0, headers: bool = False
) -> pa.Table:
    """Returns raw rows as a reader gives them, with dense offsets from ``start``."""
    listed = list(sent)
    columns: dict[str, Any] = {
        "key": pa.array([record.key for record in listed], pa.binary()),
        "value": pa.array([record.value for record in listed], pa.binary()),
        "topic": pa.repeat(pa.scalar(topic), len(listed)),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), len(listed)),
        "offset": pa.array(range(start, start + len(listed)), pa.int64()),
        "timestamp": pa.array(
            [record.timestamp_ms * 1000 for record in listed], pa.timestamp("us", tz="UTC")
        ),
        "timestampType": pa.repeat(pa.scalar(CREATE_TIME, pa.int32()), len(listed)),
    }
    if headers:
        pairs = [[{"key": key, "value": value} for key, value in record.headers or ()] for record in listed]
        columns["headers"] = pa.array(pairs, RAW_ROWS_WITH_HEADERS.field("headers").type)
    return pa.table(columns, schema=RAW_ROWS_WITH_HEADERS if headers else RAW_ROWS)


def captured(files: Sequence[Path], topic: str, limit: int = 0, **options: Any) -> pa.Table:
    """Returns raw rows of capture files, as ``blumfeld archive load`` sends them."""
    plan = LoadPlan(files=files, limit=limit, **options)
    return rows_of(islice(records(plan, 1), limit or None), topic, headers=bool(plan.recv_header))


def archive(
    root: Path | str, rows: pa.Table, *, batch_rows: int = 40_000, query: str = "query", **settings: Any
) -> list[CommitRecord]:
    """Archives raw rows under ``root``, ``batch_rows`` of each partition in a commit.

    :param settings: fields of ``ArchiveSettings``; nearly always ``decoders`` at least
    """
    archive_settings = ArchiveSettings(
        root=str(root), **{"topics": tuple(set(rows["topic"].to_pylist())), **settings}
    )
    store = open_store(str(root))
    ledger = Ledger(store)
    ledger.load()
    partitions = _by_partition(rows)
    made: list[CommitRecord] = []
    while any(part.num_rows for part in partitions.values()):
        now = {place: part.slice(0, batch_rows) for place, part in partitions.items() if part.num_rows}
        partitions = {place: part.slice(batch_rows) for place, part in partitions.items()}
        planned = [
            OffsetRange(topic, partition, part["offset"][0].as_py(), part["offset"][-1].as_py() + 1)
            for (topic, partition), part in sorted(now.items())
        ]
        results = [_task(store, archive_settings, *place, part) for place, part in sorted(now.items())]
        record = publish(
            store,
            ledger,
            query=query,
            batch=len(made),
            planned=planned,
            lost=(),
            results=results,
            settings=archive_settings,
            now_ms=1_700_000_000_000 + 10_000 * len(made),
            seconds=1.0,
        )
        made.append(record)
    return made


def _by_partition(rows: pa.Table) -> dict[tuple[str, int], pa.Table]:
    places = sorted(set(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)))
    return {
        (topic, partition): rows.filter(
            pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition))
        )
        for topic, partition in places
    }


def _task(store: Any, settings: ArchiveSettings, topic: str, partition: int, rows: pa.Table) -> TaskResult:
    decoders = decoders_for(topic, settings)
    writer = TaskWriter(store, settings, topic, partition)
    summariser = Summariser(topic, partition, continuity_of(decoders), settings.skew_ms)
    quarantined, versions = 0, {}
    counter = RangeCounter(topic, partition)
    for batch in rows.combine_chunks().to_batches(DECODE_ROWS):
        applied = decode_rows(decoders, batch, settings)
        writer.write(applied.tables)
        made = {name: table.num_rows for name, table in applied.tables.items()}
        counter.add(batch, applied.has_row, made, applied.fates)
        summariser.add(applied.sequences, applied.tables, applied.messages)
        quarantined += applied.tables["quarantine"].num_rows if "quarantine" in applied.tables else 0
        versions = applied.decoders
    return msgspec.json.decode(  # as Spark carries it
        msgspec.json.encode(
            TaskResult(
                topic=topic,
                partition=partition,
                messages=rows.num_rows,
                first_offset=rows["offset"][0].as_py(),
                last_offset=rows["offset"][-1].as_py(),
                bytes_in=rows["value"].nbytes,
                files=writer.close(),
                sequences=summariser.result(),
                quarantined=quarantined,
                decoders=versions,
                count=counter.count(),
            )
        ),
        type=TaskResult,
    )


def write_capture(
    path: Path, seconds: int = 40, symbol: str = "BTCUSDT", start_s: int = MIDNIGHT_S - 20, done: int = 0
) -> Path:
    """Writes a small made-up capture in the form of Binance's USD-M futures, and returns its path.

    It begins with a snapshot. Each second has one depth change, two quotes and one trade. By default it goes over
    midnight, so that a range has files of two dates.

    :param done: seconds of earlier captures. If there are any, ids continue theirs, and there is no snapshot
    """
    lines, update = [], 1000 + 3 * done
    for second in range(seconds):
        ms, trade = (start_s + second) * 1000, 1 + done + second
        bid, low = 60_000 + second % 7, 60_000 - second % 7
        for nth in range(2):
            update += 1
            lines.append(
                f'{ms * 1_000_000 + 1000 * nth} {{"stream":"{symbol.lower()}@bookTicker","data":{{"e":"bookTicker",'
                f'"u":{update},"s":"{symbol}","b":"{bid}.10","B":"1.5{nth}","a":"{bid}.20","A":"0.7",'
                f'"T":{ms},"E":{ms}}}}}'
            )
        if not done + second:
            levels = [[f"{bid - nth}.10", f"{nth + 1}.25"] for nth in range(20)]
            asks = [[f"{bid + nth}.20", f"{nth + 2}.5"] for nth in range(20)]
            lines.append(
                f'{ms * 1_000_000 + 5000} {{"lastUpdateId":{update},"E":{ms},"T":{ms},"bids":'
                f'{msgspec.json.encode(levels).decode()},"asks":{msgspec.json.encode(asks).decode()}}}'
            )
        update += 1
        before = update - (3 if done + second else 1)
        lines.append(
            f'{ms * 1_000_000 + 200_000_123} {{"stream":"{symbol.lower()}@depth@0ms","data":{{"e":"depthUpdate",'
            f'"E":{ms + 150},"T":{ms + 140},"s":"{symbol}","U":{update},"u":{update},"pu":{before},'
            f'"b":[["{low}.10","{second + 1}.125"],["{low - 3}.10","0"]],"a":[["{bid}.20","2.5"]]}}}}'
        )
        lines.append(
            f'{ms * 1_000_000 + 300_000_000} {{"stream":"{symbol.lower()}@trade","data":{{"e":"trade","E":{ms + 210},'
            f'"T":{ms + 209},"s":"{symbol}","t":{trade},"p":"{bid}.20","q":"0.00{second % 9 + 1}","X":"MARKET",'
            f'"m":{"true" if second % 3 else "false"}}}}}'
        )
    data = "\n".join(lines).encode() + b"\n"
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path
