"""What an ack of storage_local means: never, interval or every; and what it makes of a disk that fails."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from blumfeld.log.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS, decode_offsets
from blumfeld.spi.storage import LogStorage, OffsetOutOfRangeError, TopicPartition, WriteOutcome
from blumfeld_kit.fakes.files import Fault, Luck
from blumfeld_kit.fakes.loop import SimulationError
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.simulation.clients.oracle import Oracle
from blumfeld_kit.simulation.swarm import FaultClass, Shape, Swarm
from blumfeld_kit.simulation.swarm.brokers import Hours
from blumfeld_kit.storage_contract import StorageContract
from blumfeld_kit.storage_driver.node import PARTITION, Log, Node, make_batch
from blumfeld_storage_local import plugin
from blumfeld_storage_local.durability import Durability
from blumfeld_storage_local.plugin import Options
from blumfeld_storage_local.storage import LocalStorage
from blumfeld_storage_local.sync.sync_rounds import DUE_BITE
from tests.plugins.storage_local.local_node import Events, new_node

LOG = f"/data/{PARTITION}/00000000000000000000.log"
INDEX = f"/data/{PARTITION}/00000000000000000000.index"
EVERY = Durability("every")
SYNC_MS = 10


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"durability": EVERY}


def slow_syncs(node: Node) -> None:
    node.runtime.offload_delay_ms = lambda: SYNC_MS


def open_logs(node: Node, count: int) -> list[Log]:
    logs = [node.open(TopicPartition("topic", number)) for number in range(count)]
    node.runtime.run_turn()
    node.runtime.disk.operations.clear()
    return logs


def write(log: Log, outcomes: list[Any], count: int = 1) -> None:
    """One request of one turn; its outcome comes when it comes."""
    log.log.place(make_batch(count), 0)
    log.log.write(outcomes.append)


def syncs(node: Node) -> int:
    return node.runtime.disk.operations.get("fdatasync", 0)


@pytest.mark.slow
class TestTheContractWithASyncForEveryAck(StorageContract):
    survives_restart = segment_files = simulated_disk = survives_crash = True

    # They wait for what has happened before the outcome here.
    test_a_sync_that_fails_takes_the_directory_offline = None  # type: ignore[assignment]
    test_a_write_in_an_offline_directory_tells_it_in_the_outcome = None  # type: ignore[assignment]
    test_flush_messages_holds_the_outcome_until_the_sync = None  # type: ignore[assignment]
    test_flush_ms_flushes_after_that_time = None  # type: ignore[assignment]
    test_who_reads_meanwhile_sees_the_old_or_the_new = None  # type: ignore[assignment]

    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        return LocalStorage(runtime, "/data", Events(), durability=EVERY)


# Options, and what is promised


def test_an_interval_goes_with_interval_only() -> None:
    assert msgspec.convert({"flush": "interval", "flush_interval_ms": 5}, Options).flush_interval_ms == 5
    for wrong in (
        {"flush_interval_ms": 5},
        {"flush": "every", "flush_interval_ms": 5},
        {"flush": "interval", "flush_interval_ms": 0},
        {"flush": "always"},
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, Options)


def test_the_promise_says_what_each_ack_means_and_what_topics_ask_for_by_default() -> None:
    """``log.flush.interval.messages = 1`` is a sync before each ack, as ``every`` is."""
    promises = {mode: Durability(mode, 250).promise() for mode in ("never", "interval", "every")}
    assert all("acks=1" in promise and "acks=all" in promise for promise in promises.values())
    assert "page cache" in promises["never"]
    assert "250 ms" in promises["interval"]
    assert "fdatasync" in promises["every"]
    assert "(flush.messages = 10, flush.ms, on roll)" in Durability(flush_messages=10).promise()
    assert "flush.ms = 500" in Durability(flush_ms=500).promise()
    each = Durability(flush_messages=1).promise()
    assert each.startswith(EVERY.promise())
    assert "topics with a flush.messages of their own" in each


# Every: nothing is told, or seen, before it is on the device


@pytest.mark.parametrize("durability", [EVERY, Durability("never")])
def test_the_duration_of_each_sync_is_measured(durability: Durability) -> None:
    """A sync that logs share is measured, and a sync of one log alone."""
    node = new_node(durability=durability)
    slow_syncs(node)
    (log,) = open_logs(node, 1)
    (metric,) = node.storage.metrics()  # type: ignore[attr-defined]
    histogram = metric.read()[("/data",)]
    before = list(histogram.counts)
    write(log, [])
    log.log.flush()
    node.runtime.advance(3 * SYNC_MS)
    added = [after - once for after, once in zip(histogram.counts, before, strict=True)]
    assert {bound for bound, count in zip(histogram.bounds_s, added, strict=False) if count} == {
        SYNC_MS / 1000
    }
    node.end()


def test_nothing_is_acknowledged_or_read_before_its_sync(node: Node) -> None:
    slow_syncs(node)
    (log,) = open_logs(node, 1)
    outcomes: list[WriteOutcome] = []
    write(log, outcomes, 3)
    node.runtime.advance(SYNC_MS - 1)
    assert (outcomes, log.log.written_end_offset, log.spans()) == ([], 0, [])
    assert list(log.log.batches(0)) == []
    with pytest.raises(OffsetOutOfRangeError):
        log.log.read(1, 1000, 1, True)
    node.runtime.advance(2)
    assert [(o.written_end_offset, o.error) for o in outcomes] == [(3, None)]
    assert (log.log.written_end_offset, log.log.flushed_end_offset, log.spans()) == (3, 3, [(0, 3)])
    assert node.runtime.disk.tree.file(LOG).is_synced


def test_many_requests_of_many_partitions_share_a_round(node: Node) -> None:
    """Those of a turn share one; those that come while it runs share the next: two rounds for 5 × 20 requests."""
    slow_syncs(node)
    logs = open_logs(node, 5)
    outcomes: list[WriteOutcome] = []
    for log in logs:
        write(log, outcomes)
    for _ in range(19):
        node.runtime.run_turn()
        for log in logs:
            write(log, outcomes)
    assert outcomes == []
    node.runtime.advance(SYNC_MS)
    assert len(outcomes) == 5
    node.runtime.advance(SYNC_MS)
    assert len(outcomes) == 5 * 20
    assert syncs(node) == 2 * 5
    assert [outcome.written_end_offset for outcome in outcomes[5:24]] == list(range(2, 21)), "in their order"


def test_a_new_log_and_a_rolled_segment_are_found_by_their_names(node: Node) -> None:
    """The directory is synced before the first ack in it, and so are the indexes of what was sealed."""
    log = node.open(segment_bytes=200, index_interval_bytes=0)
    log.fill(2, 2, 2)
    rolled = node.listener.rolls
    assert rolled
    node.storage.checkpoint([])
    node.runtime.run_turn()
    node.crash(luck=Luck(0))
    assert node.open(segment_bytes=200, index_interval_bytes=0).spans() == [(0, 2), (2, 4), (4, 6)]
    assert node.listener.recoveries == [(rolled[-1], 6)], "the sealed ones were synced, indexes and all"


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_power_cut_at_any_operation_takes_nothing_that_was_acknowledged(kept: int) -> None:
    """Two partitions, rolls, a truncation; of what was not synced the oldest ``kept`` changes of each file stay."""
    operations = run_until(None, kept)
    assert operations > 100
    for at in range(1, operations, 4):
        run_until(at + kept % 3, kept)


def run_until(crash_at: int | None, kept: int) -> int:
    """Run the script, die at that operation, and look what is there; the number of operations."""
    node = new_node(durability=EVERY)
    count = 0
    acknowledged: dict[int, list[bytes]] = {0: [], 1: []}

    def watch(operation: str, path: str) -> None:
        nonlocal count
        count += 1
        if count == crash_at:
            node.runtime.crash(luck=Luck(kept))

    node.runtime.disk.watch = watch
    try:
        script(node, acknowledged)
    except (OSError, SimulationError):
        assert node.runtime.dead
    node.runtime.disk.watch = None
    if not node.runtime.dead:
        node.runtime.crash(luck=Luck(kept))
    node.restart()
    for number, expected in acknowledged.items():
        log = node.open(TopicPartition("topic", number), segment_bytes=400, index_interval_bytes=0)
        data = [batch.data for batch in log.read_all()]
        assert data[: len(expected)] == expected, f"crash at {crash_at}, partition {number}"
    node.end()
    return count


def script(node: Node, acknowledged: dict[int, list[bytes]]) -> None:
    logs = [node.open(TopicPartition("topic", n), segment_bytes=400, index_interval_bytes=0) for n in (0, 1)]
    for turn in range(12):
        for number, log in enumerate(logs):
            batches = [make_batch(1 + turn % 2, seed=turn, value_bytes=30) for _ in range(1 + number)]
            for batch in batches:
                log.log.place(batch, 0)
            log.log.write(teller(node, acknowledged[number], [bytes(batch.data) for batch in batches]))
        if turn == 8:
            node.runtime.run_turn()
            kept = logs[0].read_all()[:3]
            acknowledged[0][:] = [batch.data for batch in kept]
            logs[0].log.truncate_to(kept[-1].next_offset)
        elif turn % 3:  # every third turn meets a round that still runs
            node.runtime.run_turn()


def teller(node: Node, acknowledged: list[bytes], data: Sequence[bytes]) -> Callable[[WriteOutcome], None]:
    def done(outcome: WriteOutcome) -> None:
        if not node.runtime.dead:
            assert outcome.error is None
            acknowledged.extend(data)

    return done


def test_what_a_crash_of_the_process_left_is_synced_before_it_is_read(node: Node) -> None:
    """It was never acknowledged, but a reader may now see it."""
    slow_syncs(node)
    (log,) = open_logs(node, 1)
    write(log, [], 2)
    node.crash(power_cut=False)
    log = node.open()
    assert log.spans() == [(0, 2)]
    assert node.runtime.disk.tree.file(LOG).is_synced
    assert log.log.flushed_end_offset == 2


def test_a_truncation_takes_what_waits_for_its_sync(node: Node) -> None:
    """And the round that runs makes nothing of it count as flushed."""
    slow_syncs(node)
    (log,) = open_logs(node, 1)
    outcomes: list[WriteOutcome] = []
    write(log, outcomes, 2)
    node.runtime.advance(SYNC_MS)
    write(log, outcomes, 2)
    write(log, outcomes, 2)
    node.runtime.advance(1)
    log.log.truncate_to(2)
    write(log, outcomes, 1)
    node.runtime.advance(SYNC_MS - 1)
    assert [o.written_end_offset for o in outcomes] == [2, 2, 2]
    assert log.log.flushed_end_offset == 2
    node.runtime.advance(SYNC_MS)
    assert [o.written_end_offset for o in outcomes] == [2, 2, 2, 3]
    assert log.spans() == [(0, 2), (2, 3)]


def test_a_whole_node_loses_nothing_that_it_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers, groups and a consumer through power cuts and full disks, and no topic asks for a flush."""
    monkeypatch.setattr(plugin, "Durability", lambda *settings: EVERY)
    add = Oracle.add
    monkeypatch.setattr(Oracle, "add", lambda self, partition, *, flushed: add(self, partition, flushed=True))
    faults = (FaultClass.POWER, FaultClass.DISK_FULL)
    report = Swarm(Shape(seed=2, nodes=1, clients=5, seconds=360.0, faults=faults), Hours()).run()
    assert report.faults[FaultClass.POWER] > 1
    assert report.counts["acked"] > 500
    assert report.counts["unsynced"] == 0


