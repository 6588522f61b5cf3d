"""What the metadata in a node's directory needs is known before the node joins the quorum."""

from __future__ import annotations

import pytest

from blumfeld.spi.hooks import Feature
from blumfeld.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from blumfeld_kit.fakes.files import FakeDisk
from tests.metadata.acl_section import AclSection, CreateAcls
from tests.plugins.consensus_kraft.kraft_node import CLUSTER_ID, KraftNode

OF_THREE = {"controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9094,3@127.0.0.1:9095"}
ACME = Feature("acme.version", 0, 2, 2)
OFTEN = {"metadata.log.max.snapshot.interval.ms": 1_000}


def opened(disk: FakeDisk, **config: object) -> KraftNode:
    """A build without the plug-in, which has read the directory and not joined the quorum."""
    node = KraftNode(disk, seed=9, config=config)

    async def open_it() -> None:
        await node.parts.local_storage.start(CLUSTER_ID, node.parts.node_id)
        await node.metadata.open()

    node.runtime.run(open_it())
    return node


@pytest.fixture(params=["snapshot", "log"])
def written(request: pytest.FixtureRequest) -> FakeDisk:
    """The disk of a node with a feature and a section that other builds lack."""
    disk = FakeDisk()
    config = {"metadata.log.max.snapshot.interval.ms": 1_000} if request.param == "snapshot" else {}
    node = KraftNode(
        disk,
        config=config,
        features=(ACME,),
        image_sections=(AclSection(),),
        controller_commands=(CreateAcls(),),
    ).start()
    entry = AclCreation(principal="User:bob", resource_name="orders")
    node.ask(CreateAclsRequest(creations=[entry]), CreateAclsResponse)
    node.runtime.advance(5_000)
    assert bool(node.snapshots()) == (request.param == "snapshot")
    node.stop()
    return disk


@pytest.mark.parametrize("config", [{}, OF_THREE], ids=["alone", "of three"])
def test_needs_are_those_of_snapshot_and_log(written: FakeDisk, config: dict[str, str]) -> None:
    node = opened(written, **config)
    needs = node.metadata.needs()
    assert needs.features["acme.version"] == 2
    assert [getattr(record, "principal", None) for record in needs.records.values()] == ["User:bob"]
    assert node.metadata.controller is None
    node.stop()


def test_a_node_that_was_opened_goes_on(written: FakeDisk) -> None:
    node = opened(written)
    node.runtime.run(node.metadata.start())
    assert node.metadata.needs().features["acme.version"] == 2
    assert node.controller_epoch is not None
    node.stop()


def test_levels_that_formatting_left_to_be_finalized_are_needed() -> None:
    disk = FakeDisk()
    KraftNode(disk, features=(ACME,), config=OF_THREE).runtime.files.make_dirs("/data")
    first = KraftNode(disk, features=(ACME,), config=OF_THREE)

    async def format_it() -> None:
        await first.parts.local_storage.start(CLUSTER_ID, 1)
        await first.metadata.open()
        await first.metadata.stop()

    first.runtime.run(format_it())
    assert opened(disk, **OF_THREE).metadata.needs().features["acme.version"] == 2
