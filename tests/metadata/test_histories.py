"""Histories by seed of a cluster with kills, power cuts, cuts of the network, new controllers and reassignments."""

from __future__ import annotations

from collections import Counter

import pytest

from blumfeld.metadata.image.checkpoint import decode_checkpoint, encode_checkpoint
from blumfeld.metadata.image.records import image_of, image_records
from blumfeld.metadata.partitions import elections
from tests.everyday import first
from tests.metadata.cluster_model import ClusterModel
from tests.metadata.driven import replayed

STEPS = 400
SEEN = (
    "acknowledged",
    "clean",
    "unclean",
    "leaderless",
    "ISR changed",
    "not eligible",
    "session ended",
    "clean stop",
    "cut between parts",
    "failover",
    "minimum",
    "reassigned",
    "reassignment ended",
    "unregistered",
)
"""What must happen at least once, or the histories say little."""


def run(seed: int, *, elr: bool, power: bool) -> ClusterModel:
    model = ClusterModel(seed, elr=elr, power=power)
    for _ in range(STEPS):
        model.step()
    image = model.driven.image
    assert replayed(model.driven.log) == image
    data = encode_checkpoint(image_records(image), epoch=1, timestamp_ms=1)
    assert image_of("", decode_checkpoint(data, "x").records) == image
    return model


@pytest.mark.parametrize("seeds", first(1, [10, 40]))
@pytest.mark.parametrize("elr", [True, False])
def test_no_acknowledged_record_is_lost(elr: bool, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With eligible replicas the power goes, and takes what was not flushed. Without them processes are killed, and no
    page cache is lost: the last ISR would stay all the same.
    """
    monkeypatch.setattr(elections, "SLICE_RECORDS", 2)
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        try:
            counts.update(run(seed, elr=elr, power=elr).counts)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert not [name for name in SEEN if not counts[name]]
    assert bool(counts["from the ELR"]) == bool(counts["last known leader"]) == elr