# Errors


def test_a_sync_that_fails_fails_all_who_wait_and_is_never_tried_again(events: Events) -> None:
    """Also not by ``close``: the kernel tells an error once, and a second sync would say that all is well."""
    node = new_node(durability=EVERY, events=events)
    slow_syncs(node)
    logs = open_logs(node, 3)
    outcomes: list[WriteOutcome] = []
    for log in logs:
        write(log, outcomes)
    node.runtime.run_turn()
    write(logs[0], outcomes)  # it would have its sync in the next round
    node.runtime.disk.inject(Fault(operation="fdatasync", path_part="topic-1"))
    node.runtime.advance(SYNC_MS)
    assert len(outcomes) == 4
    assert isinstance(outcomes[-1].error, OSError)
    assert outcomes[-1].written_end_offset <= 1
    assert not node.storage.log_dirs()[0].online
    assert events.said.count("log directory offline") == 1
    before = syncs(node)
    for log in logs:
        with pytest.raises(OSError, match="offline"):
            log.log.place(make_batch(), 0)
        with pytest.raises(OSError, match="offline"):
            log.log.close()
    with pytest.raises(OSError, match="offline"):
        node.stop()
    assert syncs(node) == before
    assert not node.runtime.files.exists("/data/.kafka_cleanshutdown")


