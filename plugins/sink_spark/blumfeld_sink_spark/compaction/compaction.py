"""Compaction: small files of closed dates become few, sorted ones, and every row is still there.

For each group: merge into ``_compact/next`` → read back and compare → write ``_compact/intent.json`` → show the new
files to readers by glob → commit the record that names them and what they replace → hand it on to Delta and Iceberg →
remove the old. A crash leaves the intent; the next compaction first finishes it where the new files are shown, and
else undoes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import attrs
import msgspec

from blumfeld_sink_spark.compaction.exchange import can_exchange
from blumfeld_sink_spark.compaction.groups import Files, Group, left_alone, plan
from blumfeld_sink_spark.compaction.merge import Inputs, Merged, UnlikeError, fingerprint_of, merge
from blumfeld_sink_spark.compaction.swap import FileSwap, FolderSwap, Swap, clear, folder_of
from blumfeld_sink_spark.errors import ArchiveError, LedgerConflictError
from blumfeld_sink_spark.files.parquet import compression_of
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.writers.compaction_intent import INTENT, NEXT, WORK, Intent, pending
from blumfeld_sink_spark.records import CommitRecord, FileEntry
from blumfeld_sink_spark.settings import COMPACTION
from blumfeld_sink_spark.stores.contract import ArchiveStore

GROUP_ROWS = 1_048_576


@attrs.frozen
class Done:
    """Result of one group."""

    group: Group
    files: int = 0
    bytes: int = 0
    skipped: str = ""
    """Reason why the group stays as it is; empty if it was merged."""


class Compaction:
    """Compaction of one archive. The caller holds the lease ``compact``; archiving goes on in the meantime.

    :param now_ms: the wall clock, for the records
    :param alive: renews the lease; called again and again while files are merged. Its error ends the work
    :param deliver: hands a commit on to table formats. After an error the next run delivers first
    """

    def __init__(
        self,
        store: ArchiveStore,
        ledger: Ledger,
        *,
        target_bytes: int = 256 << 20,
        compression: str = "zstd:3",
        now_ms: Callable[[], int],
        alive: Callable[[], None] = lambda: None,
        deliver: Callable[[], object] = lambda: None,
    ) -> None:
        compression_of(compression)
        self._store = store
        self._ledger = ledger
        self._target_bytes = target_bytes
        self._compression = compression
        self._now_ms = now_ms
        self._alive = alive
        self._deliver = deliver

    def groups(self, *, before: str, table: str = "") -> list[Group]:
        """Returns the groups that are worth merging, by the ledger as it is now."""
        return plan(self._files(), before=before, table=table, target_bytes=self._target_bytes)

    def left_alone(self, *, before: str, table: str = "") -> Mapping[str, int]:
        """Returns the number of files that ``groups`` leaves alone, by reason."""
        return left_alone(self._files(), before=before, table=table, target_bytes=self._target_bytes)

    def _files(self) -> Files:
        self._ledger.load()
        return Files.of(record for query in self._ledger.queries() for record in self._ledger.records(query))

    def recover(self) -> str:
        """Ends a compaction that a crash cut short. Returns ``finished`` or ``undone``, or ``""`` if there was none.

        :raises ArchiveError: the intent can't be read, or files are gone that it needs; nothing is changed
        """
        self._ledger.load()
        intent = pending(self._store)
        if intent is None:
            clear(self._store)
            return ""
        swap: Swap = FolderSwap(self._store) if intent.folder_swap else FileSwap(self._store)
        committed = self._is_committed(intent.record)
        if committed or swap.is_shown(intent.record):
            self._finish(swap, intent, committed=committed)
            return "finished"
        if not all(self._store.exists(path) for path in intent.record.removed):
            raise ArchiveError(
                f"{self._store.root}: a compaction was cut short, and someone took files away since: neither the old "
                f"nor the new ones are all in {folder_of(intent.record)}. Nothing is touched: {NEXT} has the rest"
            )
        self._undo(intent.record)
        return "undone"

    def run(self, groups: list[Group]) -> Iterator[Done]:
        """Merges group after group.

        :raises ArchiveError: a file differs from its record, or the merged file doesn't read back the same. The group
            is unchanged
        :raises StoreError: the store is full or away; run again
        """
        if groups:
            folder_swap = "://" not in self._store.root and can_exchange(Path(self._store.root, WORK))
        for group in groups:
            try:
                yield self._compact(group, folder_swap)
            except UnlikeError as error:
                clear(self._store)
                yield Done(group, skipped=str(error))

    def _compact(self, group: Group, folder_swap: bool) -> Done:
        swap: Swap = FolderSwap(self._store) if folder_swap else FileSwap(self._store)
        try:
            merged = self._merge(group)
            record = self._record(group, merged)
            intent = Intent(folder_swap=folder_swap, record=record, linked=swap.prepare(record))
            self._alive()
        except (ArchiveError, OSError):
            with suppress(OSError):
                clear(self._store)
            raise
        # The intent must be durable before the first step that readers see: after a crash it is the only
        # record that tells the new files from the old ones.
        self._store.put(INTENT, msgspec.json.encode(intent))
        swap.show(record)
        self._finish(swap, intent, committed=False)
        return Done(group, files=len(merged), bytes=sum(file.bytes for file in merged))

    def _finish(self, swap: Swap, intent: Intent, *, committed: bool) -> None:
        if not committed:
            swap.settle(intent.record, intent.linked)
            self._ledger.load()
            if not self._ledger.append(intent.record):
                raise LedgerConflictError(
                    f"{self._store.root}: another compaction is at work. Stop one of the two, then run compact again"
                )
        self._deliver()
        swap.clean(intent.record)
        self._store.delete(INTENT)

    def _undo(self, record: CommitRecord) -> None:
        """Undoes a group before its commit: removes the new files that are shown. The old files are all there."""
        for entry in record.files:
            self._store.delete(entry.path)
        clear(self._store)
        self._store.delete(INTENT)

    def _merge(self, group: Group) -> list[Merged]:
        """Writes the rows of the old files into new ones in ``NEXT``, reads them back and compares."""
        clear(self._store)
        inputs = Inputs(self._read, group.entries)
        merged = merge(
            inputs,
            self._store.create,
            lambda number: f"{NEXT}/{number}.inprogress",
            rows_per_file=group.rows_per_file(self._target_bytes),
            group_rows=GROUP_ROWS,
            compression=self._compression,
        )
        fingerprint = fingerprint_of(self._store.open_input, [file.path for file in merged])
        if fingerprint != inputs.fingerprint:
            raise ArchiveError(
                f"{group.folder}: {inputs.fingerprint.difference(fingerprint)}. Nothing was changed"
            )
        final = [group.path(number, len(merged)) for number in range(len(merged))]
        for file, path in zip(merged, final, strict=True):
            self._store.publish(file.path, f"{NEXT}/{path.rpartition('/')[2]}")
        return [attrs.evolve(file, path=path) for file, path in zip(merged, final, strict=True)]

    def _read(self, path: str) -> bytes:
        self._alive()
        return self._store.read(path)

    def _record(self, group: Group, merged: list[Merged]) -> CommitRecord:
        self._ledger.load()
        last = self._ledger.last(COMPACTION)
        return CommitRecord(
            query=COMPACTION,
            batch=last.batch + 1 if last is not None else 0,
            ranges=(),
            files=tuple(_entry(group, file) for file in merged),
            removed=tuple(entry.path for entry in group.entries),
            messages=0,
            bytes_in=0,
            quarantined=0,
            gaps=0,
            decoders={},
            state={},
            committed_ms=self._now_ms(),
        )

    def _is_committed(self, record: CommitRecord) -> bool:
        return self._ledger.find(record.query, record.batch) == record


def _entry(group: Group, file: Merged) -> FileEntry:
    return FileEntry(
        path=file.path,
        table=group.table,
        date=group.date,
        symbol=group.symbol,
        topic=group.topic,
        partition=group.partition,
        rows=file.rows,
        bytes=file.bytes,
        sha256=file.sha256,
        ts_min=file.ts_min,
        ts_max=file.ts_max,
    )
