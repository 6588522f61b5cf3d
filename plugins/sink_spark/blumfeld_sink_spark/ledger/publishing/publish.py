"""Publishing a batch: staged files become a commit. The result is the same wherever an earlier run was cut short.

The steps, in this order:

1. Stage the rows of ``gaps``.
2. Write the intent.
3. Move the files to their final names, those of ``gaps`` last.
4. Write the commit record, unless there is one. This is the commit.
5. Remove the intent.

The planned ranges and the rows determine names and bytes, so a second run of a batch replaces the files of the first
and adds none. The intent tells the next run which files an earlier run may have left, and tells other queries that a
writer is about to publish these offsets.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import attrs
from msgspec import structs

from blumfeld_sink_spark.errors import ArchiveError, LedgerConflictError
from blumfeld_sink_spark.ledger.ledger import Ledger, record_path
from blumfeld_sink_spark.ledger.publishing import gaps
from blumfeld_sink_spark.ledger.publishing.names import final_path
from blumfeld_sink_spark.ledger.publishing.planned_counts import counts_of
from blumfeld_sink_spark.ledger.rules import named
from blumfeld_sink_spark.ledger.writers import intents
from blumfeld_sink_spark.quality import carried_over
from blumfeld_sink_spark.records import CommitRecord, FileEntry, OffsetRange, Seam, StagedFile, TaskResult
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.stores.contract import ArchiveStore

Say = Callable[[str], None]


@attrs.frozen
class _Batch:
    """A batch that has passed all checks, and the moves that publish it."""

    record: CommitRecord
    moves: tuple[tuple[str, str], ...]
    """(staged path, final path), in the order of publishing."""


def to_stderr(line: str) -> None:
    """Writes a remark to stderr, for people."""
    print(f"blumfeld archive: {line}", file=sys.stderr, flush=True)


def publish(
    store: ArchiveStore,
    ledger: Ledger,
    *,
    query: str,
    batch: int,
    planned: Sequence[OffsetRange],
    lost: Sequence[OffsetRange],
    results: Sequence[TaskResult],
    settings: ArchiveSettings,
    now_ms: int,
    seconds: float,
    seams: Sequence[Seam] = (),
    reader: str = "",
    say: Say = to_stderr,
) -> CommitRecord:
    """Commits one batch and returns its record. If the batch is committed already, returns the existing record.

    The caller may repeat the call after a crash at any point, with the same ``planned`` and newly staged files. If the
    call raises, the batch isn't in the archive (but see ``ArchiveStore.certain``), and the caller may repeat it.

    :param seams: the batches of earlier queries that this query continues, the same at each call
    :param reader: tells whether tasks count every offset of their range (``planned_counts.TELLING``)
    :raises LedgerConflictError: offsets are committed already or left out, another writer publishes the same offsets,
        results don't fit the plan, or a count doesn't add up. Nothing was published
    :raises StoreError: the store is full or unreachable
    """
    planned = tuple(sorted(span for span in planned if span.start < span.end))
    draft = CommitRecord(
        query=query,
        batch=batch,
        ranges=planned,
        lost=tuple(sorted(span for span in lost if span.start < span.end)),
        files=(),
        messages=sum(result.messages for result in results),
        bytes_in=sum(result.bytes_in for result in results),
        quarantined=sum(result.quarantined for result in results),
        gaps=0,
        decoders=_decoders(results),
        state={},
        committed_ms=now_ms,
        seconds=seconds,
        reader=reader,
        isolation=settings.isolation,
    )
    try:
        ledger.load()
        done = ledger.find(query, batch)
        if done is not None:
            return _already(store, done, draft, results, say)
        return _commit(store, ledger, _prepared(store, ledger, draft, results, settings, seams), say)
    except (ArchiveError, OSError) as error:
        with suppress(OSError):
            _sweep(store, results)
        if isinstance(error, FileNotFoundError):
            raise ArchiveError(
                f"{store.root}: a staged file is gone ({error}). Run the batch again"
            ) from error
        raise


def _prepared(
    store: ArchiveStore,
    ledger: Ledger,
    draft: CommitRecord,
    results: Sequence[TaskResult],
    settings: ArchiveSettings,
    seams: Sequence[Seam],
) -> _Batch:
    """Checks all rules and stages the gaps. Readers see nothing of it.

    :raises LedgerConflictError: as ``publish``
    """
    ledger.check(draft)
    taken = _moves(draft, results)
    try:
        draft = structs.replace(draft, counts=counts_of(draft.ranges, draft.lost, results, draft.reader))
    except LedgerConflictError as error:
        raise LedgerConflictError(f"batch {draft.batch} of query {draft.query}: {error}") from error
    previous = ledger.last(draft.query)
    state = previous.state if previous else _begun(ledger, seams)
    stitched = gaps.stage(store, draft, state, results, settings)
    moves = (*taken, *stitched.files)
    entries = sorted((entry for _, entry in moves), key=lambda entry: entry.path)
    record = structs.replace(draft, files=tuple(entries), gaps=stitched.rows, state=stitched.state)
    return _Batch(record, tuple((staged, entry.path) for staged, entry in moves))


def _begun(ledger: Ledger, seams: Sequence[Seam]) -> dict[str, Any]:
    """Returns the state before the first batch of a query: the states of the batches that it continues."""
    states = {
        (query, batch): ledger.read(record_path(query, batch)).state
        for query, batch in sorted({(seam.query, seam.batch) for seam in seams})
    }
    return carried_over([(states[seam.query, seam.batch], seam.topic, seam.partition) for seam in seams])


def _commit(store: ArchiveStore, ledger: Ledger, ready: _Batch, say: Say) -> CommitRecord:
    """Publishes the files and commits the batch. From here on readers of the folders see files."""
    record = ready.record
    try:
        earlier = intents.begin(store, ledger, record)
    except (ArchiveError, OSError):
        # Files under the final names may be another writer's, so only the staged ones go.
        with suppress(OSError):
            intents.end(store, record.query)
            _remove(store, (staged for staged, _ in ready.moves))
        raise
    try:
        _tell_replaced(earlier, record, say)
        store.publish_all(ready.moves)
        # Before the commit: afterwards no run of this batch would look for them again.
        _remove(store, sorted(earlier.keys() - {entry.path for entry in record.files}))
    except (ArchiveError, OSError):
        _undo(store, ledger, ready)
        raise
    if not _append(store, ledger, ready):
        _lose(store, ledger, ready)
    # The batch is committed, so a failure here must not fail it. Vacuum removes an intent that stays.
    with suppress(OSError):
        intents.end(store, record.query)
    return record


def _append(store: ArchiveStore, ledger: Ledger, ready: _Batch) -> bool:
    """Writes the record and returns whether the batch's record is ours."""
    record = ready.record
    try:
        return ledger.append(record) or ledger.find(record.query, record.batch) == record
    except (ArchiveError, OSError):
        if store.exists(record_path(record.query, record.batch)):
            return ledger.find(record.query, record.batch) == record
        # An object store may have written the record although its answer got lost, and may show it later. Its files
        # must stay: the next run finds the record, or replaces the files.
        if store.certain:
            _undo(store, ledger, ready)
        raise


