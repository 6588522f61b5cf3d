"""Finds files that must not be in a data directory once a start has settled: names that Kafka's layout gives to
half-done work or to deleted files, and files of segments without a log.
"""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.log.segments.file_names import DirState, Suffix, parse_partition_dir, parse_segment_name
from blumfeld.spi.runtime import Files

_OF_SEGMENTS = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX, Suffix.TRANSACTION_INDEX)


def leftovers(files: Files, directories: Sequence[str]) -> list[str]:
    """Return the paths of such files and directories below ``directories``, which need not exist.

    A checkpoint's ``.tmp`` may stay: the next checkpoint overwrites it. A stray directory stays too: a person decides
    about it.
    """
    left: list[str] = []
    for directory in directories:
        for name in files.list_dir(directory) if files.is_dir(directory) else ():
            path = f"{directory}/{name}"
            partition = parse_partition_dir(name)
            if partition is not None and partition.state not in (DirState.CURRENT, DirState.STRAY):
                left.append(path)
            elif partition is not None and partition.state is DirState.CURRENT and files.is_dir(path):
                left += [f"{path}/{name}" for name in _half_done(files.list_dir(path))]
    return left


def _half_done(names: Sequence[str]) -> list[str]:
    parsed = [(name, parse_segment_name(name)) for name in names]
    logs = {file.base_offset for _, file in parsed if file and file.suffix is Suffix.LOG and not file.mark}
    return [
        name
        for name, file in parsed
        if name.endswith((".tmp", ".part"))
        or (file is not None and file.mark)
        or (file is not None and file.suffix in _OF_SEGMENTS and file.base_offset not in logs)
    ]
