"""The storage whose files lie in a log directory: another one can't read them.

Files of Kafka's form are those of ``storage_local``. Every other storage is named by a mark in the directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from blumfeld.kernel.build_needs import BuildLacks
from blumfeld.spi.runtime import Files

MARK = ".blumfeld_storage"
"""Name of the file. It has the storage's plug-in as text. Kafka looks at no file of this name."""
OF_KAFKAS_FORM = "storage_local"
"""The storage that reads and writes files of Kafka's form. Its directories have no mark, so they are still Kafka's."""
_PARTITION = re.compile(r".+-\d+")
_SEGMENT = re.compile(r"\d{20}\.log")


def check_marks(files: Files, directories: Iterable[str], storage: str) -> None:
    """Refuse directories whose logs another storage has written. A directory that can't be read is the storage's to
    report.

    :param storage: the plug-in of the innermost storage
    :raises BuildLacks: it names the directory and both storages
    """
    for directory in directories:
        with suppress(OSError):
            owner = _owner(files, directory)
            if owner not in (None, storage):
                raise BuildLacks(
                    f"{directory} holds logs of the storage {owner}, and this build has {storage}, which would serve "
                    f'none of them: start a build with [storage] plugin = "{owner}", or take another directory'
                )


def _owner(files: Files, directory: str) -> str | None:
    """Returns the storage whose logs lie there; ``None`` if there are none.

    :raises OSError: it can't be read
    """
    mark = f"{directory}/{MARK}"
    if files.exists(mark):
        return files.read_bytes(mark).decode(errors="replace").strip()
    if not files.is_dir(directory):
        return None
    partitions = (name for name in files.list_dir(directory) if _PARTITION.fullmatch(name))
    return OF_KAFKAS_FORM if any(_has_segments(files, f"{directory}/{name}") for name in partitions) else None


def _has_segments(files: Files, partition: str) -> bool:
    return files.is_dir(partition) and any(_SEGMENT.fullmatch(name) for name in files.list_dir(partition))


def write_marks(files: Files, directories: Sequence[str], storage: str) -> None:
    """Mark the directories that have no mark yet.

    :raises OSError: one can't be written
    """
    for directory in directories:
        mark = f"{directory}/{MARK}"
        if not files.exists(mark):
            files.write_atomically(mark, f"{storage}\n".encode())
