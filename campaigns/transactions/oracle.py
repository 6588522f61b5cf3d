"""The oracle of the output, and of the transactions in its log. Pure: tested without a broker."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from blumfeld.wire.batches.control_records import ControlType, control_type_of
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records

Pair = tuple[bytes, bytes]
"""Key and value of a record."""
NAMED_MAX = 3
"""Records of one kind that a sentence names; the counts hold all."""
FATE = "fate"
"""Header of a record whose transaction its program means to abort."""


class Seen(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    pair: Pair
    doomed: bool
    """Whether it carries the header :data:`FATE`."""


class Account(msgspec.Struct):
    """Differences between the output and the input."""

    records: int = 0
    lost: int = 0
    doubled: int = 0
    foreign: int = 0
    """Records that the input hasn't, or has with another value."""
    disordered: int = 0
    """Places where a record comes behind one that follows it in the input."""
    leaked: int = 0
    """Records of transactions that their program aborted."""

    @property
    def is_exact(self) -> bool:
        """Whether nothing differs."""
        return not any((self.lost, self.doubled, self.foreign, self.disordered, self.leaked))


def compare(partition: int, wanted: Sequence[Pair], copies: Sequence[Seen], account: Account) -> list[str]:
    """Compare what ``read_committed`` shows of a partition with the input. Return a sentence for each kind of fault."""
    place = {pair: at for at, pair in enumerate(wanted)}
    times = Counter(seen.pair for seen in copies)
    faults = {
        "lost": [pair[0] for pair in wanted if not times[pair]],
        "doubled": [pair[0] for pair, count in times.items() if count > 1 and pair in place],
        "foreign": [seen.pair[0] for seen in copies if seen.pair not in place],
        "disordered": _disordered(place, copies),
        "leaked": [seen.pair[0] for seen in copies if seen.doomed],
    }
    account.records += len(copies)
    sentences = []
    for kind, keys in faults.items():
        setattr(account, kind, getattr(account, kind) + len(keys))
        if keys:
            named = ", ".join(key.decode(errors="replace") for key in keys[:NAMED_MAX])
            more = ", …" if len(keys) > NAMED_MAX else ""
            sentences.append(f"output-{partition}: {len(keys)} records {kind}: {named}{more}")
    return sentences


def _disordered(place: Mapping[Pair, int], copies: Sequence[Seen]) -> list[bytes]:
    """Return the keys of records that come behind one that follows them in the input; a repeated one is not counted."""
    behind, last, seen_before = [], -1, set()
    for seen in copies:
        at = place.get(seen.pair)
        if at is None or seen.pair in seen_before:
            continue
        seen_before.add(seen.pair)
        if at < last:
            behind.append(seen.pair[0])
        last = max(last, at)
    return behind


def sha256_of(lines: Iterable[bytes]) -> str:
    """Return the digest of the lines as a file."""
    whole = hashlib.sha256()
    for line in lines:
        whole.update(line + b"\n")
    return whole.hexdigest()


def digest_of(partitions: Iterable[Sequence[Pair]]) -> str:
    """Return the SHA-256 of the lines of all partitions, in the order of their numbers, as a file.

    A record that is there twice, or isn't there, changes it. The order within a partition does not: :func:`compare`
    looks at that.
    """
    return sha256_of(
        line for _, line in sorted((int(key), line) for pairs in partitions for key, line in pairs)
    )


class Transcript(msgspec.Struct):
    """The transactions of one partition's log, as its markers end them."""

    committed: list[int] = msgspec.field(default_factory=list)
    """Offsets of all records of committed transactions."""
    aborted: list[int] = msgspec.field(default_factory=list)
    open: dict[tuple[int, int], list[int]] = msgspec.field(default_factory=dict)
    """Producer id and epoch → offsets of a transaction without a marker."""
    plain: int = 0
    """Records outside of transactions."""
    commits: int = 0
    aborts: int = 0
    idle_markers: int = 0
    """Markers that ended nothing."""
    producers: set[tuple[int, int]] = msgspec.field(default_factory=set)
    """Producer id and epoch of every transaction."""