def _lose(store: ArchiveStore, ledger: Ledger, ready: _Batch) -> NoReturn:
    """Removes our files after another writer has committed this batch first. Files that its record names stay.

    :raises LedgerConflictError: always
    """
    record = ready.record
    there = ledger.find(record.query, record.batch)
    kept = {entry.path for entry in there.files} if there is not None else set()
    _remove(store, (final for _, final in ready.moves if final not in kept))
    raise LedgerConflictError(
        f"{store.root}: another writer has committed batch {record.batch} of query {record.query} in the meantime; "
        "nothing is lost. Stop one of the two"
    )


def _undo(store: ArchiveStore, ledger: Ledger, ready: _Batch) -> None:
    """Removes files that were published without a record, as far as the store allows. The next run removes the others.

    If another writer has committed the batch, the files under the final names are its own: only our staged files go.
    """
    with suppress(ArchiveError, OSError):
        lost = ledger.find(ready.record.query, ready.record.batch) is not None
        for staged, final in ready.moves:
            if not lost:
                store.delete(final)
            store.delete(staged)
        if not lost:
            intents.end(store, ready.record.query)


def _sweep(store: ArchiveStore, results: Sequence[TaskResult]) -> None:
    _remove(store, (file.staged for result in results for file in result.files))


def _remove(store: ArchiveStore, paths: Iterable[str]) -> None:
    for path in paths:
        store.delete(path)


