"""Rounds of cleaning against a naive model that knows each transaction as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from unittest.mock import patch

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.log.cleaning import cleaner_pass as cleaning
from blumfeld.log.cleaning import map as cleaning_map
from blumfeld.log.cleaning.batches import chunks
from blumfeld.spi.compaction import AbortedTransaction, LastProducerBatch
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.compression.codec import Codec
from tests.everyday import examples

from .cleaning_logs import MemoryLog, T, marker

RETENTION_MS = 100
PRODUCERS = (1, 2, 3)


class ModelBatch(msgspec.Struct):
    """One batch as the model has it."""

    base_offset: int
    last_offset: int
    records: list[Record]
    max_timestamp: int
    producer_id: int = -1
    sequence: int = -1
    codec: Codec = Codec.NONE
    transaction: int = -1
    """Its number; -1: none."""
    aborted: bool = False
    control: bool = False
    append_time: bool = False
    horizon_ms: int | None = None


class Script(msgspec.Struct):
    """A log, by segments, with what its owner knows of it."""

    segments: list[list[ModelBatch]]
    data: list[list[bytes]]
    aborted: list[AbortedTransaction]
    producers: dict[int, LastProducerBatch]


def made(model: ModelBatch) -> bytes:
    """The bytes of a data batch."""
    return bytes(
        build_batch(
            model.records,
            base_offset=model.base_offset,
            codec=model.codec,
            producer_id=model.producer_id,
            producer_epoch=0 if model.producer_id >= 0 else -1,
            base_sequence=model.sequence,
            leader_epoch=3,
            transactional=model.transaction >= 0,
            log_append_time_ms=model.max_timestamp if model.append_time else None,
        )
    )


some_keys = st.sampled_from([b"a", b"b", b"c", b"d", b"", b"long" * 40])
some_values = st.sampled_from([b"", b"v" * 5, b"w" * 100])
plain_values = st.tuples(some_keys, some_values, st.integers(-70, 9000))
record_values = st.tuples(some_keys | st.none(), some_values | st.none(), st.integers(-70, 9000))


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Data of producers in and out of transactions, all of which end; segments roll anywhere."""
    script = Script([[]], [[]], [], {})
    offset, transactions = 0, 0
    open_: dict[int, list[ModelBatch]] = {}
    sequences = dict.fromkeys(PRODUCERS, 0)

    def place(model: ModelBatch, data: bytes) -> None:
        script.segments[-1].append(model)
        script.data[-1].append(data)

    def end(producer_id: int) -> None:
        nonlocal offset
        commit = draw(st.booleans())
        batches = open_.pop(producer_id)
        for model in batches:
            model.aborted = not commit
        if not commit:
            script.aborted.append(AbortedTransaction(producer_id, batches[0].base_offset, offset, offset + 1))
        data = marker(offset, producer_id, commit=commit)
        (record,) = records(RecordBatch(memoryview(data)))
        number = batches[0].transaction
        place(ModelBatch(offset, offset, [record], T, producer_id, transaction=number, control=True), data)
        offset += 1

    for _ in range(draw(st.integers(1, 14))):
        kind = draw(
            st.sampled_from(["plain", "plain", "idempotent", "transactional", "transactional", "end", "roll"])
        )
        if kind == "roll" and script.segments[-1]:
            script.segments.append([])
            script.data.append([])
        elif kind == "end" and open_:
            end(draw(st.sampled_from(sorted(open_))))
        elif kind in ("plain", "idempotent", "transactional"):
            producer_id = draw(st.sampled_from(PRODUCERS)) if kind != "plain" else -1
            if kind == "idempotent" and producer_id in open_:
                continue
            nulls = draw(st.booleans())
            drawn = draw(st.lists(record_values if nulls else plain_values, min_size=1, max_size=6))
            append_time = draw(st.booleans()) and draw(st.booleans())
            base = draw(st.integers(0, 3)) + offset  # offsets may be missing between batches
            of_batch = [
                Record(key, value, timestamp=T + 500 if append_time else T + late, offset=base + index)
                for index, (key, value, late) in enumerate(drawn)
            ]
            model = ModelBatch(
                base,
                base + len(of_batch) - 1,
                of_batch,
                max(record.timestamp for record in of_batch),
                producer_id,
                sequences.get(producer_id, -1),
                draw(st.sampled_from([Codec.NONE, Codec.NONE, *Codec])),
                append_time=append_time,
            )
            if kind == "transactional":
                if producer_id not in open_:
                    open_[producer_id] = []
                    transactions += 1
                open_[producer_id].append(model)
                model.transaction = (
                    open_[producer_id][0].transaction if len(open_[producer_id]) > 1 else transactions
                )
            if producer_id >= 0:
                sequences[producer_id] += len(of_batch)
                script.producers[producer_id] = LastProducerBatch(model.last_offset, 0)
            place(model, made(model))
            offset = model.last_offset + 1
    for producer_id in sorted(open_):
        end(producer_id)
    for producer_id in PRODUCERS:
        choice = draw(st.sampled_from(["known", "known", "expired", "only markers"]))
        if choice == "expired":
            script.producers.pop(producer_id, None)
        elif choice == "only markers":
            script.producers[producer_id] = LastProducerBatch(-1, 0)
    if not offset:
        only = ModelBatch(0, 0, [Record(b"a", b"v", timestamp=T, offset=0)], T)
        place(only, made(only))
    if not script.segments[-1]:
        script.segments.pop()
        script.data.pop()
    return script


