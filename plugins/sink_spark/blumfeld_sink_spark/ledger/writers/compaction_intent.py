"""The intent of a compaction: the change of one group, written down before a reader can see any of it."""

from __future__ import annotations

import msgspec

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.records import CommitRecord
from blumfeld_sink_spark.stores.contract import ArchiveStore

WORK = "_compact"
NEXT = f"{WORK}/next"
"""Folder that new files are written to. If the store can exchange folders, this one takes the old folder's place and
the old one lands here.
"""
INTENT = f"{WORK}/intent.json"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """Intent of one group. While the file exists, only the compaction may touch the old and the new files."""

    folder_swap: bool
    record: CommitRecord
    linked: dict[str, int] = {}
    """Result of ``FolderSwap.prepare``: inode by name of each file that was linked into the new folder."""


def pending(store: ArchiveStore) -> Intent | None:
    """Returns the intent of the compaction that is at work or was cut short, or None.

    :raises ArchiveError: the file isn't an intent
    """
    try:
        return msgspec.json.decode(store.read(INTENT), type=Intent)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{INTENT}: isn't an intent ({error}). Run verify, then remove {WORK}") from error
