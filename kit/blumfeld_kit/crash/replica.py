"""One partition of the crash machine: its open log, its promises, and the check of its state."""

from __future__ import annotations

from blumfeld.broker.replicas.state.replica_state import ReplicaState
from blumfeld.config.values import TopicConfig
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.state import ProducerState
from blumfeld.spi.compaction import LastProducerBatch
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld_kit.crash.promises import Branch, Broken, FoundLog, LogPromises
from blumfeld_kit.storage_driver.node import TIME_MS, Log, StoredBatch

PRODUCERS = 3
SEGMENT_BYTES = 800
KEYS = 7


class Replica:
    """One partition.

    :param compacts: its topic is compacted, and some records are tombstones
    """

    def __init__(
        self, name: str, topic_id: int, *, flush_messages: int | None = None, compacts: bool = False
    ) -> None:
        self.partition = TopicPartition(name, 0)
        self.topic_id = bytes([topic_id]) * 16
        self.promises = LogPromises(name, compacts=compacts)
        self.leader_epoch = 0
        self.values = 0
        self.compacts = compacts
        settings: dict[str, int | str] = {
            "internal.segment.bytes": SEGMENT_BYTES,
            "index.interval.bytes": 200,
        }
        if flush_messages is not None:
            settings["flush.messages"] = flush_messages
        if compacts:
            settings["cleanup.policy"] = "compact"
        self.config = TopicConfig(settings)
        self.log: Log | None = None
        self.state: ReplicaState | None = None

    @property
    def open(self) -> tuple[Log, ReplicaState]:
        """The open log and the replica's state."""
        assert self.log is not None
        assert self.state is not None
        return self.log, self.state

    def make_batch(self, before: Branch, count: int) -> RecordBatch:
        """Return the next batch. Producers take turns with their sequences, so every batch differs from all others."""
        self.values += 1
        producer_id = self.values % PRODUCERS
        sequence = sum(
            batch.next_offset - batch.base_offset
            for batch in before
            if header(batch).producer_id == producer_id
        )
        value = b"%s-%06d-" % (self.partition.topic.encode(), self.values)
        records = []
        for n in range(count):
            key = b"%d" % ((self.values * 3 + n) % KEYS)
            gone = self.compacts and (self.values + n) % 5 == 0
            records.append(Record(key, None if gone else value * 3, timestamp=TIME_MS + self.values))
        data = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        return RecordBatch(memoryview(data))

    def producers(self) -> dict[int, LastProducerBatch]:
        """Return the last batch of each producer, for a compaction request."""
        last: dict[int, LastProducerBatch] = {}
        for batch in self.promises.current:
            last[header(batch).producer_id] = LastProducerBatch(batch.next_offset - 1, 0)
        return last


def find(replica: Replica) -> FoundLog:
    """Read the whole log. A replay must see the same batches."""
    assert replica.log is not None
    log = replica.log.log
    batches = replica.log.read_all(holes=replica.compacts)
    replayed = [(b.base_offset, bytes(b.data)) for b in log.batches(log.log_start_offset)]
    if replayed != [(batch.base_offset, batch.data) for batch in batches]:
        raise Broken(f"{replica.partition}: batches() gives other batches than read()")
    for batch in batches:
        header(batch).verify_crc()
    return FoundLog(log.log_start_offset, log.written_end_offset, batches)


def check_state(replica: Replica, branch: Branch, found_log: FoundLog) -> None:
    """Check that leader epochs and producers are those of the batches in the log."""
    state = replica.state
    assert state is not None
    producers, epochs, held = ProducerState(), LeaderEpochCache(), LeaderEpochCache(state.epochs.entries)
    for batch in branch:
        producers.replay(header(batch))
        if batch.leader_epoch > epochs.latest_epoch:
            epochs.assign(batch.leader_epoch, batch.base_offset)
    for cache in (epochs, held):  # the epochs of records below the log start are dropped before the records
        cache.truncate_from_start(
            max(found_log.log_start_offset, min(replica.promises.start_asked, found_log.end_offset))
        )
    if held.entries != epochs.entries:
        raise Broken(
            f"{replica.partition}: the leader epochs are {_in_words(held)}; "
            f"those of the batches are {_in_words(epochs)}"
        )
    known, true = _sequences(state.producers), _sequences(producers)
    if (
        any(known.get(producer_id, last) != last for producer_id, last in true.items())
        or known.keys() - true.keys()
    ):
        raise Broken(
            f"{replica.partition}: the producers' (sequence, offset) are {known}; those of the batches are {true}"
        )
    seen = {header(batch).producer_id for batch in found_log.batches}
    if missing := sorted(seen - known.keys()):
        raise Broken(
            f"{replica.partition}: the producer state lacks the producers {missing}, whose batches are in the log"
        )


def _sequences(state: ProducerState) -> dict[int, tuple[int, int]]:
    return {entry.producer_id: (entry.last_sequence, entry.last_offset) for entry in state.producers()}


def _in_words(epochs: LeaderEpochCache) -> str:
    return ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in epochs.entries)


def header(batch: StoredBatch) -> RecordBatch:
    """Return the batch's header fields."""
    return RecordBatch(memoryview(batch.data))