def test_a_full_disk_costs_the_batch_and_keeps_the_order(node: Node) -> None:
    """What was written before it is acknowledged first; what was placed meanwhile is gone with it; then it goes on."""
    slow_syncs(node)
    (log,) = open_logs(node, 1)
    outcomes: list[WriteOutcome] = []
    write(log, outcomes, 2)
    node.runtime.disk.inject(Fault(operation="pwritev", path_part=".log", error_number=errno.ENOSPC))
    write(log, outcomes, 3)
    write(log, outcomes, 4)  # there is room again, but who failed isn't told yet
    log.log.place(make_batch(5), 0)
    assert outcomes == []
    node.runtime.advance(SYNC_MS)
    assert [(o.written_end_offset, o.error is None) for o in outcomes] == [(2, True), (2, False), (2, False)]
    assert log.log.placed_end_offset == 2
    write(log, outcomes, 6)
    node.runtime.advance(SYNC_MS)
    assert log.spans() == [(0, 2), (2, 8)]
    assert node.storage.log_dirs()[0].online


@pytest.mark.parametrize(
    ("number", "online"),
    [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False), (errno.EROFS, False)],
)
def test_a_full_disk_is_survived_and_a_bad_one_is_not(number: int, online: bool, events: Events) -> None:
    """EROFS: the file system was remounted read-only after an error."""
    node = new_node(events=events)
    log = node.open()
    log.fill(2)
    node.runtime.disk.inject(Fault(operation="pwritev", path_part=".log", error_number=number, times=-1))
    error = log.append(make_batch(2)).error
    assert error is not None
    assert error.errno == number
    assert node.storage.log_dirs()[0].online == online
    assert ("log directory offline" in events.said) != online
    node.runtime.disk.heal()
    if online:
        log.fill(1)
        assert log.spans() == [(0, 2), (2, 3)]
    node.end()