def _already(
    store: ArchiveStore, done: CommitRecord, draft: CommitRecord, results: Sequence[TaskResult], say: Say
) -> CommitRecord:
    """Returns the record of a batch that is committed already, and removes the newly staged files.

    :raises LedgerConflictError: the record has other offsets than the plan
    """
    if done.ranges != draft.ranges:
        raise LedgerConflictError(
            f"{store.root}: batch {done.batch} of query {done.query} is committed with "
            f"{', '.join(map(named, done.ranges)) or 'no offsets'}, and now planned with "
            f"{', '.join(map(named, draft.ranges)) or 'none'}. Use the checkpoint that belongs to this archive"
        )
    there = {entry.path: entry.sha256 for entry in done.files}
    if any(there.get(entry.path) != entry.sha256 for _, entry in _moves(done, results)):
        say(
            f"batch {done.batch} was committed with other bytes than it comes to now (decoders then: {done.decoders}, "
            f"now: {draft.decoders}); what is committed stays"
        )
    _sweep(store, results)
    intents.end(store, done.query)
    return done


def _tell_replaced(earlier: dict[str, str], record: CommitRecord, say: Say) -> None:
    now = {entry.path: entry.sha256 for entry in record.files}
    changed = sorted(path for path, sha256 in earlier.items() if now.get(path) != sha256)
    if changed:
        say(
            f"batch {record.batch} comes to other bytes than before the crash: replacing or removing "
            f"{len(changed)} file(s), {changed[0]} first. Was a decoder changed?"
        )


def _moves(draft: CommitRecord, results: Sequence[TaskResult]) -> list[tuple[str, FileEntry]]:
    """Returns (staged path, entry with the final path) for each file, sorted by final path.

    :raises LedgerConflictError: the results don't fit the planned ranges
    """
    planned = {(span.topic, span.partition): span for span in draft.ranges}
    moves: dict[str, tuple[str, FileEntry]] = {}
    for result in (outcome for outcome in results if outcome.messages or outcome.files):
        taken = planned.get((result.topic, result.partition))
        if taken is None or result.first_offset < taken.start or result.last_offset >= taken.end:
            raise LedgerConflictError(
                f"batch {draft.batch} of query {draft.query}: a task read {result.topic}-{result.partition} "
                f"{result.first_offset}..{result.last_offset}, planned was {named(taken) if taken else 'nothing'}. "
                "Nothing was published; is the checkpoint of this archive?"
            )
        for file in result.files:
            entry = _entry(file, taken)
            if entry.path in moves:
                raise LedgerConflictError(
                    f"batch {draft.batch} of query {draft.query}: two tasks read {named(taken)}. Nothing was "
                    "published; a partition must be one task: leave minPartitions and its like away"
                )
            moves[entry.path] = (file.staged, entry)
    return [moves[path] for path in sorted(moves)]


def _entry(file: StagedFile, taken: OffsetRange) -> FileEntry:
    return FileEntry(
        path=final_path(file, taken),
        table=file.table,
        date=file.date,
        symbol=file.symbol,
        topic=file.topic,
        partition=file.partition,
        rows=file.rows,
        bytes=file.bytes,
        sha256=file.sha256,
        ts_min=file.ts_min,
        ts_max=file.ts_max,
    )


def _decoders(results: Sequence[TaskResult]) -> dict[str, int]:
    return dict(
        sorted({name: version for result in results for name, version in result.decoders.items()}.items())
    )
