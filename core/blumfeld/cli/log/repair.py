"""Repairs the damage that ``--verify`` finds. Only damaged bytes are removed, and they are set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from blumfeld.cli.log.files import read
from blumfeld.cli.log.verify import LogReport
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.log.checkpoints import LOCK
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.segments.file_names import Suffix, parse_segment_name, segment_name
from blumfeld.log.segments.index import OffsetIndex, SegmentIndexer, TimeIndex
from blumfeld.log.segments.inspection import Damage, WholeBatch, inspect_segment
from blumfeld.log.segments.verification import Mending, first_epochs

INDEX_INTERVAL_BYTES = 4096
"""Kafka's default. The index density only decides how far a look-up scans."""
_FILES = RealFiles()


def take(data_directory: str) -> Callable[[], None]:
    """Lock brokers out during a repair. Returns the function that unlocks.

    :raises OSError: a broker runs on the directory
    """
    return _FILES.lock(f"{data_directory}/{LOCK}")


def mend(report: LogReport) -> Iterator[str]:
    """Repair one log by its report. Yields a line for each finding that was repaired or left.

    A log file is replaced as a whole, so after a crash the old or the repaired file is there.

    :raises OSError: a file cannot be written; earlier repairs stay
    """
    path = report.path
    cut = sorted({f.file for f in report.findings if f.mending is Mending.CUT})
    rebuild = {_base(f.file) for f in report.findings if f.mending is Mending.REBUILD and f.file != EPOCHS}
    for name in cut:
        yield from _cut(path, name, [f.damage for f in report.findings if f.file == name and f.damage])
        rebuild.add(_base(name))
    for base in sorted(rebuild):
        _rebuild_indexes(path, base)
        yield f"{segment_name(base)}: indexes rebuilt"
    for finding in report.findings:
        if finding.mending is Mending.REMOVE and _FILES.exists(f"{path}/{finding.file}"):
            _FILES.unlink(f"{path}/{finding.file}")
            yield f"{finding.file}: removed"
        elif finding.mending is Mending.REBUILD and finding.file == EPOCHS:
            epochs = LeaderEpochCache()
            for epoch, offset in first_epochs(report.segments):
                epochs.assign(epoch, offset)
            _FILES.write_atomically(f"{path}/{EPOCHS}", epochs.encode())
            yield f"{EPOCHS}: rebuilt from the batches"
        elif finding.mending is Mending.NONE:
            yield f"{finding.file}: left as it is: {finding.problem}"
    _FILES.sync_dir(path)


def _base(name: str) -> int:
    file = parse_segment_name(name)
    assert file is not None, name
    return file.base_offset


def _cut(path: str, name: str, damages: list[Damage]) -> Iterator[str]:
    data = read(f"{path}/{name}")
    for damage in damages:
        aside = f"{name}.damaged-{damage.position}"
        _FILES.write_atomically(
            f"{path}/{aside}", bytes(data[damage.position : damage.position + damage.size_bytes])
        )
        to = "the end of the segment" if damage.to_offset is None else f"{damage.to_offset - 1}"
        lost = (
            f"offsets {damage.from_offset} to {to}" if damage.to_offset != damage.from_offset else "no offset"
        )
        yield f"{name}: {damage.size_bytes:,} bytes set aside in {aside}; {lost} lost with them"
    temporary = f"{path}/{name}.tmp"
    if _FILES.exists(temporary):
        _FILES.unlink(temporary)
    file = _FILES.open(temporary, create=True, exclusive=True)
    try:
        position = start = 0
        holes = [(damage.position, damage.position + damage.size_bytes) for damage in damages]
        for hole_start, hole_end in [*holes, (len(data), len(data))]:
            while start < hole_start:  # A gather write may take less than all bytes.
                written = file.pwritev([data[start:hole_start]], position)
                start, position = start + written, position + written
            start = hole_end
        file.fdatasync()
    finally:
        file.close()
    _FILES.set_modified_ms(temporary, _FILES.modified_ms(f"{path}/{name}"))
    _FILES.rename(temporary, f"{path}/{name}")
    _FILES.sync_dir(path)


def _rebuild_indexes(path: str, base_offset: int) -> None:
    indexer = SegmentIndexer(OffsetIndex(base_offset), TimeIndex(base_offset), INDEX_INTERVAL_BYTES)
    for part in inspect_segment(read(f"{path}/{segment_name(base_offset)}"), base_offset):
        if isinstance(part, WholeBatch):
            batch = part.batch
            indexer.add(batch.last_offset, part.position, batch.size_bytes, batch.max_timestamp)
    indexer.seal()
    for suffix, data in (
        (Suffix.OFFSET_INDEX, indexer.offsets.encode()),
        (Suffix.TIME_INDEX, indexer.times.encode()),
    ):
        _FILES.write_atomically(f"{path}/{segment_name(base_offset, suffix)}", data)