class Model:
    """The log after each round, by the rules as they are written down."""

    def __init__(self, script: Script) -> None:
        self.batches = [model for segment in script.segments for model in segment]
        self.producers = script.producers

    def round(
        self, first_dirty: int, end_offset: int, now_ms: int, capacity: int, bases: Sequence[int]
    ) -> int:
        """Clean; the next first dirty offset."""
        latest, last = self._map(first_dirty, end_offset, capacity, bases)
        reached_to = max((base for base in bases if base <= latest), default=-1)
        bounds = [*bases, end_offset]
        stop = bounds[bounds.index(reached_to) + 1] if reached_to >= 0 else 0
        seen = {model.transaction for model in self.batches if not model.control and model.base_offset < stop}
        kept: list[ModelBatch] = []
        for model in self.batches:
            left = (
                model
                if model.base_offset >= stop
                else self._clean(model, last, latest, end_offset, now_ms, model.transaction in seen)
            )
            if left is not None:
                kept.append(left)
        self.batches = kept
        return latest + 1

    def _map(
        self, first_dirty: int, end_offset: int, capacity: int, bases: Sequence[int]
    ) -> tuple[int, dict[bytes, int]]:
        latest = first_dirty - 1
        last: dict[bytes, int] = {}
        for model in self.batches:
            if model.last_offset < first_dirty:
                continue
            # The gap before a segment counts as mapped once the segment before it is.
            latest = max([latest, *(base - 1 for base in bases if base <= model.base_offset)])
            if not model.aborted and not model.control:
                for record in model.records:
                    if record.offset >= first_dirty and record.key is not None:
                        if len(last) == capacity:
                            return latest, last
                        last[record.key] = latest = record.offset
            latest = model.last_offset
        return end_offset - 1, last

    def _clean(
        self,
        model: ModelBatch,
        last: dict[bytes, int],
        latest: int,
        end_offset: int,
        now_ms: int,
        data_left: bool,
    ) -> ModelBatch | None:
        expired = model.horizon_ms is not None and model.horizon_ms <= now_ms
        stamp = False
        if model.control:
            free = not data_left or not model.records
            left = [] if free and expired else model.records
            stamp = free
        elif model.aborted:
            left = []
        elif model.base_offset > latest:
            return model
        else:
            left = []
            for record in model.records:
                newest = record.key is not None and record.offset >= last.get(record.key, -1)
                if record.offset > latest or (newest and not (record.value is None and expired)):
                    left.append(record)
            stamp = any(record.value is None for record in left)
        if not left:
            return self._emptied(model, end_offset)
        model = msgspec.structs.replace(model)
        if len(left) != len(model.records) and not model.append_time:
            model.max_timestamp = max(record.timestamp for record in left)
        model.records = left
        if stamp and model.horizon_ms is None:
            model.horizon_ms = now_ms + RETENTION_MS
        return model

    def _emptied(self, model: ModelBatch, end_offset: int) -> ModelBatch | None:
        known = self.producers.get(model.producer_id)
        if model.last_offset + 1 == end_offset:
            stays = True
        elif known is None:
            stays = False
        elif known.last_data_offset < 0:
            stays = model.control
        else:
            stays = known.last_data_offset == model.last_offset
        if not stays:
            return None
        return msgspec.structs.replace(model, records=[], codec=Codec.NONE, horizon_ms=None)


