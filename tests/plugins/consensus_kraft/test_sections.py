"""A plug-in's section and command through the running consensus: committed, in the image, there after a restart."""

from __future__ import annotations

import pytest

from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.create_acls import CreateAclsResponse
from blumfeld_kit.fakes.files import FakeDisk
from tests.metadata.acl_section import AclSection, CreateAcls, creation
from tests.plugins.consensus_kraft.kraft_node import KraftNode


def node(disk: FakeDisk | None = None) -> KraftNode:
    return KraftNode(disk, image_sections=(AclSection(),), controller_commands=(CreateAcls(),)).start()


@pytest.fixture
def kraft_node() -> KraftNode:
    return node()


def test_the_answer_comes_when_the_image_has_the_section(kraft_node: KraftNode) -> None:
    kraft_node.ask(creation("User:k", "User:l"), CreateAclsResponse)
    assert [acl.principal for acl in kraft_node.image.section("acls").values()] == ["User:k", "User:l"]
    assert [len(delta.section_records.get("acls", ())) for delta in kraft_node.deltas if not delta.first][
        -1
    ] == 2


def test_a_section_is_there_after_a_restart_also_after_one_without_the_plug_in(kraft_node: KraftNode) -> None:
    kraft_node.ask(creation("User:k"), CreateAclsResponse)
    kraft_node.stop()
    disk = kraft_node.runtime.disk
    without = KraftNode(disk, seed=1).start()
    with pytest.raises(BrokerError) as refused:
        without.ask(creation("User:l"), CreateAclsResponse)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    without.stop()
    again = node(disk)
    assert len(again.image.section("acls")) == 1
    assert again.deltas[0].section_records["acls"][0] in again.image.section("acls").values()


def test_a_large_decision_of_a_command_is_one_transaction(kraft_node: KraftNode) -> None:
    before = len(kraft_node.deltas)
    kraft_node.ask(creation(*["User:k"] * 600), CreateAclsResponse)
    assert [len(delta.section_records.get("acls", ())) for delta in kraft_node.deltas[before:]] == [600]
    again = KraftNode(kraft_node.runtime.disk, seed=1, image_sections=(AclSection(),)).start()
    assert len(again.image.section("acls")) == 600


@pytest.mark.parametrize("principal", ["User:foreign", "User:broken"])
def test_a_defect_of_the_plug_in_costs_its_request_alone(kraft_node: KraftNode, principal: str) -> None:
    with pytest.raises(BrokerError) as refused:
        kraft_node.ask(creation(principal), CreateAclsResponse)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    kraft_node.runtime.advance(5_000)
    kraft_node.ask(creation("User:k"), CreateAclsResponse)
    assert len(kraft_node.image.section("acls")) == 1
    disk = kraft_node.runtime.disk
    kraft_node.stop()
    assert len(node(disk).image.section("acls")) == 1
