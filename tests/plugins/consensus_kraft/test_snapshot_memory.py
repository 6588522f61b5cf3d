"""The copy of the image that a snapshot is made from is freed over several turns."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any, cast

import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.image import cluster_image
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.partition_table import CHUNK_PARTITIONS, PartitionTable
from blumfeld.metadata.image.records import emptied, image_of, image_records
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.spi.scheduler import Lane
from blumfeld_consensus_kraft.snapshots import Snapshots
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.coordinator.fakes import Events
from tests.plugins.consensus_kraft.kraft_node import KraftNode, creation

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
    replicas = tuple(int(digit) for digit in "123")
    before = sys.getrefcount(replicas)
    image = image_with(replicas)
    assert sys.getrefcount(replicas) == before + LARGE + SMALL * SMALL_TOPICS
    runtime = FakeRuntime()
    call_later = runtime.call_later
    runtime.call_later = lambda delay_ms, callback: call_later(max(delay_ms, 1.0), callback)  # type: ignore[method-assign]
    snapshots = Snapshots(runtime, BrokerConfig({}), cast("Any", None), Events(), cast("Any", None))
    held = [sys.getrefcount(replicas)]
    runtime.scheduler.run(Lane.UPKEEP, snapshots._let_go(image))
    held.append(sys.getrefcount(replicas))
    while held[-1] > before:
        assert len(held) < 1_000
        runtime.advance(1.0)
        held.append(sys.getrefcount(replicas))
    freed = [earlier - later for earlier, later in pairwise(held)]
    assert 0 < max(freed) <= CHUNK_PARTITIONS + SMALL


def test_an_image_is_emptied_in_small_steps() -> None:
    replicas = tuple(int(digit) for digit in "123")
    before = sys.getrefcount(replicas)
    image = image_with(replicas)
    held = [sys.getrefcount(replicas)]
    held += [sys.getrefcount(replicas) for _ in emptied(image)]
    freed = [earlier - later for earlier, later in pairwise(held)]
    assert max(freed) <= CHUNK_PARTITIONS + SMALL
    assert held[-1] == before
    assert image == MetadataImage("c")


def test_a_copy_is_the_image_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it takes several turns, and batches are committed in each of them."""
    monkeypatch.setattr(cluster_image, "LARGE_TABLE", 1)
    node = KraftNode().start()
    node.join()
    node.create("before")
    runtime, publisher = node.runtime, node.metadata._publisher
    copies: list[MetadataImage] = []

    async def copy() -> None:
        copies.append(await publisher.copied())

    runtime.spawn(copy(), "copy")
    answers = [node.submit(creation(f"after-{number}")) for number in range(20)]
    runtime.advance(5_000)
    assert all(answer.done for answer in answers)
    (image_copy,) = copies
    assert len(image_copy.topics) < 21
    assert image_copy == image_of("", image_records(image_copy)), "its tables belong together"
    assert len(image_copy.topic_names) == len(image_copy.topics) == len(image_copy.index.led(1))
    assert len(node.image.topics) == 21


def test_a_copy_that_a_stop_cuts_short_ends() -> None:
    node = KraftNode().start()
    publisher = node.metadata._publisher
    publisher._steps = (None for _ in range(1))  # publishing is under way
    copy = publisher.copied()
    node.stop()
    assert copy.done
