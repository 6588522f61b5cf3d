"""What a compaction is about to do, written down before any reader can see it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.records import CommitRecord

WORK = "_compact"
NEXT = f"{WORK}/next"
"""Where new files are written; where folders are exchanged, it becomes the new folder, and then holds the old one."""
INTENT = f"{WORK}/intent.json"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """Of one group. While it is there, the files of both sides are nobody else's to touch."""

    folder_swap: bool
    record: CommitRecord
    linked: dict[str, int] = {}
    """Of ``FolderSwap.prepare``."""


class Reads(Protocol):
    """What is asked of a store here."""

    def read(self, path: str) -> bytes:
        """All of a file."""
        ...


def pending(store: Reads) -> Intent | None:
    """The compaction that is at work or was cut short, or None.

    :raises ArchiveError: the file isn't an intent
    """
    try:
        return msgspec.json.decode(store.read(INTENT), type=Intent)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{INTENT}: isn't an intent ({error}). Run verify, then remove {WORK}") from error
