"""The copy of the image that a snapshot is made from is freed over several turns."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any, cast

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.partition_table import CHUNK_PARTITIONS, PartitionTable
from blumfeld.metadata.image.records import pieces
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.testing.fakes.runtime import FakeRuntime
from blumfeld_consensus_kraft.snapshots import PIECES_FREED_AT_ONCE, Snapshots
from tests.plugins.consensus_kraft.kraft_node import Events

LARGE, SMALL, SMALL_TOPICS = 40_000, 100, 300


def image_with(replicas: tuple[int, ...]) -> MetadataImage:
    """A large topic and small ones. All partitions share one tuple, so its references count them."""
    image = MetadataImage("c")

    def partition(number: int) -> PartitionImage:
        return PartitionImage(
            partition=number, replicas=replicas, isr=(), leader=1, leader_epoch=0, partition_epoch=0
        )

    large = PartitionTable({number: partition(number) for number in range(LARGE)})
    image.topics["large"] = TopicImage(name="large", topic_id=b"l" * 16, partitions=large)
    for topic in range(SMALL_TOPICS):
        name = f"small-{topic}"
        partitions = {number: partition(number) for number in range(SMALL)}
        image.topics[name] = TopicImage(name=name, topic_id=topic.to_bytes(16), partitions=partitions)
    return image


def test_a_dropped_image_is_freed_a_little_in_each_turn() -> None:
    replicas = tuple(int(one) for one in "123")
    before = sys.getrefcount(replicas)
    image = image_with(replicas)
    assert sys.getrefcount(replicas) == before + LARGE + SMALL * SMALL_TOPICS
    runtime = FakeRuntime()
    call_later = runtime.call_later
    runtime.call_later = lambda delay_ms, callback: call_later(max(delay_ms, 1.0), callback)  # type: ignore[method-assign]
    snapshots = Snapshots(runtime, BrokerConfig({}), cast("Any", None), Events(), lambda: image)
    held = [sys.getrefcount(replicas)]
    runtime.spawn(snapshots._let_go(image), "let go")
    runtime.run_turn()
    held.append(sys.getrefcount(replicas))
    while held[-1] > before:
        assert len(held) < 100
        runtime.advance(1.0)
        held.append(sys.getrefcount(replicas))
    freed = [earlier - later for earlier, later in pairwise(held)]
    assert 0 < max(freed) <= PIECES_FREED_AT_ONCE * (CHUNK_PARTITIONS + SMALL)


def test_the_pieces_hold_every_partition() -> None:
    image = image_with((1,))
    found = 0
    for piece in pieces(image):
        held = piece if isinstance(piece, dict) else [n for t in cast("Any", piece) for n in t.partitions]
        assert len(held) <= CHUNK_PARTITIONS + SMALL
        found += len(held)
    assert found == LARGE + SMALL * SMALL_TOPICS
