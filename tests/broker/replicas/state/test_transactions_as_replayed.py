"""Transactions of a replica through rolls, stops, kills, truncations, compaction and retention, against a model.

The model keeps every batch that was written, and replays all of them for each question. So it knows what a reader of
committed records must get, wherever it begins and however much it fetches at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from blumfeld.broker.fetch.first_timestamps import FirstTimestamps
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.state.replica_state import ReplicaState
from blumfeld.broker.upkeep.cleaner_choice import cleanable, request_for
from blumfeld.config.values import BrokerConfig, TopicConfig
from blumfeld.log.cleaning.rules import plan_cleaning
from blumfeld.log.producers.end_marker import end_marker_of
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import build_transaction_marker
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record, records
from blumfeld_kit.fakes.power import Adversary
from blumfeld_kit.storage_driver.node import PARTITION, TOPIC_ID
from tests.broker.replica_on_disk import ReplicaOnDisk
from tests.everyday import first

Row = tuple[int, bytes | None]
"""(offset, key)."""
CONFIG = TopicConfig(
    {"cleanup.policy": "compact,delete", "delete.retention.ms": "500", "min.cleanable.dirty.ratio": "0"}
)
NOBODY = -1
PRODUCERS = (NOBODY, 7, 8, 9)


class Written(NamedTuple):
    """A batch of the model's log."""

    base: int
    last: int
    producer: int
    epoch: int
    sequence: int
    transactional: bool
    keys: tuple[bytes, ...]
    committed: bool | None
    """``None`` for data; else a marker, and its outcome."""


class Model:
    """Every batch that was ever written and not truncated."""

    def __init__(self) -> None:
        self.log: list[Written] = []

    @property
    def end(self) -> int:
        return self.log[-1].last + 1 if self.log else 0

    def open_since(self) -> dict[int, int]:
        """Producer id → first offset of its open transaction."""
        found: dict[int, int] = {}
        for one in self.log:
            if one.committed is not None:
                found.pop(one.producer, None)
            elif one.transactional:
                found.setdefault(one.producer, one.base)
        return found

    def ended(self) -> list[tuple[int, int, int, bool]]:
        """(producer id, first offset, marker's offset, committed) of each transaction that has ended."""
        opened: dict[int, int] = {}
        found = []
        for one in self.log:
            if one.committed is None and one.transactional:
                opened.setdefault(one.producer, one.base)
            elif one.committed is not None and one.producer in opened:
                found.append((one.producer, opened.pop(one.producer), one.base, one.committed))
        return found

    def stable(self, high_watermark: int) -> int:
        """The last stable offset."""
        ended = (first for _, first, marker, _ in self.ended() if marker >= high_watermark)
        return min([high_watermark, *ended, *self.open_since().values()])

    def producers(self) -> dict[int, tuple[int, int]]:
        """Producer id → (epoch, last sequence in it)."""
        found: dict[int, tuple[int, int]] = {}
        for one in self.log:
            if one.producer == NOBODY:
                continue
            epoch, sequence = found.get(one.producer, (-1, -1))
            if one.committed is None:
                sequence = one.sequence + len(one.keys) - 1
            elif one.epoch != epoch:
                sequence = -1
            found[one.producer] = one.epoch, sequence
        return found

    def visible(self, start: int, end: int) -> list[Row]:
        """The records in [start, end) that a reader of committed ones gets."""
        aborted = [(p, first, marker) for p, first, marker, committed in self.ended() if not committed]
        found: list[Row] = []
        for one in self.log:
            if one.committed is None and not any(
                p == one.producer and first <= one.base < marker and one.transactional
                for p, first, marker in aborted
            ):
                found += [
                    (one.base + at, key) for at, key in enumerate(one.keys) if start <= one.base + at < end
                ]
        return found


class Replica(ReplicaOnDisk):
    """A replica of a compacted topic, opened with the high watermark that its checkpoint has."""

    def __init__(self) -> None:
        self.checkpoint = 0
        super().__init__()

    def open(self) -> None:
        node = self.node
        self.state = ReplicaState("topic-0", node.runtime.now_ms, self.events)
        opening = node.storage.open_log(PARTITION, TOPIC_ID, CONFIG, self.state)
        self.log = cast("Any", node.runtime.run(opening))
        self.state.attach(self.log, self.checkpoint)
        for _ in self.state.replay():
            pass


