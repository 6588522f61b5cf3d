"""The place where a run begins: its checkpoint, or the ledger's end where the checkpoint is new or gone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import msgspec

from blumfeld_sink_spark.errors import ArchiveError, LedgerConflictError
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.checkpoint import Checkpoint, Identity
from blumfeld_sink_spark.spark.run.progress import Event, Notice
from blumfeld_sink_spark.spark.topics import offset_plans
from blumfeld_sink_spark.spark.topics.client import Topics, TopicState
from blumfeld_sink_spark.spark.topics.offset_plans import Offsets, Place
from blumfeld_sink_spark.stores.contract import ArchiveStore

Tell = Callable[[Event], None]
Covered = Mapping[Place, Sequence[tuple[int, int]]]


@attrs.frozen
class Beginning:
    """A query that is about to start."""

    identity: Identity
    last_batch: int
    """The query's last batch in the ledger; -1 if it has none."""
    ends: Offsets
    """The next offset of each partition."""
    nothing_new: bool = False
    """Whether every planned batch is published and the topics have no offset behind ``ends``."""


def begin(settings: ArchiveSettings, mode: str, store: ArchiveStore, topics: Topics, tell: Tell) -> Beginning:
    """Returns the query of this checkpoint. Without a checkpoint it makes one, for a query from the ledger's end on.

    Reports partitions that have lost all records, and the offsets that it chose.

    :raises ArchiveError: the checkpoint belongs to another query, archive or set of topics, or doesn't fit the ledger
    :raises LedgerConflictError: offsets in the middle of a backfill are archived already
    """
    checkpoint = Checkpoint(settings.checkpoint_location)
    ledger = Ledger(store).load()
    identity = checkpoint.identity()
    state = topics.state()
    for topic, partition in offset_plans.vanished(state.earliest, state.latest):
        tell(
            Notice(
                text=f"{topic}-{partition} begins and ends at offset {state.latest[topic, partition]}: it had records "
                "and has none. Retention takes records by their own time: event times of the past need "
                "retention.ms=-1 on the topic"
            )
        )
    if identity is None:
        identity = _new(settings, mode, ledger, topics, tell)
        checkpoint.create(identity)
    else:
        identity = _known(settings, identity, checkpoint)
    last = ledger.last(identity.query)
    batch = last.batch if last is not None else -1
    check_state(checkpoint, batch, identity.query)
    planned = checkpoint.last_planned()
    ends = checkpoint.offsets(planned)
    ending = offset_plans.from_json(identity.ending) if identity.ending is not None else None
    return Beginning(
        identity=identity,
        last_batch=batch,
        ends=ends,
        nothing_new=planned == batch and nothing_behind(ends, state, ending),
    )


def nothing_behind(ends: Offsets, state: TopicState, ending: Offsets | None = None) -> bool:
    """Returns whether a query that goes on at ``ends`` has neither an offset to read nor a fault to find.

    A topic that ends before ``ends`` was deleted and created again. The answer is then no, so that the query runs
    and reports it. A partition that is new since the query began counts as empty where it has no offset at all.

    :param ending: the offsets at which a backfill ends
    """
    for place, latest in state.latest.items():
        if ending is not None and place not in ending:
            continue
        end = latest if ending is None else min(latest, ending[place])
        if ends.get(place, state.earliest[place]) != end:
            return False
    return True


def check_state(checkpoint: Checkpoint, committed: int, query: str) -> None:
    """Checks that ledger and checkpoint share one history.

    Spark writes a batch into its offset log, then we commit it to the ledger, then Spark writes it into its commit log.
    A crash may stop between two steps, so ``last_done <= committed <= last_planned`` always holds.

    :raises ArchiveError: it doesn't hold: files or checkpoint are an old copy, or another archive's
    """
    if checkpoint.last_done() > committed:
        raise ArchiveError(
            f"the checkpoint {checkpoint.path} has batch {checkpoint.last_done()} as done, but the ledger of {query} "
            f"ends with {committed if committed >= 0 else 'none'}: the archive's files don't belong to this "
            "checkpoint. Bring its own back, or remove the checkpoint to go on from the ledger's end"
        )
    if committed > checkpoint.last_planned():
        raise ArchiveError(
            f"the ledger of {query} ends with batch {committed}, but the checkpoint {checkpoint.path} only knows "
            f"{checkpoint.last_planned()}: it is an old copy. Remove it to go on from the ledger's end"
        )