def test_a_write_to_a_closed_log_does_not_take_the_directory_offline(node: Node) -> None:
    log = node.open()
    log.log.place(make_batch(), 0)
    log.log.close()
    with pytest.raises(OSError, match="closed"):
        log.log.place(make_batch(), 0)
    assert node.storage.log_dirs()[0].online


@pytest.mark.parametrize(
    ("number", "short_bytes", "online"),
    [(errno.ENOSPC, None, True), (errno.ENOSPC, 12, True), (errno.EIO, None, False)],
)
def test_index_entries_that_could_not_be_saved_are_saved_later(
    number: int, short_bytes: int | None, online: bool
) -> None:
    """The records are written, and that is what the outcome says."""
    node = new_node()
    log = node.open(index_interval_bytes=0)
    fault = Fault(operation="pwritev", path_part="index", error_number=number, short_bytes=short_bytes)
    node.runtime.disk.inject(fault)
    log.fill(*[1] * 65)
    assert node.storage.log_dirs()[0].online == online
    if online:
        log.log.roll()
        assert node.runtime.disk.tree.file(INDEX).size == 64 * 8
    node.end()


def test_a_truncation_that_can_not_be_synced_takes_the_directory_offline() -> None:
    node = new_node()
    log = node.open()
    log.fill(2, 2)
    node.runtime.disk.inject(Fault(operation="fdatasync"))
    with pytest.raises(OSError, match="error"):
        log.log.truncate_to(2)
    assert not node.storage.log_dirs()[0].online
    node.end()


def closed_in_mid_sync() -> tuple[Node, Log]:
    """A log whose first sync still ran when it was closed."""
    node = new_node()
    slow_syncs(node)
    (log,) = open_logs(node, 1)
    log.fill(2)
    log.log.flush()
    node.runtime.advance(1)
    log.log.close()
    return node, log


def test_a_close_does_not_speak_for_a_round_that_still_runs() -> None:
    """Two syncs of one file run at once, and an error is told to one of them only."""
    node, log = closed_in_mid_sync()
    assert log.log.flushed_end_offset == 0
    node.runtime.advance(SYNC_MS)
    node.end()


def recovery_points(node: Node) -> dict[TopicPartition, int]:
    data = node.runtime.files.read_bytes(f"/data/{RECOVERY_POINTS}")
    return decode_offsets(data, RECOVERY_POINTS)


def test_a_clean_stop_leaves_the_end_of_each_log_as_its_recovery_point() -> None:
    """Also of those that were closed while a sync of them still ran, with what was written and rolled meanwhile."""
    node = new_node()
    slow_syncs(node)
    logs = [
        node.open(TopicPartition("topic", n), segment_bytes=400, index_interval_bytes=0) for n in range(3)
    ]
    logs[0].fill(2)
    logs[1].fill(3, 3, value_bytes=100)
    logs[1].fill(3, 3, value_bytes=100)  # rolls: its names and indexes are being synced
    for log in logs:
        log.log.flush()
    node.runtime.advance(1)
    logs[0].fill(5)
    for log in logs:
        log.log.close()
    node.stop()
    assert recovery_points(node) == {
        TopicPartition("topic", n): log.log.written_end_offset for n, log in enumerate(logs)
    }
    assert node.runtime.files.exists(f"/data/{CLEAN_SHUTDOWN}")
    node.crash()
    assert [len(node.open(TopicPartition("topic", n)).spans()) for n in range(3)] == [2, 4, 0]
    node.end()


