"""Archives end to end with each reader, on a real broker, in one Spark session."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow.dataset as ds
import pytest

from blumfeld.testing.process import BrokerProcess
from blumfeld_sink_spark.errors import ArchiveError, AwayError, LedgerConflictError
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.writers.lease import Lease
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.run.driver import archive
from blumfeld_sink_spark.spark.run.progress import Back, BatchDone, Event, Notice, Waiting
from blumfeld_sink_spark.spark.run.readers import Reader
from blumfeld_sink_spark.spark.runtime.session import Session, connector_jars, open_session
from blumfeld_sink_spark.stores.roots import open_store
from tests.plugins.sink_spark.archive_tools import write_capture
from tests.plugins.sink_spark.spark_tools import delete_records, make_topic, produce, send

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

READERS = ("jvm", "python", "direct")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    settings = ArchiveSettings(topics=("any",), master="local[2]", spark={"spark.driver.memory": "1g"})
    opened = open_session(settings, connector_jars(settings))
    yield opened
    opened.stop()


def _offsets(root: Path) -> list[tuple[int, int]]:
    files = sorted(str(path) for path in (root / "raw").rglob("*.parquet"))
    table = ds.dataset(files).to_table(columns=["k_partition", "k_offset"])
    return sorted(zip(table["k_partition"].to_pylist(), table["k_offset"].to_pylist(), strict=True))


def _named(settings: ArchiveSettings, reader: str) -> ArchiveSettings:
    if reader == "jvm" and connector_jars(settings) is None:
        pytest.skip("the Kafka connector's jars aren't here")
    return msgspec.structs.replace(settings, reader=cast(Reader, reader))


@pytest.mark.parametrize("reader", READERS)
def test_every_record_is_archived_once_over_runs_and_batches(
    bootstrap: str, session: Session, tmp_path: Path, reader: str
) -> None:
    topic = f"all-{reader}"
    settings = make_topic(bootstrap, topic, partitions=2, root=tmp_path, max_offsets_per_trigger=400)
    settings = _named(settings, reader)
    produce(bootstrap, topic, 700)
    produce(bootstrap, topic, 300, partition=1)
    events: list[Event] = []
    first = archive(settings, "once", on_progress=events.append, session=session)
    assert (first.messages, first.batches) == (1000, 3)
    assert first.lag == {topic: {"0": 0, "1": 0}}
    assert [event.batch for event in events if isinstance(event, BatchDone)] == [0, 1, 2]
    produce(bootstrap, topic, 10, partition=1)
    assert archive(settings, "once", session=session).messages == 10
    assert archive(settings, "once", session=session).messages == 0
    assert _offsets(tmp_path) == [(0, number) for number in range(700)] + [
        (1, number) for number in range(310)
    ]
    assert Ledger(open_store(str(tmp_path))).load().covered(topic) == (
        OffsetRange(topic, 0, 0, 700),
        OffsetRange(topic, 1, 0, 310),
    )


def test_a_checkpoint_goes_on_with_another_reader(bootstrap: str, session: Session, tmp_path: Path) -> None:
    settings = make_topic(bootstrap, "changing", root=tmp_path)
    for nth, reader in enumerate(("python", "jvm", "direct")):
        produce(bootstrap, "changing", 50)
        assert archive(_named(settings, reader), "once", session=session).messages == 50, reader
        assert _offsets(tmp_path) == [(0, number) for number in range(50 * nth + 50)]


def test_without_its_checkpoint_an_archive_goes_on_at_the_ledgers_end(
    bootstrap: str, session: Session, tmp_path: Path
) -> None:
    settings = _named(make_topic(bootstrap, "lost-checkpoint", root=tmp_path), "python")
    produce(bootstrap, "lost-checkpoint", 30)
    archive(settings, "once", session=session)
    (tmp_path / "_checkpoints").rename(tmp_path / "_away")
    produce(bootstrap, "lost-checkpoint", 5)
    events: list[Event] = []
    assert archive(settings, "once", on_progress=events.append, session=session).messages == 5
    assert any("lost-checkpoint-0 at 30" in event.text for event in events if isinstance(event, Notice))
    assert _offsets(tmp_path) == [(0, number) for number in range(35)]


def test_a_gap_where_the_checkpoint_was_lost_is_named(
    bootstrap: str, session: Session, tmp_path: Path
) -> None:
    """A feed of 40 trades lacks one exactly where the second query begins."""
    options: dict[str, Any] = {"decoders": ("binance-usdm",), "skew_ms": 0}
    settings = _named(make_topic(bootstrap, "seam", root=tmp_path / "archive", **options), "python")
    lines = write_capture(tmp_path / "capture", seconds=40).read_bytes().splitlines()
    values = [value for _, _, value in (line.partition(b" ") for line in lines) if b"@trade" in value]
    send(bootstrap, "seam", values[:20])
    assert archive(settings, "once", session=session).gaps == 0
    (tmp_path / "archive" / "_checkpoints").rename(tmp_path / "_away")
    send(bootstrap, "seam", values[21:])
    assert archive(settings, "once", session=session).gaps == 1
    gap_rows = ds.dataset(str(tmp_path / "archive" / "gaps"), partitioning=None).to_table().to_pylist()
    assert [
        (row["kind"], row["k_offset"], row["missing"]) for row in gap_rows if row["stream"] == "trade"
    ] == [("gap", 20, 1)]


def test_a_checkpoint_of_other_topics_and_files_that_are_gone_are_refused(
    bootstrap: str, session: Session, tmp_path: Path
) -> None:
    settings = _named(make_topic(bootstrap, "mine", root=tmp_path), "python")
    other = make_topic(bootstrap, "other", root=tmp_path)
    produce(bootstrap, "mine", 5)
    archive(settings, "once", session=session)
    with pytest.raises(ArchiveError, match="archive of mine; without mine"):
        archive(other, "once", session=session)
    with pytest.raises(ArchiveError, match="root = "):
        archive(
            msgspec.structs.replace(
                settings, root=str(tmp_path / "elsewhere"), checkpoint=settings.checkpoint_location
            ),
            "once",
            session=session,
        )
    (tmp_path / "_commits").rename(tmp_path / "_gone")
    with pytest.raises(ArchiveError, match="has batch 0 as done, but the ledger"):
        archive(settings, "once", session=session)


def test_a_second_writer_is_refused(bootstrap: str, tmp_path: Path) -> None:
    settings = make_topic(bootstrap, "twice", root=tmp_path)
    with (
        Lease(open_store(str(tmp_path)), settings.name),
        pytest.raises(LedgerConflictError, match="being written"),
    ):
        archive(settings, "once")


def test_backfills_take_their_bounds_and_the_live_archive_the_rest(
    bootstrap: str, session: Session, tmp_path: Path
) -> None:
    settings = make_topic(bootstrap, "parts", root=tmp_path)
    produce(bootstrap, "parts", 100)
    early = msgspec.structs.replace(
        settings, name="early", starting='{"parts": {"0": 0}}', ending='{"parts": {"0": 40}}'
    )
    assert archive(early, "backfill", session=session).messages == 40
    late = msgspec.structs.replace(settings, name="late", starting='{"parts": {"0": 20}}', ending="latest")
    assert archive(late, "backfill", session=session).messages == 60
    assert archive(_named(settings, "python"), "once", session=session).messages == 0
    assert _offsets(tmp_path) == [(0, number) for number in range(100)]


@pytest.mark.parametrize("reader", ["python", "jvm"])
def test_a_live_archive_follows_the_topic_until_it_is_stopped(
    bootstrap: str, session: Session, tmp_path: Path, reader: str
) -> None:
    settings = _named(make_topic(bootstrap, f"live-{reader}", root=tmp_path, trigger_ms=200), reader)
    stop, seen = threading.Event(), 0
    produce(bootstrap, f"live-{reader}", 20)

    def follow(event: Event) -> None:
        nonlocal seen
        if isinstance(event, BatchDone):
            seen += event.messages
            produce(bootstrap, f"live-{reader}", 5) if seen == 20 else stop.set()

    totals = archive(settings, "run", stop, follow, session)
    assert (totals.messages, seen) == (25, 25)
    assert _offsets(tmp_path) == [(0, number) for number in range(25)]


@pytest.mark.parametrize("reader", READERS)
def test_a_live_archive_waits_for_a_broker_that_was_killed_and_goes_on(
    session: Session, tmp_path: Path, reader: str
) -> None:
    """The client waits 3 s for the broker, which stays away until the archive has asked once more in vain."""
    _named(
        ArchiveSettings(topics=("any",)), reader
    )  # may skip: before a broker starts that would not be stopped
    broker = BrokerProcess(tmp_path)
    broker.start()
    settings = _named(make_topic(broker.address, "away", root=tmp_path / "archive", trigger_ms=200), reader)
    lease = tmp_path / "archive" / "_leases" / "archive.json"
    stop, events = threading.Event(), list[Event]()
    produce(broker.address, "away", 20)

    def follow(event: Event) -> None:
        events.append(event)
        waits = [each for each in events if isinstance(each, Waiting) and each.next_s]
        if isinstance(event, BatchDone) and event.batch == 0:
            broker.kill()
        elif isinstance(event, Waiting) and event.next_s and len(waits) == 2:
            assert msgspec.json.decode(lease.read_bytes())["until_ms"] > time.time() * 1000
            broker.start()
            produce(broker.address, "away", 5)
        elif isinstance(event, BatchDone):
            stop.set()

    try:
        totals = archive(settings, "run", stop, follow, session)
    finally:
        broker.stop()
    assert (totals.messages, totals.batches) == (25, 2)
    assert _offsets(tmp_path / "archive") == [(0, number) for number in range(25)]
    assert [each.next_s for each in events if isinstance(each, Waiting) and each.next_s][:2] == [1, 2]
    assert [type(each) for each in events].count(Back) == 1


def test_a_live_archive_gives_up_when_its_time_is_up_and_stops_when_it_waits(
    session: Session, tmp_path: Path
) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    options: dict[str, Any] = {"trigger_ms": 200, "reconnect_timeout_ms": 1000}
    settings = _named(make_topic(broker.address, "gone", root=tmp_path / "archive", **options), "python")
    produce(broker.address, "gone", 20)
    stop = threading.Event()
    try:
        with pytest.raises(AwayError, match=r"away for 1 s.*reconnect_timeout_ms.*Nothing is lost"):
            archive(
                settings,
                "run",
                stop,
                lambda event: broker.kill() if isinstance(event, BatchDone) else None,
                session,
            )
        broker.start()
        produce(broker.address, "gone", 5)

        def follow(event: Event) -> None:
            if isinstance(event, BatchDone):
                broker.kill()
            elif isinstance(event, Waiting):
                stop.set()

        patient = msgspec.structs.replace(settings, reconnect_timeout_ms=-1)
        assert archive(patient, "run", stop, follow, session).messages == 5
    finally:
        broker.stop()
    assert _offsets(tmp_path / "archive") == [(0, number) for number in range(25)]


def test_lost_records_stop_an_archive_or_are_in_the_ledger(
    bootstrap: str, session: Session, tmp_path: Path
) -> None:
    settings = _named(make_topic(bootstrap, "leaky", root=tmp_path), "python")
    produce(bootstrap, "leaky", 10)
    archive(settings, "once", session=session)
    produce(bootstrap, "leaky", 20)
    delete_records(bootstrap, "leaky", 15)
    with pytest.raises(ArchiveError, match=r"10 to 15 are lost"):
        archive(settings, "once", session=session)
    lenient = msgspec.structs.replace(settings, fail_on_data_loss=False)
    assert archive(lenient, "once", session=session).messages == 15
    ledger = Ledger(open_store(str(tmp_path))).load()
    assert list(ledger.records(ledger.queries()[0]))[-1].lost == (OffsetRange("leaky", 0, 10, 15),)