def _known(settings: ArchiveSettings, identity: Identity, checkpoint: Checkpoint) -> Identity:
    wanted = [
        ("name", identity.name, settings.name),
        ("root", identity.root, full_root(settings.root)),
        ("topic_pattern", identity.topic_pattern, settings.topic_pattern),
    ]
    for key, there, setting in wanted:
        if there != setting:
            raise ArchiveError(
                f"{checkpoint.path} is the checkpoint of an archive with {key} = {there!r}, not {setting!r}; "
                "set archive.checkpoint to another folder, or archive.name to another name"
            )
    gone = sorted(set(identity.topics) - set(settings.topics))
    if gone:
        raise ArchiveError(
            f"{checkpoint.path} is the checkpoint of an archive of {', '.join(identity.topics)}; without "
            f"{', '.join(gone)} it is another archive: name all of them in archive.topics, or set another archive.name"
        )
    if set(settings.topics) != set(identity.topics):
        identity = msgspec.structs.replace(identity, topics=settings.topics)
        checkpoint.create(identity)
    return identity


def _new(settings: ArchiveSettings, mode: str, ledger: Ledger, topics: Topics, tell: Tell) -> Identity:
    starting = topics.resolve(offset_plans.parse_position(settings.starting, "starting"))
    covered = offset_plans.merged(
        each for topic in {topic for topic, _ in starting} for each in ledger.covered(topic)
    )
    ending: Offsets | None = None
    if mode == "backfill":
        position = offset_plans.parse_position(settings.ending or "latest", "ending")
        starting, ending = uncovered(starting, topics.resolve(position), covered, tell)
    elif covered:
        starting = behind(starting, covered, topics.earliest(list(starting)), tell)
    return Identity(
        query=f"{settings.name}-{uuid.uuid4().hex[:8]}",
        name=settings.name,
        root=full_root(settings.root),
        topics=settings.topics,
        topic_pattern=settings.topic_pattern,
        starting=offset_plans.to_json(starting),
        ending=offset_plans.to_json(ending) if ending is not None else None,
        seams=ledger.seams(starting),
    )


def behind(starting: Offsets, covered: Covered, earliest: Offsets, tell: Tell) -> Offsets:
    """Returns the offsets at which a query without its checkpoint goes on: the ends of the archived offsets.

    Partitions that the archive doesn't have yet begin at their earliest offset, whatever ``starting`` says: records
    may have come since the lost checkpoint.
    """
    starts = {place: covered[place][-1][1] if place in covered else earliest[place] for place in starting}
    tell(
        Notice(
            text="no checkpoint, but the ledger has these topics: going on at its end, "
            + ", ".join(
                f"{topic}-{partition} at {starts[topic, partition]}" for topic, partition in sorted(starts)
            )
        )
    )
    return starts


def uncovered(starting: Offsets, ending: Offsets, covered: Covered, tell: Tell) -> tuple[Offsets, Offsets]:
    """Returns (starting, ending) of the part of a backfill that isn't archived yet.

    :raises LedgerConflictError: that part has more than one piece
    """
    first, last = dict(starting), {place: max(offset, starting[place]) for place, offset in ending.items()}
    for place, spans in sorted(covered.items()):
        holes = _holes(OffsetRange(*place, first[place], last[place]), spans)
        if len(holes) > 1:
            holes_text = ", ".join(f"{start}..{end}" for start, end in holes)
            raise LedgerConflictError(
                f"{place[0]}-{place[1]}: parts of {first[place]}..{last[place]} are archived, and the missing offsets "
                f"have several pieces ({holes_text}): run a backfill for each, with its own --from and --to"
            )
        left = holes[0] if holes else (last[place], last[place])
        if left != (first[place], last[place]):
            tell(
                Notice(
                    text=f"{place[0]}-{place[1]}: of {first[place]}..{last[place]} "
                    f"{f'only {left[0]}..{left[1]} is' if left[0] < left[1] else 'nothing is'} missing in the archive"
                )
            )
        first[place], last[place] = left
    return first, last


def _holes(wanted: OffsetRange, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    holes, at = [], wanted.start
    for start, end in spans:
        if start >= wanted.end:
            break
        if start > at:
            holes.append((at, start))
        at = max(at, end)
    if at < wanted.end:
        holes.append((at, wanted.end))
    return holes


def full_root(root: str) -> str:
    """Returns a folder's full path; a URL stays as it is."""
    return root if "://" in root else str(Path(root).resolve())
