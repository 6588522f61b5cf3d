"""A topic read again: differences from the archive are problems, messages that the topic lost since are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from blumfeld_sink_spark.commands.upkeep.verify import NOT_SHOWN
from blumfeld_sink_spark.fetching.aborted_transactions import AbortedTransactions
from blumfeld_sink_spark.ledger.checking.again import Compared, compare
from blumfeld_sink_spark.ledger.ledger import Ledger, record_path
from blumfeld_sink_spark.ledger.publishing.publish import publish
from blumfeld_sink_spark.range_counter import Skips
from blumfeld_sink_spark.range_counts import ABORTED, CONTROL, HIDDEN
from blumfeld_sink_spark.records import CommitRecord, OffsetRange, RangeCount, Span
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.tasks.task import TaskWork
from blumfeld_sink_spark.spark.topics.fetch import read_range
from blumfeld_sink_spark.stores.roots import open_store
from tests.plugins.sink_spark.command import run
from tests.plugins.sink_spark.ledger.ledger_tools import record_of
from tests.plugins.sink_spark.spark_tools import make_topic
from tests.plugins.sink_spark.test_range_counts import counted, rows_at

pytestmark = pytest.mark.archive

RANGE = OffsetRange("t", 0, 0, 10)
THERE = ({("t", 0): 0}, {("t", 0): 10})


def against(
    archived: Sequence[int],
    topic: Sequence[int],
    skips: Sequence[Span] = (),
    now: Sequence[Span] = (),
    values: Sequence[bytes | None] | None = None,
) -> Compared:
    """Compares an archive with messages at ``archived``, which skipped ``skips``, with a topic with these offsets."""
    count = counted([rows_at(archived)]).count(RANGE, Skips(skips))
    record = record_of("q", 0, RANGE, counts=(count,), messages=len(archived))

    def read(taken: OffsetRange, record: CommitRecord, told_skips: Skips) -> Iterator[pa.RecordBatch]:
        assert (taken, record.batch) == (RANGE, 0)
        for span in now:
            told_skips.add(span.reason, span.start, span.end)
        yield rows_at(topic, values)

    return compare([(record, RANGE)], *THERE, read)


def test_a_range_that_is_the_same_is_the_same() -> None:
    comparison = against(range(9), range(9), [Span(9, 10, CONTROL)])
    assert (comparison.problems, comparison.remarks, comparison.same, comparison.ranges) == ([], [], 1, 1)


@pytest.mark.parametrize("reason", [CONTROL, ABORTED, HIDDEN])
def test_messages_that_the_archive_says_it_never_got_are_a_problem(reason: str) -> None:
    comparison = against([0, 1, 9], range(10), [Span(2, 9, reason)])
    assert comparison.problems == [
        f"t-0 0..10: the topic has messages at offsets 2..9, and the archive has them as {reason}"
    ]
    assert comparison.same == 0


def test_other_content_at_the_same_offsets_is_a_problem() -> None:
    values = [b"v%d" % offset for offset in range(10)]
    assert against(range(10), range(10), values=values).problems == []
    assert against(range(10), range(10), values=[*values[:-1], b"w9"]).problems == [
        "t-0 0..10: values of its messages are others in the topic than when it was archived (CRC-32)"
    ]


def test_what_the_topic_lost_since_is_a_remark() -> None:
    comparison = against(range(10), [0, 4, 9])
    assert comparison.problems == []
    assert "no message any more at 7 offsets that are archived (1..4, 5..9)" in comparison.remarks[0]


def test_hidden_offsets_are_explained_by_what_the_topic_shows() -> None:
    comparison = against(
        range(7), range(7), [Span(7, 10, HIDDEN)], [Span(7, 9, ABORTED), Span(9, 10, CONTROL)]
    )
    assert comparison.problems == []
    assert comparison.remarks == ["t-0 0..10: its 3 hidden offsets hold no message: 2 aborted, 1 control"]
    assert comparison.explained == {RANGE}


@pytest.mark.parametrize(
    ("earliest", "latest", "why"),
    [
        (5, 10, "the topic has 5..10 now"),
        (0, 7, "the topic has 0..7 now"),
        (0, None, "the topic isn't there"),
    ],
)
def test_a_range_that_the_topic_does_not_have_is_not_compared(
    earliest: int, latest: int | None, why: str
) -> None:
    def read(taken: OffsetRange, record: CommitRecord, told_skips: Skips) -> Iterator[pa.RecordBatch]:
        raise AssertionError("is not read")

    ends = {} if latest is None else {("t", 0): latest}
    comparison = compare([(record_of("q", 0, RANGE), RANGE)], {("t", 0): earliest}, ends, read)
    assert comparison.remarks == [f"t-0 0..10: can't be compared: {why}"]


@pytest.mark.parametrize(("messages", "size", "wrong"), [(10, 32, 0), (3, 10, 1), (11, 40, 0)])
def test_a_batch_that_was_not_counted_is_compared_by_messages_and_bytes(
    messages: int, size: int, wrong: int
) -> None:
    def read(taken: OffsetRange, record: CommitRecord, told_skips: Skips) -> Iterator[pa.RecordBatch]:
        yield rows_at(range(10))

    record = record_of("q", 0, RANGE, messages=messages, bytes_in=size)
    comparison = compare([(record, RANGE)], *THERE, read)
    assert (len(comparison.problems), len(comparison.remarks)) == (wrong, 1 - wrong)
    assert "which isn't counted" in (comparison.problems + comparison.remarks)[0]


def topic_of(
    bootstrap: str,
    name: str,
    root: Path,
    count: int = 50,
    batches: Sequence[tuple[int, int]] = ((0, 20), (20, 50)),
    each: int = 1_000,
) -> ArchiveSettings:
    """Makes a topic with ``each`` messages a batch and archives it as the reader ``direct`` does, without Spark."""
    settings = make_topic(bootstrap, name, root=root, decoders=("raw",))
    producer = Producer({"bootstrap.servers": bootstrap})
    for nth in range(count):
        producer.produce(name, b"message %d" % nth, key=b"k")
        if nth % each == each - 1:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0
    store = open_store(str(root))
    for batch, (start, end) in enumerate(batches):
        wanted, skips, work = OffsetRange(name, 0, start, end), Skips(), TaskWork(settings)
        for rows in read_range(settings, wanted, skips):
            work.add(rows)
        work.tell(wanted, skips)
        publish(
            store, Ledger(store), query="q", batch=batch, planned=[wanted], lost=(), results=work.finish(),
            settings=settings, now_ms=1, seconds=1.0, reader="direct",
        )  # fmt: skip
    return settings


def edit(root: Path, batch: int, change: Callable[[RangeCount], RangeCount], **fields: object) -> None:
    path = root / record_path("q", batch)
    record = msgspec.json.decode(path.read_bytes(), type=CommitRecord)
    counts = tuple(change(count) for count in record.counts)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, counts=counts, **fields)))


def test_a_topic_is_read_again(bootstrap: str, tmp_path: Path) -> None:
    topic_of(bootstrap, "again", tmp_path)
    done = run("verify", tmp_path, "--deep", "--against", bootstrap)
    assert done.exit_code == 0, done.output
    assert "read again: 2 of 2 ranges are the same in the topics, message by message" in done.stdout
    assert "whole: 2 commits" in done.stdout
    edit(tmp_path, 1, lambda count: msgspec.structs.replace(count, content_crc=(0, 0, 0)))
    changed = run("verify", tmp_path, "--deep", "--against", bootstrap)
    assert changed.exit_code == 1
    assert (
        "again-0 20..50: keys, values, offsets, timestamps or sizes of its messages are others"
        in changed.stderr
    )


def test_a_topic_that_is_gone_or_was_cut_is_said_so(bootstrap: str, tmp_path: Path) -> None:
    topic_of(bootstrap, "gone", tmp_path)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics(["gone"])["gone"].result(30)
    done = run("verify", tmp_path, "--deep", "--against", bootstrap)
    assert done.exit_code == 0, done.output
    assert "gone-0 0..20: can't be compared: the topic isn't there" in done.stdout
    assert "read again: 0 of 2 ranges" in done.stdout


def test_an_older_archive_stays_uncounted_even_if_its_numbers_fit(bootstrap: str, tmp_path: Path) -> None:
    topic_of(bootstrap, "older", tmp_path)
    for batch in range(2):
        path = tmp_path / record_path("q", batch)
        record = msgspec.json.decode(path.read_bytes(), type=CommitRecord)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, counts=())))
    done = run("verify", tmp_path, "--deep", "--against", bootstrap)
    assert done.exit_code == NOT_SHOWN, done.output
    assert "which isn't counted: the topic has as many messages and bytes (20," in done.stdout
    assert "not counted: 2 commits" in done.stdout


def test_a_bug_of_the_fetch_is_found_by_another_client(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in the archive's own fetch takes a batch for aborted, and the counts add up. librdkafka reads it."""
    monkeypatch.setattr(AbortedTransactions, "has", lambda self, batch: batch.base_offset == 0)
    settings = topic_of(bootstrap, "buggy", tmp_path, count=20, batches=((0, 20),), each=5)
    assert settings.topics == ("buggy",)
    assert run("verify", tmp_path, "--deep").exit_code == 0
    done = run("verify", tmp_path, "--deep", "--against", bootstrap)
    assert done.exit_code == 1, done.output
    assert (
        "buggy-0 0..20: the topic has messages at offsets 0..5, and the archive has them as aborted"
        in done.stderr
    )
