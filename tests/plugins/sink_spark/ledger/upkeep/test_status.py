"""``status``: from the ledger alone, without Spark and without a broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.upkeep.status import status
from blumfeld_sink_spark.ledger.writers.lease import Lease
from blumfeld_sink_spark.records import DecoderCount, OffsetRange, RangeCount, Span
from blumfeld_sink_spark.stores.contract import ArchiveStore
from tests.plugins.sink_spark.command import said
from tests.plugins.sink_spark.ledger.ledger_tools import (
    Crash,
    FailingStore,
    Work,
    opened,
    record_of,
    two_batches,
)

pytestmark = pytest.mark.archive


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    store = opened(tmp_path)
    two_batches(store)
    return store


def test_all_is_counted(store: ArchiveStore) -> None:
    report = status(store, 0)
    (query,) = report.queries
    assert (query.query, query.batch, query.messages, query.quarantined) == ("feed-1", 1, 50, 4)
    assert query.messages_per_s == 40.0
    assert report.covered == [OffsetRange("ticks", 0, 0, 20), OffsetRange("ticks", 1, 0, 30)]
    assert {name: (table.files, table.rows) for name, table in report.tables.items() if name != "gaps"} == {
        "bbo": (4, 20), "raw": (4, 20), "trades": (4, 20),
    }  # fmt: skip
    assert report.bytes == sum(store.size(path) for path in store.list("") if path.endswith(".parquet"))
    assert report.ratio == pytest.approx(4000 / report.bytes)
    assert report.gaps == sum(record.gaps for record in Ledger(store).load().records("feed-1")) > 0


def test_it_is_shown(store: ArchiveStore) -> None:
    (Path(store.root) / "_progress").mkdir()
    (Path(store.root) / "_progress" / "ticks.jsonl").write_text(
        '{"batch":0,"lag":{"ticks":{"0":99}}}\n{"batch":1,"lag":{"ticks":{"0":1234,"1":0}}}\n{"batch":2,"la'
    )
    printed = said("status", store.root)
    for part in ("feed-1", "1,234", "ticks-1", "0..29", "trades", "50 messages of 0.00 MB"):
        assert part in printed, part
    assert msgspec.json.decode(said("status", store.root, "--json"))["lag"] == {
        "ticks": {"ticks": {"0": 1234, "1": 0}}
    }


def test_what_was_passed_over_or_skipped_is_shown_by_kind(store: ArchiveStore) -> None:
    count = RangeCount(
        topic="ticks", partition=0, start=20, end=30, messages=8, with_rows=5, skipped={"control": 2},
        decoders={"binance-usdm": DecoderCount(read=5, quarantined=0, passed_over={"kline": 1, "markPriceUpdate": 2})},
        spans=(Span(20, 22, "control"), Span(22, 25, "no_row")),
    )  # fmt: skip
    taken = OffsetRange("ticks", 0, 20, 30)
    Ledger(store).load().append(record_of("feed-1", 2, taken, counts=(count,), messages=8))
    Ledger(store).load().append(record_of("older", 0, OffsetRange("ticks", 9, 0, 5)))
    printed = said("status", store.root)
    assert "offsets without a message: 2 control" in printed
    assert "passed over by binance-usdm: 2 markPriceUpdate, 1 kline" in printed
    assert "1 batches of an older version don't count what they passed over or skipped" in printed
    report = status(store, 0)
    assert report.passed_over == {"binance-usdm": {"kline": 1, "markPriceUpdate": 2}}
    assert (report.skipped, report.uncounted) == ({"control": 2}, 1)


def test_who_writes_and_what_was_begun_is_shown(store: ArchiveStore) -> None:
    counting = FailingStore(store, 12, Crash, after=False)
    with pytest.raises(Crash):
        Work().next().next().publish(counting)
    assert "a batch of feed-1 was begun and not committed: run it again" in said("status", store.root)
    with Lease(store, "ticks"):
        printed = said("status", store.root)
    assert "ticks is being written by process" in printed
    assert "run it again" not in printed


def test_after_a_compaction_rows_count_once(store: ArchiveStore) -> None:
    record = Ledger(store).load().last("feed-1") or record_of("x", 0)
    old = [entry for entry in record.files if entry.table == "trades"]
    merged = msgspec.structs.replace(old[0], path="trades/merged.parquet", rows=10, bytes=70)
    removed = tuple(entry.path for entry in old)
    Ledger(store).load().append(record_of("compact", 0, files=(merged,), removed=removed))
    assert status(store, 0).tables["trades"].rows == 20
    assert status(store, 0).tables["trades"].files == 3


def test_neither_spark_nor_kafka_nor_arrow_is_imported_for_it(store: ArchiveStore) -> None:
    code = (
        "import sys\n"
        "from blumfeld_sink_spark.ledger.upkeep.status import status\n"
        "from blumfeld_sink_spark.stores.roots import open_store\n"
        "status(open_store(sys.argv[1]), 0)\n"
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'confluent_kafka', 'obstore', 'pandas'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, store.root], capture_output=True, text=True, check=True, timeout=90
    )
    assert done.stdout == "[]\n"