def test_a_sync_that_fails_after_the_close_leaves_no_clean_stop() -> None:
    """The error is told to the round that ran; the sync of the close heard nothing of it."""
    node, _ = closed_in_mid_sync()
    node.runtime.disk.inject(Fault(operation="fdatasync", path_part=".log"))
    with pytest.raises(OSError, match="offline"):
        node.stop()
    assert not node.runtime.files.exists(f"/data/{CLEAN_SHUTDOWN}")
    node.end()


def test_a_log_that_is_opened_anew_waits_for_the_sync_that_ran_when_it_was_closed() -> None:
    node, log = closed_in_mid_sync()
    again = node.open(TopicPartition("topic", 0))
    assert again.log.flushed_end_offset == log.log.flushed_end_offset == 2
    node.end()


# Interval


def test_interval_syncs_all_logs_together_when_it_is_time() -> None:
    node = new_node(durability=Durability("interval", 100))
    logs = open_logs(node, 3)
    logs[0].fill(1)
    node.runtime.advance(60)
    logs[1].fill(1)
    assert [log.log.written_end_offset for log in logs] == [1, 1, 0], "acknowledged at once"
    node.runtime.advance(39)
    assert syncs(node) == 0
    node.runtime.advance(2)
    assert [log.log.flushed_end_offset for log in logs] == [1, 1, 0]
    assert syncs(node) == 2
    node.runtime.advance(1000)
    assert syncs(node) == 2, "who wrote nothing is not synced"
    logs[2].fill(1)
    node.runtime.advance(101)
    assert logs[2].log.flushed_end_offset == 1
    node.end()


def test_who_waits_for_a_sync_does_not_wait_for_all_whose_time_it_is() -> None:
    node = new_node(durability=Durability("interval", 100))
    logs = open_logs(node, DUE_BITE + 5)
    slow_syncs(node)
    for log in logs:
        log.fill(1)
    node.runtime.advance(101)  # the first bite begins
    urgent = logs[-1].log.flush()
    flushed: list[int] = []
    urgent.when_done(lambda done: flushed.append(done.result()))
    node.runtime.advance(2 * SYNC_MS)
    assert flushed == [1]
    assert all(log.log.flushed_end_offset == 1 for log in logs)
    node.end()


# Indexes, which nobody checks again once the recovery point has passed


def sealed_with_nothing_left_to_flush(node: Node) -> Log:
    """Each write is synced before its outcome, and then the segment is sealed."""
    log = node.open(flush_messages=1, index_interval_bytes=0)
    log.fill(2, 2, 2)
    log.log.roll()
    return log


def test_the_indexes_of_a_sealed_segment_are_synced() -> None:
    node = new_node()
    sealed_with_nothing_left_to_flush(node)
    node.runtime.run_turn()
    for path in (INDEX, INDEX.replace(".index", ".timeindex")):
        assert node.runtime.disk.tree.file(path).is_synced


def test_the_recovery_point_waits_for_the_indexes() -> None:
    """Until then a start walks over the sealed segment, and makes its indexes anew."""
    node = new_node()
    sealed_with_nothing_left_to_flush(node)

    def kill_before_an_index_is_synced(operation: str, path: str) -> None:
        if operation == "fdatasync" and path.endswith("index") and not node.runtime.dead:
            node.runtime.crash(power_cut=False)

    node.storage.checkpoint([])
    node.runtime.disk.watch = kill_before_an_index_is_synced
    node.runtime.run_turn()
    node.restart().open(flush_messages=1, index_interval_bytes=0)
    assert node.listener.recoveries[0] == (0, 2)


# Kafka's files after kill -9


def test_index_files_that_kafka_left_preallocated_are_taken_for_what_they_hold() -> None:
    """Its active segment's are as long as ``segment.index.bytes``, with zeros behind the last entry."""
    node = new_node()
    log = node.open(segment_bytes=600, index_interval_bytes=0)
    log.fill(*[1] * 20, value_bytes=30)
    before, base = log.read_all(), node.listener.rolls[-1]
    node.runtime.crash(power_cut=False)
    node.restart()
    for suffix in (".index", ".timeindex"):
        path = f"/data/{PARTITION}/{base:020}{suffix}"
        file = node.runtime.files.open(path, create=True)
        file.truncate(10 << 20)
        file.close()
    log = node.open(segment_bytes=600, index_interval_bytes=0)
    assert log.read_all() == before
    assert log.log.max_timestamp() is not None
    log.fill(1)
    log.log.close()
    assert node.runtime.disk.tree.file(f"/data/{PARTITION}/{base:020}.index").size < 200
    node.end()
