"""Checks every file of a log directory or of one partition against its own contents."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.cli.log.directory import (
    checkpoint,
    is_data_directory,
    log_folders,
    segment_bases,
    segment_files,
)
from blumfeld.cli.log.files import read
from blumfeld.cli.log.listing import Listing
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.log.checkpoints import CLEANER_OFFSETS
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.log.segments.file_names import Mark, SegmentFile, Suffix, parse_partition_dir, segment_name
from blumfeld.log.segments.verification import (
    Finding,
    SegmentBytes,
    SegmentSummary,
    verify_epochs,
    verify_log,
    verify_segment,
    verify_snapshot,
)

_FILES = RealFiles()


class LogReport(msgspec.Struct):
    """Findings in one partition's directory."""

    path: str
    segments: list[SegmentSummary]
    findings: list[Finding]

    @property
    def is_sound(self) -> bool:
        """Whether all findings are mere notes."""
        return all(finding.is_harmless for finding in self.findings)

    @property
    def end_offset(self) -> int:
        """End offset of the last sound batch."""
        return self.segments[-1].next_offset if self.segments else 0


def partition_paths(path: str) -> list[str]:
    """``path`` itself if it is a partition, otherwise all partition directories in it except leftovers."""
    if not is_data_directory(path):
        return [path]
    return [folder.path for folder in log_folders(path) if not folder.name.state]


def verify_partition(path: str, *, deep: bool) -> LogReport:
    """Check every file of one log.

    :raises OSError: a file cannot be read
    """
    files = segment_files(path)
    summaries, findings = [], []
    for base in segment_bases(path):
        summary = verify_segment(_segment_bytes(path, base, files), deep=deep)
        summaries.append(summary)
        findings += summary.findings
    parsed = parse_partition_dir(path.rpartition("/")[2])
    cleaned = checkpoint(path.rpartition("/")[0] or ".", CLEANER_OFFSETS)
    findings += verify_log(summaries, compacts=parsed is not None and parsed.partition in cleaned)
    epochs = _FILES.read_bytes(f"{path}/{EPOCHS}") if _FILES.exists(f"{path}/{EPOCHS}") else None
    findings += verify_epochs(epochs, EPOCHS, summaries)
    report = LogReport(path, summaries, findings)
    for file in files:
        if file.suffix is Suffix.PRODUCER_SNAPSHOT and not file.mark:
            name = segment_name(file.base_offset, file.suffix)
            data = _FILES.read_bytes(f"{path}/{name}")
            findings += verify_snapshot(data, name, file.base_offset, report.end_offset)
    return report


def _segment_bytes(path: str, base: int, files: Sequence[SegmentFile]) -> SegmentBytes:
    def index(suffix: Suffix) -> memoryview | None:
        wanted = SegmentFile(base, suffix, Mark.NONE)
        return read(f"{path}/{segment_name(base, suffix)}") if wanted in files else None

    return SegmentBytes(
        base_offset=base,
        log=read(f"{path}/{segment_name(base)}"),
        offset_index=index(Suffix.OFFSET_INDEX),
        time_index=index(Suffix.TIME_INDEX),
        transaction_index=index(Suffix.TRANSACTION_INDEX),
    )


def findings_listing(reports: Sequence[LogReport]) -> Listing:
    """All findings, and the number of checked files."""
    listing = Listing("findings", ("log", "file", "what", "mended by"), [], [])
    for report in reports:
        for finding in report.findings:
            listing.add(report.path.rpartition("/")[2], finding.file, finding.problem, finding.mending.value)
    segments = [summary for report in reports for summary in report.segments]
    sound = sum(report.is_sound for report in reports)
    listing.notes.append(
        f"{sound:,} of {len(reports):,} logs are sound: {len(segments):,} segments, "
        f"{sum(s.batches for s in segments):,} batches, {sum(s.records for s in segments):,} records looked at"
    )
    return listing
