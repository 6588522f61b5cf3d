"""The plan of a swap, in a small file beside the log. A start after a crash finishes the swap by it.

Kafka has no such file and goes by the offsets in the ``.swap`` files. An old segment of which no record is left can
then come back. Without a plan, or with the plan of another swap, :func:`finish_swaps` does as Kafka does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.log.segments.file_names import Mark, SegmentFile, Suffix, parse_segment_name, segment_name
from blumfeld.spi.runtime import Files
from blumfeld_storage_local.segments.scan import scan

SWAP_PLAN = "compaction-swap"
"""Name of the plan's file."""
Marked = Sequence[tuple[str, SegmentFile]]
SEGMENT_SUFFIXES = (Suffix.LOG, Suffix.OFFSET_INDEX, Suffix.TIME_INDEX, Suffix.TRANSACTION_INDEX)
"""Suffixes of the files that come and go with a segment."""


class SwapPlan(msgspec.Struct, frozen=True):
    """One swap. It has happened once the first target has no ``.cleaned`` log any more: then only renames are left."""

    targets: tuple[int, ...]
    """Base offsets of the new segments, ascending."""
    gone: tuple[str, ...]
    """Names of files that go with the old segments. Some of them may not exist."""

    def encode(self) -> bytes:
        """Return the bytes of the plan's file."""
        return msgspec.json.encode(self)


def finish_swaps(files: Files, directory: str, marked: Marked, *, planned: bool) -> None:
    """Finish a swap that has happened, and remove the files of one that has not. Blocks; raises ``OSError``.

    :param marked: all files with a mark in the directory
    :param planned: there is a plan, which is removed at the end
    """
    plan = _read_plan(files, f"{directory}/{SWAP_PLAN}") if planned else None
    swaps = [(name, file) for name, file in marked if file.mark is Mark.SWAP]
    cleaned = [file.base_offset for _, file in marked if file.mark is Mark.CLEANED]
    if plan is not None and swaps and all(file.base_offset in plan.targets for _, file in swaps):
        happened = segment_name(plan.targets[0], mark=Mark.CLEANED) not in dict(marked)
        finished = swaps if happened else []
        gone = plan.gone
    else:
        finished = [(name, file) for name, file in swaps if not cleaned or file.base_offset < min(cleaned)]
        gone = _covered(files, directory, finished)
    _unlink(files, directory, [name for name, file in swaps if (name, file) not in finished])
    if finished:
        present = frozenset(files.list_dir(directory))
        _unlink(files, directory, [name for name in gone if name in present])
        # The old files must be gone for good before a .swap file is renamed: only .swap files tell that they must go.
        files.sync_dir(directory)
        for name, _ in finished:
            files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(Mark.SWAP.value)}")
    if swaps:
        # Only a .cleaned file tells that a swap has not happened: its .swap files must be gone for good before it is.
        files.sync_dir(directory)
    _unlink(files, directory, [name for name, file in marked if file.mark is not Mark.SWAP])
    if planned:
        files.unlink(f"{directory}/{SWAP_PLAN}")


def _read_plan(files: Files, path: str) -> SwapPlan | None:
    try:
        plan = msgspec.json.decode(files.read_bytes(path), type=SwapPlan)
    except msgspec.DecodeError:
        return None
    return plan if plan.targets else None


def _unlink(files: Files, directory: str, names: Sequence[str]) -> None:
    for name in names:
        files.unlink(f"{directory}/{name}")


def _covered(files: Files, directory: str, swaps: Marked) -> tuple[str, ...]:
    """Return the files of segments that the offsets in the ``.swap`` files cover: Kafka's rule."""
    bases = {swap.base_offset for _, swap in swaps}
    present = [
        (name, file) for name in files.list_dir(directory) if (file := parse_segment_name(name)) is not None
    ]
    covered: list[str] = []
    for swap_name, swap in swaps:
        if swap.suffix is not Suffix.LOG:
            continue
        last_offset = _last_offset(files, f"{directory}/{swap_name}", swap.base_offset)
        covered += (
            name
            for name, file in present
            if swap.base_offset < file.base_offset <= last_offset
            and file.base_offset not in bases
            and not file.mark
            and file.suffix in SEGMENT_SUFFIXES
        )
    return tuple(dict.fromkeys(covered))


def _last_offset(files: Files, path: str, base_offset: int) -> int:
    file = files.open(path, write=False)
    try:
        last_offset = base_offset
        for batch in scan(file, 0, file.size()):
            last_offset = batch.last_offset
        return last_offset
    finally:
        file.close()
