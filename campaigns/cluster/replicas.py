"""The replicas of every partition after the nodes have stopped: the same batches, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from blumfeld.cli.log.directory import log_folders, segment_bases
from blumfeld.cli.log.files import read
from blumfeld.log.segments.file_names import Suffix, segment_name
from blumfeld.log.segments.inspection import Damage, inspect_segment
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC

Batch = tuple[int, int, int, str]
"""First offset, last offset, leader epoch, and a digest of all bytes."""


def differences(folders: Sequence[Path]) -> list[str]:
    """Compare the logs of the same partition in several data directories. Return a sentence for each that differs.

    Batches below the latest start of a log are passed over: retention is each replica's own business. Segments may be
    cut at other offsets. The cluster's metadata need not end at the same offset: its leader goes on writing while the
    others stop.
    """
    replicas: dict[str, dict[str, list[Batch]]] = {}
    wrong: list[str] = []
    for folder in folders:
        for log_folder in log_folders(str(folder)):
            name = Path(log_folder.path).name
            batches, damages = _batches(log_folder.path)
            wrong += [f"{log_folder.path}: {damage}" for damage in damages]
            replicas.setdefault(name, {})[str(folder)] = batches
    for name, logs in sorted(replicas.items()):
        if said := _difference(logs, whole=not name.startswith(CLUSTER_METADATA_TOPIC)):
            wrong.append(f"{name}: {said}")
    return wrong


def _difference(logs: Mapping[str, list[Batch]], whole: bool) -> str:
    start = max((batches[0][0] for batches in logs.values() if batches), default=0)
    kept = {folder: [batch for batch in batches if batch[0] >= start] for folder, batches in logs.items()}
    (first, expected), *others = kept.items()
    for folder, batches in others:
        for expected_batch, other in zip_longest(expected, batches):
            if expected_batch != other and (whole or (expected_batch and other)):
                return f"{first} has {_said(expected_batch)} where {folder} has {_said(other)}"
    return ""


def _said(batch: Batch | None) -> str:
    if batch is None:
        return "its end"
    first, last, epoch, digest = batch
    return f"offsets {first} to {last} of epoch {epoch} ({digest[:8]})"


def _batches(path: str) -> tuple[list[Batch], list[str]]:
    batches: list[Batch] = []
    damages: list[str] = []
    for base in segment_bases(path):
        data = read(f"{path}/{segment_name(base, Suffix.LOG)}")
        for part in inspect_segment(data, base):
            if isinstance(part, Damage):
                damages.append(f"offsets from {part.from_offset}: {part.problem}")
                continue
            batch = part.batch
            digest = hashlib.sha256(data[part.position : part.position + batch.size_bytes]).hexdigest()
            batches.append((batch.base_offset, batch.last_offset, batch.partition_leader_epoch, digest))
    return batches, damages
