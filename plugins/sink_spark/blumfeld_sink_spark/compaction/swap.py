"""The merged files of a folder take the place of others: the steps that readers see, and the mending after a crash.

There are two ways. ``FolderSwap``, where the system can exchange two folders in one step: the new folder is built
aside, with links to the files that stay, and changes places with the old one. ``FileSwap`` elsewhere (object stores):
the new files are published, then the old ones removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from blumfeld_sink_spark.compaction.exchange import exchange
from blumfeld_sink_spark.ledger.writers.compaction_intent import NEXT, WORK
from blumfeld_sink_spark.records import CommitRecord
from blumfeld_sink_spark.stores.contract import ArchiveStore, speaking
from blumfeld_sink_spark.stores.local import sync_folder

ASIDE = f"{WORK}/aside"


class Swap(Protocol):
    """The steps that put the new files of one group in the place of the old. Each step may be repeated after a crash
    within it.
    """

    def prepare(self, record: CommitRecord) -> dict[str, int]:
        """Does the work that no reader sees. The new files lie in ``NEXT`` under their final names. Returns the values
        that ``settle`` needs.
        """
        ...

    def show(self, record: CommitRecord) -> None:
        """Makes the change that readers by glob see."""
        ...

    def is_shown(self, record: CommitRecord) -> bool:
        """Returns whether ``show`` got past its point of no return."""
        ...

    def settle(self, record: CommitRecord, linked: dict[str, int]) -> None:
        """Keeps the changes that other writers made in the meantime. Runs between ``show`` and the commit."""
        ...

    def clean(self, record: CommitRecord) -> None:
        """Removes the old files. Runs after the commit."""
        ...


def clear(store: ArchiveStore) -> None:
    """Empties ``NEXT``."""
    for path in [*store.list(NEXT), ASIDE]:
        store.delete(path)
    if "://" not in store.root:
        with suppress(FileNotFoundError):
            os.rmdir(Path(store.root, NEXT))


def folder_of(record: CommitRecord) -> str:
    """Returns the folder of a compaction's record: its files lie in one."""
    return record.files[0].path.rpartition("/")[0]


def _names(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[2] for path in paths}


class FolderSwap:
    """Swaps folders on a local file system. A reader by glob sees the folder before or after, never a mixture. A reader
    that has listed it before and opens files after gets "no such file", and must list again.
    """

    def __init__(self, store: ArchiveStore) -> None:
        self._store = store
        self._root = Path(store.root)
        self._next = self._root / NEXT

    def prepare(self, record: CommitRecord) -> dict[str, int]:
        folder = self._root / folder_of(record)
        removed = _names(record.removed)
        linked = {}
        with speaking(self._store.root, f"linking the files of {folder_of(record)}"):
            for name in sorted(os.listdir(folder)):
                with suppress(FileNotFoundError):  # gone since it was listed
                    if name not in removed:
                        os.link(folder / name, self._next / name)
                        linked[name] = os.stat(self._next / name).st_ino
            sync_folder(self._next)
        return linked

    def show(self, record: CommitRecord) -> None:
        folder = self._root / folder_of(record)
        with speaking(self._store.root, f"exchanging {folder_of(record)}"):
            exchange(self._next, folder)
            sync_folder(folder.parent)
            sync_folder(self._next.parent)

    def is_shown(self, record: CommitRecord) -> bool:
        return all(self._store.exists(entry.path) for entry in record.files)

    def settle(self, record: CommitRecord, linked: dict[str, int]) -> None:
        """Repeats on the new folder the changes that other writers made to the old folder between ``prepare`` and
        ``show``. A file that came or was replaced there is out of sight from the swap until now; one that was removed
        is back.
        """
        folder = self._root / folder_of(record)
        removed = _names(record.removed)
        with speaking(self._store.root, f"settling {folder_of(record)}"):
            there = sorted(os.listdir(self._next))
            for name in there:
                if name not in removed and not _same(self._next / name, folder / name):
                    self._replace(self._next / name, folder / name)
            for name in sorted(linked.keys() - set(there)):
                with suppress(FileNotFoundError):
                    if os.stat(folder / name).st_ino == linked[name]:
                        os.unlink(folder / name)
            sync_folder(folder)

    def clean(self, record: CommitRecord) -> None:
        clear(self._store)

    def _replace(self, source: Path, target: Path) -> None:
        """Replaces the target by a link and a rename. The source stays, so that a repetition after a crash changes
        nothing.
        """
        aside = self._root / ASIDE
        with suppress(FileNotFoundError):
            os.unlink(aside)
        os.link(source, aside)
        os.replace(aside, target)


class FileSwap:
    """Anywhere. A reader by glob sees rows twice from ``show`` until ``clean`` is done; one that goes by the ledger
    (``blumfeld archive sql``) sees each once all the time.
    """

    def __init__(self, store: ArchiveStore) -> None:
        self._store = store

    def prepare(self, record: CommitRecord) -> dict[str, int]:
        return {}

    def show(self, record: CommitRecord) -> None:
        self._store.publish_all(
            [(f"{NEXT}/{entry.path.rpartition('/')[2]}", entry.path) for entry in record.files]
        )

    def is_shown(self, record: CommitRecord) -> bool:
        return all(self._store.exists(entry.path) for entry in record.files)

    def settle(self, record: CommitRecord, linked: dict[str, int]) -> None:
        pass

    def clean(self, record: CommitRecord) -> None:
        for path in record.removed:
            self._store.delete(path)
        if "://" not in self._store.root:
            sync_folder(Path(self._store.root, folder_of(record)))
        clear(self._store)


def _same(first: Path, other: Path) -> bool:
    try:
        return os.path.samefile(first, other)
    except FileNotFoundError:
        return False