class History:
    """A replica and the model, through the same steps."""

    def __init__(self) -> None:
        self.model, self.replica = Model(), Replica()
        self.committed_end = 0
        """The true high watermark: nothing below it is ever truncated."""
        self.compacted_to = 0
        self.may_lose_sequences = False
        """A pass went by producers whose last marker may be truncated: their sequences are in snapshots alone."""
        self.reloaded = False
        """A snapshot was read, which doesn't say which transactions ended above the high watermark."""

    # Steps

    def data(self, producer: int, keys: Sequence[bytes], transactional: bool) -> None:
        model, base = self.model, self.model.end
        open_one = producer in model.open_since()
        transactional = producer != NOBODY and (transactional or open_one)
        epoch, last = model.producers().get(producer, (0, -1))
        if producer == NOBODY:
            epoch = last = -1
        batch = build_batch(
            [Record(key, b"v%d" % base, timestamp=self.now()) for key in keys],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=last + 1 if producer != NOBODY else -1,
            transactional=transactional,
        )
        self.replica.put(RecordBatch(memoryview(batch)))
        model.log.append(
            Written(base, base + len(keys) - 1, producer, epoch, last + 1, transactional, tuple(keys), None)
        )

    def end(self, producer: int, committed: bool, bump: int) -> None:
        """A marker: of version 2 it has the next epoch."""
        if producer == NOBODY:
            return
        base, epoch = self.model.end, max(self.model.producers().get(producer, (0, -1))[0], 0) + bump
        marker = build_transaction_marker(
            commit=committed,
            producer_id=producer,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp_ms=self.now(),
        )
        self.replica.put(RecordBatch(memoryview(marker)))
        self.model.log.append(Written(base, base, producer, epoch, -1, True, (), committed))

    def now(self) -> int:
        return self.replica.node.runtime.now_ms()

    def commit(self, behind: int) -> None:
        """The high watermark moves, to the end of a batch."""
        state, log = self.replica.state, self.model.log
        offset = max(state.high_watermark, log[-1 - behind].last + 1 if behind < len(log) else 0)
        state.high_watermark = offset
        state.producers.high_watermark_moved(offset)
        self.committed_end = max(self.committed_end, offset)

    def truncate(self, back: int) -> None:
        state, log = self.replica.state, self.replica.log
        offset = max(self.committed_end, self.model.end - back)
        state.truncate_to(offset)
        self.model.log = [one for one in self.model.log if one.last < log.written_end_offset]
        assert log.written_end_offset == self.model.end
        self.reloaded = True

    def restart(self, how: str, lag: int) -> None:
        replica = self.replica
        replica.state.save_aborted()
        ends = [0, *(one.last + 1 for one in self.model.log if one.last < replica.state.high_watermark)]
        replica.checkpoint = ends[max(-1 - lag, -len(ends))]
        if how == "clean":
            replica.restart()
        elif how == "kill" or (how == "kill without snapshots" and self.may_lose_sequences):
            replica.kill()
        elif how == "kill without snapshots":  # so that everything is found in the batches alone
            for offset in replica.files(".snapshot"):
                replica.log.aux.delete(f"{offset:020d}.snapshot")
            replica.kill()
        else:
            replica.flush()
            replica.cut_power(Adversary.LOSE)
        self.reloaded = True

    def compact(self) -> None:
        replica = self.replica
        partition = cast(
            "Partition",
            SimpleNamespace(
                partition=PARTITION,
                log=replica.log,
                config=CONFIG,
                state=replica.state,
                last_stable_offset=replica.state.readable_ends()[1],
            ),
        )
        plan = plan_cleaning(cleanable(partition, FirstTimestamps()), self.now())
        if plan.end_offset <= plan.first_dirty_offset:
            return

        async def work() -> Any:
            return await replica.log.compact(request_for(partition, plan, BrokerConfig(), self.now()))

        self.may_lose_sequences |= replica.state.high_watermark < self.model.end
        result = replica.node.runtime.run(work())
        replica.state.compacted()
        self.compacted_to = max(self.compacted_to, result.cleaned_end_offset)

    def delete(self, thirds: int) -> None:
        """DeleteRecords: up to the high watermark, into open transactions too."""
        replica = self.replica
        offset = replica.state.high_watermark * thirds // 3
        if offset > replica.log.log_start_offset:
            replica.log.advance_log_start(offset)
            replica.state.log_start_moved(offset, segments_dropped=False)

    def retain(self) -> None:
        """Retention drops the oldest segment, if the high watermark is above it."""
        replica = self.replica
        sealed = [segment for segment in replica.log.segments() if segment.sealed]
        if sealed and sealed[0].next_offset <= replica.state.high_watermark:
            replica.log.drop_segments(sealed[0].next_offset)
            replica.state.log_start_moved(replica.log.log_start_offset)

    def take(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("data", producer, keys, transactional):
                self.data(producer, keys, transactional)
            case ("end", producer, committed, bump):
                self.end(producer, committed, bump)
            case ("commit", behind):
                self.commit(behind)
            case ("truncate", back):
                self.truncate(back)
            case ("restart", how, lag):
                self.restart(how, lag)
            case ("roll",):
                self.replica.roll()
            case ("compact",):
                self.compact()
            case ("delete", thirds):
                self.delete(thirds)
            case ("retain",):
                self.retain()
            case ("save",):
                self.replica.state.save_aborted()
            case ("wait",):
                self.replica.node.runtime.advance(400)
            case _:
                raise AssertionError(step)

    # What must be true

    def check(self) -> None:
        model, state, start = self.model, self.replica.state, self.replica.log.log_start_offset
        opened = self.check_producers(start)
        high_watermark, stable = state.readable_ends()
        lowest = max(model.stable(high_watermark), start)
        highest = max(min([high_watermark, *opened.values()]), start)
        assert lowest <= stable <= highest
        if not self.reloaded:
            assert stable == lowest
        for offset in range(start, stable + 1):
            self.check_reader(offset, stable)

    def check_producers(self, start: int) -> dict[int, int]:
        """Returns the first offset of each open transaction.

        A replay begins at the log start. So it may not know what lies below, as in Kafka.
        """
        model = self.model
        known = {entry.producer_id: entry for entry in self.replica.state.producers.producers()}
        opened = {p: e.txn_first_offset for p, e in known.items() if e.txn_first_offset >= 0}
        forgets = self.reloaded and start > 0
        for producer, expected in model.producers().items():
            last = max((one.last for one in model.log if one.producer == producer and one.keys), default=-1)
            if not forgets or last >= start:
                entry = known[producer]
                assert (entry.epoch, entry.last_sequence) == expected
        if not forgets:
            assert opened == model.open_since()
        else:
            assert opened.keys() <= model.open_since().keys()
            for producer, first in model.open_since().items():
                above = [
                    one.base
                    for one in model.log
                    if one.producer == producer and one.base >= first and one.last >= start
                ]
                if above:
                    assert first <= opened[producer] <= above[0]
        return opened

    def check_reader(self, offset: int, stable: int) -> None:
        """A reader gets the same, whether it fetches all at once or a batch at a time."""
        log, aborted = self.replica.log, self.replica.state.aborted
        batches = [
            batch for batch in (log.batches(offset) if offset < stable else ()) if batch.next_offset <= stable
        ]
        end = batches[-1].next_offset if batches else offset
        at_once = read(batches, aborted.overlapping(offset, end))
        one_by_one: list[Row] = []
        at = offset
        for batch in batches:
            one_by_one += read([batch], aborted.overlapping(at, batch.next_offset))
            at = batch.next_offset
        at_once = [row for row in at_once if row[0] >= offset]
        assert at_once == [row for row in one_by_one if row[0] >= offset]
        expected = self.model.visible(offset, stable)
        missing = set(expected) - set(at_once)
        assert [row for row in expected if row not in missing] == at_once, "nothing else, and in order"
        later = {key: last for last, key in self.model.visible(0, self.compacted_to)}
        for place, key in missing:
            assert place < later.get(key, -1), f"compaction took the newest committed record of {key!r}"


def read(batches: Sequence[RecordBatch], told: Sequence[AbortedTransaction]) -> list[Row]:
    """What a client makes of one answer, as the Java consumer does."""
    waiting = sorted(told, key=lambda entry: entry.first_offset)
    aborted: set[int] = set()
    found: list[Row] = []
    for batch in batches:
        while waiting and waiting[0].first_offset <= batch.last_offset:
            aborted.add(waiting.pop(0).producer_id)
        if batch.is_control:
            marker = end_marker_of(batch) if batch.record_count else None
            if marker is not None and not marker.committed:
                aborted.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborted):
            found += [(record.offset, record.key) for record in records(batch)]
    return found