def transcript_of(batches: Iterable[RecordBatch]) -> Transcript:
    """Replay a log. A marker ends what its producer id wrote since the marker before, as in Kafka."""
    transcript = Transcript()
    pending: dict[int, list[int]] = {}
    epochs: dict[int, int] = {}
    for batch in batches:
        if batch.is_control:
            for record in records(batch):
                _end(transcript, control_type_of(record.key), pending.pop(batch.producer_id, None))
            epochs.pop(batch.producer_id, None)
        elif not batch.is_transactional:
            transcript.plain += batch.record_count
        else:
            offsets = range(batch.base_offset, batch.next_offset)
            pending.setdefault(batch.producer_id, []).extend(offsets)
            epochs[batch.producer_id] = batch.producer_epoch
            transcript.producers.add((batch.producer_id, batch.producer_epoch))
    transcript.open = {
        (producer_id, epochs[producer_id]): offsets for producer_id, offsets in pending.items()
    }
    transcript.committed.sort()
    transcript.aborted.sort()
    return transcript


def _end(transcript: Transcript, marker: ControlType | None, offsets: list[int] | None) -> None:
    if marker not in (ControlType.COMMIT, ControlType.ABORT):
        return
    if offsets is None:
        transcript.idle_markers += 1
    elif marker is ControlType.COMMIT:
        transcript.commits += 1
        transcript.committed += offsets
    else:
        transcript.aborts += 1
        transcript.aborted += offsets


def check_isolation(
    partition: int,
    transcript: Transcript,
    committed: Sequence[int],
    everything: Sequence[int],
    told_aborted: Iterable[int],
) -> list[str]:
    """Compare the two isolation levels with the markers in the log.

    :param committed: offsets that ``read_committed`` showed
    :param everything: offsets that ``read_uncommitted`` showed
    :param told_aborted: offsets of records that a program wrote and then aborted
    """
    at = f"output-{partition}"
    wrong = []
    if list(committed) != transcript.committed:
        wrong.append(
            f"{at}: read_committed shows {len(committed)} records, the log has {len(transcript.committed)} committed"
        )
    left = [offset for offsets in transcript.open.values() for offset in offsets]
    expected = sorted([*transcript.committed, *transcript.aborted, *left])
    if list(everything) != expected:
        wrong.append(f"{at}: read_uncommitted shows {len(everything)} records, the log has {len(expected)}")
    hidden = set(told_aborted) - set(everything)
    if hidden:
        wrong.append(
            f"{at}: {len(hidden)} aborted records are not in read_uncommitted, such as {min(hidden)}"
        )
    undone = set(told_aborted) - set(transcript.aborted)
    if undone - hidden:
        wrong.append(f"{at}: {len(undone - hidden)} records of aborted transactions have no abort marker")
    for (producer_id, epoch), offsets in sorted(transcript.open.items()):
        wrong.append(
            f"{at}: the transaction of producer {producer_id}, epoch {epoch}, is open from {offsets[0]} on"
        )
    if transcript.plain:
        wrong.append(f"{at}: {transcript.plain} records are in no transaction")
    return wrong


def check_rest(
    ends: Mapping[tuple[str, int], tuple[int, int]],
    states: Iterable[tuple[str, str]],
    offsets: Mapping[int, int],
    input_ends: Mapping[int, int],
) -> list[str]:
    """Check the state that all clients leave behind when they have ended.

    :param ends: topic and partition → high watermark and last stable offset
    :param states: transactional id and state of every transaction that a coordinator lists
    :param offsets: partition of the input → what the group has committed
    :param input_ends: partition of the input → its end
    """
    wrong = [
        f"{topic}-{partition}: the last stable offset {stable} is below the high watermark {high}"
        for (topic, partition), (high, stable) in sorted(ends.items())
        if stable != high
    ]
    wrong += [
        f"transactional id {name} is left in {state}"
        for name, state in sorted(states)
        if state not in ("Empty", "CompleteCommit", "CompleteAbort")
    ]
    wrong += [
        f"input-{partition}: the group has committed {offsets.get(partition, -1)}, the log ends at {end}"
        for partition, end in sorted(input_ends.items())
        if offsets.get(partition, -1) != end
    ]
    return wrong