def flat(model: ModelBatch) -> tuple[object, ...]:
    """As :func:`read` gives a batch."""
    return (
        (
            model.base_offset,
            model.last_offset,
            model.producer_id,
            model.sequence,
            model.codec,
            model.max_timestamp,
        ),
        (model.control, model.transaction >= 0, model.append_time, model.horizon_ms),
        [(record.offset, record.key, record.value, record.timestamp) for record in model.records],
    )


def read(batch: RecordBatch) -> tuple[object, ...]:
    """A batch with everything that must not be lost."""
    assert batch.partition_leader_epoch == 3
    return (
        (
            *(batch.base_offset, batch.last_offset, batch.producer_id, batch.base_sequence),
            *(batch.codec, batch.max_timestamp),
        ),
        (batch.is_control, batch.is_transactional, batch.is_log_append_time, batch.delete_horizon_ms),
        [(record.offset, record.key, record.value, record.timestamp) for record in records(batch)],
    )


class Round(msgspec.Struct):
    """What changes between rounds."""

    later_ms: int
    capacity: int
    segment_bytes: int
    marks_bytes: int
    slots_per_record: int
    """0: keys are looked up again; many: marks are looked at."""
    chunk_bytes: int
    forgets: bool
    """The owner forgets aborted transactions that no index has any more."""


rounds = st.builds(
    Round,
    st.sampled_from([0, 1, RETENTION_MS - 1, RETENTION_MS, 250]),
    st.sampled_from([1, 2, 3, 1000]),
    st.sampled_from([1, 400, 2000, 1 << 30]),
    st.sampled_from([1, 5, 1 << 20]),
    st.sampled_from([0, 1 << 20, 1 << 20]),
    st.sampled_from([61, 200, 1 << 20]),
    st.booleans(),
)


@settings(max_examples=examples(250), deadline=None)
@given(scripts(), st.lists(rounds, min_size=1, max_size=6))
def test_rounds_leave_what_the_model_leaves(script: Script, rounds: list[Round]) -> None:
    """Every batch with all of its fields, over rounds in which time passes and the map is too small."""
    log, model = MemoryLog(*script.data), Model(script)
    aborted = script.aborted
    first_dirty, now_ms = 0, T
    for step in rounds:
        now_ms += step.later_ms
        slots = {1: 3, 2: 3, 3: 5}.get(step.capacity, 2000)
        capacity = {1: 2, 2: 2, 3: 4}.get(step.capacity, 1800)
        bases = [source.base_offset for source in log.sources]
        with (
            patch.object(cleaning_map, "MARKS_BYTES", step.marks_bytes),
            patch.object(cleaning_map, "SLOTS_PER_RECORD_MAX", step.slots_per_record),
            patch.object(cleaning_map, "chunks", partial(chunks, chunk_bytes=step.chunk_bytes)),
            patch.object(cleaning, "chunks", partial(chunks, chunk_bytes=step.chunk_bytes)),
        ):
            result = log.round(
                first_dirty,
                now_ms=now_ms,
                delete_retention_ms=RETENTION_MS,
                segment_bytes=step.segment_bytes,
                map_bytes=24 * slots,
                aborted=aborted,
                producers=script.producers,
            )
        seen = {model_batch.transaction for model_batch in model.batches if not model_batch.control}
        markers = {
            model_batch.base_offset: model_batch.transaction
            for model_batch in model.batches
            if model_batch.control
        }
        first_dirty = model.round(first_dirty, log.end_offset, now_ms, capacity, bases)
        assert result.cleaned_end_offset == first_dirty
        assert [read(batch) for batch in log.batches()] == [
            flat(model_batch) for model_batch in model.batches
        ]
        listed = [entry for target in log.targets for entry in target.aborted or ()]
        assert listed == [
            entry
            for entry in aborted
            if markers.get(entry.last_offset, 0) in seen
            and any(entry.last_offset < source.next_offset for source in log.sources)
            and entry.last_offset < reached(log)
        ]
        if step.forgets:
            aborted = [entry for entry in aborted if entry in listed or entry.last_offset >= reached(log)]


def reached(log: MemoryLog) -> int:
    """Where the last round's last segment ends."""
    last = max((target.base_offset for target in log.targets), default=-1)
    return max((source.next_offset for source in log.sources if source.base_offset == last), default=0)