MIXED = {"data": 6, "end": 4, "commit": 4, "roll": 2, "save": 1}
STOPS = MIXED | {"truncate": 2, "restart": 2}
CLEANS = STOPS | {"compact": 3, "wait": 2, "roll": 4}
SHORTENS = STOPS | {"delete": 2, "retain": 2, "roll": 4}
STEPS = 80
LOOKED_AT = frozenset(("truncate", "restart", "compact", "delete", "retain", "commit"))
"""Steps after which everything is compared."""


def step(kind: str, chance: Random) -> tuple[Any, ...]:
    """A step of this kind."""
    match kind:
        case "data":
            keys = tuple(chance.choice((b"a", b"b", b"c")) for _ in range(chance.randint(1, 3)))
            return kind, chance.choice(PRODUCERS), keys, chance.random() < 0.7
        case "end":
            return kind, chance.choice(PRODUCERS[1:]), chance.random() < 0.5, chance.randint(0, 1)
        case "commit":
            return kind, chance.choice((0, 0, 0, 1, 2))
        case "truncate":
            return kind, chance.randint(1, 8)
        case "restart":
            return (
                kind,
                chance.choice(("clean", "kill", "kill without snapshots", "power")),
                chance.randint(0, 2),
            )
        case "delete":
            return kind, chance.randint(1, 3)
        case _:
            return (kind,)


@pytest.mark.parametrize("seed", first(4, range(12)))
@pytest.mark.parametrize("weights", [STOPS, CLEANS, SHORTENS], ids=["stops", "compaction", "retention"])
def test_readers_get_what_a_replay_of_every_batch_says(weights: dict[str, int], seed: int) -> None:
    """No aborted record, every committed one but those that compaction may take, and nothing behind an open
    transaction."""
    chance = Random(f"{sorted(weights)}/{seed}")
    kinds = chance.choices(list(weights), list(weights.values()), k=STEPS)
    history, taken = History(), []
    try:
        for kind in kinds:
            taken.append(step(kind, chance))
            history.take(taken[-1])
            if kind in LOOKED_AT:
                history.check()
        history.check()
    except Exception as error:
        error.add_note(f"after {taken}")
        raise
    finally:
        history.replica.node.end()
