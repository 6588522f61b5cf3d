"""The oracle of the tree shows the cluster as the tree has it, and sees each write that breaks a promise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blumfeld.spi.zookeeper import Create, Delete, Operation, Set
from blumfeld.wire.primitives import uuid_bytes
from blumfeld_kit.fakes.znodes import Stamp
from blumfeld_kit.simulation.zookeeper.tree_oracle import TreeOracle

FIRST, SECOND = 7, 8
"""Sessions."""
ID = "AAAAAAAAAAAAAAAAAAAAAQ"
STATE = "/brokers/topics/t/partitions/0/state"


def state(leader: int, *isr: int, epoch: int) -> bytes:
    node = {"controller_epoch": 1, "leader": leader, "version": 1, "leader_epoch": epoch, "isr": isr}
    return json.dumps(node).encode()


def topic(*replicas: int, adding: dict[str, list[int]] | None = None) -> bytes:
    node: dict[str, Any] = {"partitions": {"0": replicas}, "topic_id": ID, "version": 3}
    return json.dumps(node | {"adding_replicas": adding or {}, "removing_replicas": {}}).encode()


class Tree:
    """An oracle with writes."""

    def __init__(self) -> None:
        self.oracle = TreeOracle()
        self._zxid = 0
        self.write(FIRST, Create("/controller_epoch", b"0"))
        self.elect(FIRST, 1, 1)
        self.write(FIRST, Create("/brokers/ids/1", b"{}"))
        self.write(FIRST, Create("/brokers/ids/2", b"{}"))
        self.write(FIRST, Create("/config/topics/t", b"{}"), Create("/brokers/topics/t", topic(1, 2)))
        self.write(FIRST, Create(STATE, state(1, 1, 2, epoch=0)))

    def write(self, session_id: int, *operations: Operation) -> None:
        self._zxid += 1
        self.oracle.decided(operations, Stamp(self._zxid, session_id, 0))

    def elect(self, session_id: int, node_id: int, epoch: int) -> None:
        node = json.dumps({"version": 2, "brokerid": node_id}).encode()
        epoch_data = str(epoch).encode()
        self.write(session_id, Create("/controller", node), Set("/controller_epoch", epoch_data))

    def broken(self) -> str:
        assert self.oracle.failure is not None
        return str(self.oracle.failure)


def test_the_image_is_the_tree_with_the_version_of_a_state_as_partition_epoch() -> None:
    tree = Tree()
    tree.write(FIRST, Set(STATE, state(2, 2, epoch=1)))
    tree.write(SECOND, Delete("/brokers/ids/1"))
    image, partition = tree.oracle.image, tree.oracle.image.topics["t"].partitions[0]
    assert image.topics["t"].topic_id == uuid_bytes(ID)
    assert (partition.leader, partition.isr, partition.replicas) == (2, (2,), (1, 2))
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)
    assert list(image.brokers) == [2]
    assert tree.oracle.controller == (1, 1)
    assert tree.oracle.written("t", 0, 1) == tree.oracle.zxid - 1
    assert tree.oracle.failure is None


def test_a_marked_topic_is_gone_and_its_deletion_unfinished() -> None:
    tree = Tree()
    tree.write(FIRST, Create("/admin/delete_topics/t"))
    assert not tree.oracle.image.topics
    assert "marked" in str(tree.oracle.unfinished())
    tree.write(FIRST, Delete(STATE), Delete("/brokers/topics/t"))
    tree.write(FIRST, Delete("/config/topics/t"), Delete("/admin/delete_topics/t"))
    assert tree.oracle.unfinished() is None
    assert tree.oracle.failure is None


def test_a_reassignment_is_unfinished() -> None:
    tree = Tree()
    tree.write(FIRST, Set("/brokers/topics/t", topic(1, 2, adding={"0": [2]})))
    assert "reassigned" in str(tree.oracle.unfinished())


@pytest.mark.parametrize("kept", ["/brokers/topics/t", "/config/topics/t"])
def test_a_mark_that_goes_before_the_topic_is_seen(kept: str) -> None:
    tree = Tree()
    tree.write(FIRST, Create("/admin/delete_topics/t"))
    gone = [path for path in ("/brokers/topics/t", "/config/topics/t") if path != kept]
    tree.write(FIRST, Delete(STATE), *map(Delete, gone), Delete("/admin/delete_topics/t"))
    assert "half deleted" in tree.broken()


def test_a_controller_that_is_deposed_may_write_nothing() -> None:
    tree = Tree()
    tree.elect(SECOND, 2, 2)
    tree.write(FIRST, Set(STATE, state(2, 2, epoch=1)))
    assert "deposed" in tree.broken()


def test_an_epoch_has_one_controller() -> None:
    tree = Tree()
    tree.elect(SECOND, 2, 1)
    assert "became 1 behind 1" in tree.broken()


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (state(2, 1, 2, epoch=0), "doesn't grow"),
        (state(1, 1, 2, epoch=-1), "doesn't grow"),
        (state(2, 1, epoch=1), "not in the ISR"),
        (state(1, epoch=1), "the ISR ()"),
        (state(1, 1, 3, epoch=1), "the ISR (1, 3)"),
    ],
)
def test_a_state_that_may_not_follow_is_seen(after: bytes, said: str) -> None:
    tree = Tree()
    tree.write(FIRST, Set(STATE, after))
    assert said in tree.broken()
