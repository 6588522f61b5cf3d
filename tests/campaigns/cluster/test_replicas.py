"""The comparison of replicas after a run: it finds the batch that one of them lacks or has otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from campaigns.cluster.replicas import differences
from tests.broker.batches import batch


def log(folder: Path, name: str, *segments: list[tuple[int, bytes]]) -> None:
    """Write a log with one batch of one record for each (offset, value), in these segments."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    for batches in segments:
        data = b"".join(bytes(stored(offset, value)) for offset, value in batches)
        (folder / name / f"{batches[0][0]:020}.log").write_bytes(data)


def stored(offset: int, value: bytes) -> bytearray:
    data = batch(value)
    data[:8] = offset.to_bytes(8)
    return data


A, B, C = (0, b"a"), (1, b"b"), (2, b"c")


def test_replicas_with_the_same_batches_are_equal(tmp_path: Path) -> None:
    """Wherever their segments are cut, and whatever retention has taken from the beginning of one."""
    log(tmp_path / "one", "t-0", [A, B], [C])
    log(tmp_path / "two", "t-0", [A], [B, C])
    log(tmp_path / "three", "t-0", [B, C])
    assert differences([tmp_path / name for name in ("one", "two", "three")]) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ([A, B], "t-0: .*one has offsets 2 to 2 of epoch .* where .*two has its end"),
        ([A, (1, b"x"), C], "t-0: .*one has offsets 1 to 1 .* where .*two has offsets 1 to 1"),
        ([A, B, C, (3, b"d")], "t-0: .*one has its end where .*two has offsets 3 to 3"),
    ],
)
def test_a_batch_that_differs_is_told(tmp_path: Path, other: list[tuple[int, bytes]], said: str) -> None:
    log(tmp_path / "one", "t-0", [A, B, C])
    log(tmp_path / "two", "t-0", other)
    (difference,) = differences([tmp_path / "one", tmp_path / "two"])
    assert re.match(said, difference)


def test_the_metadata_log_of_one_node_may_be_longer(tmp_path: Path) -> None:
    """Its leader goes on writing while the others stop."""
    log(tmp_path / "one", "__cluster_metadata-0", [A, B, C])
    log(tmp_path / "two", "__cluster_metadata-0", [A, B])
    assert differences([tmp_path / "one", tmp_path / "two"]) == []
    log(tmp_path / "two", "__cluster_metadata-0", [A, (1, b"x")])
    assert len(differences([tmp_path / "one", tmp_path / "two"])) == 1
