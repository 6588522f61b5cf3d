"""What a swap is about to do, in a small file beside the log: so that a start after a crash does exactly that.

Kafka has no such file, and goes by the offsets in the ``.swap`` files: a segment whose records all fell out can then
come back. Where there is none, or it speaks of another swap, :func:`finish_swaps` does as Kafka does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.log.segments.file_names import Mark, SegmentFile, Suffix, parse_segment_name, segment_name
from blumfeld.spi.runtime import Files
from blumfeld_storage_local.segments.scan import scan

SWAP_PLAN = "compaction-swap"
"""The file's name."""
Marked = Sequence[tuple[str, SegmentFile]]
SEGMENT_SUFFIXES = (Suffix.LOG, Suffix.OFFSET_INDEX, Suffix.TIME_INDEX, Suffix.TRANSACTION_INDEX)
"""Of the files that come and go with a segment."""


class SwapPlan(msgspec.Struct, frozen=True):
    """The swap has happened once no ``.cleaned`` log of the first target is there; only its renames are to be done."""

    targets: tuple[int, ...]
    """Base offsets of the new segments, ascending."""
    gone: tuple[str, ...]
    """Names of files that go with the old segments, whether they are there or not."""

    def encode(self) -> bytes:
        """The file's bytes."""
        return msgspec.json.encode(self)


def finish_swaps(files: Files, directory: str, marked: Marked, *, planned: bool) -> None:
    """Remove what has a mark, or for ``.swap`` give it its place if its swap has happened. Blocks; raises ``OSError``.

    :param marked: all files with a mark in the directory
    :param planned: there is a plan; it is removed when it is done
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
        files.sync_dir(directory)  # only the .swap files say that the others must go
        for name, _ in finished:
            files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(Mark.SWAP.value)}")
    if swaps:
        files.sync_dir(directory)  # so far only a .cleaned file says that a swap has not happened
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
    """The files of segments whose base offsets lie in these: Kafka's rule."""
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
