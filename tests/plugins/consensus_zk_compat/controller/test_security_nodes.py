"""ACLs and credentials that a plug-in's commands decide on become znodes; what others write comes into the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.image_sections import Decided
from blumfeld.spi.zookeeper import Create, Delete, Set
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from blumfeld.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from blumfeld.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms_security import acl_id
from tests.metadata.acl_section import AclSection
from tests.plugins.consensus_zk_compat.controller.cluster import Cluster


class ScramSection:
    """``scram``: nothing that a test reads."""

    name = "scram"
    records: tuple[type[Message], ...] = (UserScramCredentialRecord, RemoveUserScramCredentialRecord)

    def empty(self) -> None:
        return None

    def replay(self, value: None, records: Sequence[Message]) -> None:
        return None


KINDS = SectionKinds([AclSection(), ScramSection()])
PATH = "/kafka-acl/Topic/t"


class _Command:
    def __init__(self, request: type[Message]) -> None:
        self.request = request


class CreateAcls(_Command):
    def decide(self, image: ClusterImage, request: Message, now_ms: float) -> Decided:
        records = [
            AccessControlEntryRecord(
                id=bytes(15) + bytes([number + 1]),
                resource_type=creation.resource_type,
                resource_name=creation.resource_name,
                pattern_type=creation.resource_pattern_type,
                principal=creation.principal,
                host=creation.host,
                operation=creation.operation,
                permission_type=creation.permission_type,
            )
            for number, creation in enumerate(cast("CreateAclsRequest", request).creations)
        ]
        return Decided(tuple(records), CreateAclsResponse())


class DeleteAcls(_Command):
    """Removes what a principal has."""

    def decide(self, image: ClusterImage, request: Message, now_ms: float) -> Decided:
        principals = [one.principal_filter for one in cast("DeleteAclsRequest", request).filters]
        records = [
            RemoveAccessControlEntryRecord(id=acl_id)
            for acl_id, entry in image.section("acls").items()
            if entry.principal in principals
        ]
        return Decided(tuple(records), DeleteAclsResponse())


class AlterScram(_Command):
    def decide(self, image: ClusterImage, request: Message, now_ms: float) -> Decided:
        records = [
            UserScramCredentialRecord(
                name=one.name, mechanism=one.mechanism, salt=one.salt, iterations=one.iterations
            )
            for one in cast("AlterUserScramCredentialsRequest", request).upsertions
        ]
        return Decided(tuple(records), AlterUserScramCredentialsResponse())


COMMANDS: Sequence[Any] = (
    CreateAcls(CreateAclsRequest),
    DeleteAcls(DeleteAclsRequest),
    AlterScram(AlterUserScramCredentialsRequest),
)


def creation(principal: str, resource_type: int = 2, pattern_type: int = 3) -> CreateAclsRequest:
    one = AclCreation(
        resource_type=resource_type,
        resource_name="t",
        resource_pattern_type=pattern_type,
        principal=principal,
        host="*",
        operation=3,
        permission_type=3,
    )
    return CreateAclsRequest(creations=[one])


def removal(principal: str) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=[DeleteAclsFilter(principal_filter=principal)])


def scram(iterations: int) -> AlterUserScramCredentialsRequest:
    upsertion = ScramCredentialUpsertion(name="u", mechanism=1, iterations=iterations, salt=b"s")
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(commands=COMMANDS, section_kinds=KINDS)
    cluster.begin()
    return cluster


def told(cluster: Cluster, above: str) -> list[bytes]:
    return [
        cluster.zookeeper.tree.get(f"{above}/{name}").data for name in cluster.zookeeper.tree.children(above)
    ]


def principals(cluster: Cluster) -> list[str]:
    return sorted(entry.principal for entry in cluster.controller.image.section("acls").values())


def written(*names: str) -> bytes:
    """As Kafka's AclAuthorizer writes it: ``tree.jsonl`` has such nodes."""
    entries = ",".join(
        f'{{"principal":"{name}","permissionType":"Allow","host":"*","operation":"Read"}}' for name in names
    )
    return f'{{"acls":[{entries}],"version":1}}'.encode()


def test_acls_are_written_and_told_as_kafka_does_and_have_the_ids_that_every_node_makes(
    cluster: Cluster,
) -> None:
    tree = cluster.zookeeper.tree
    cluster.ask(creation("User:a"), CreateAclsResponse)
    assert tree.get(PATH).data == written("User:a")
    assert told(cluster, paths.ACL_CHANGES) == [b"TOPIC:t"]
    cluster.ask(creation("User:b"), CreateAclsResponse)
    assert tree.get(PATH).data == written("User:a", "User:b")
    acls = cluster.controller.image.section("acls")
    assert all(acl_id(entry) == known for known, entry in acls.items())
    cluster.ask(creation("User:p", pattern_type=4), CreateAclsResponse)
    assert tree.get("/kafka-acl-extended/prefixed/Topic/t").data == written("User:p")
    extended = b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}'
    assert told(cluster, paths.EXTENDED_ACL_CHANGES) == [extended]
    cluster.ask(removal("User:a"), DeleteAclsResponse)
    assert tree.get(PATH).data == written("User:b")
    cluster.ask(removal("User:b"), DeleteAclsResponse)
    assert not cluster.there(PATH)
    assert told(cluster, paths.ACL_CHANGES) == [b"TOPIC:t"] * 4


def test_an_acl_that_kafka_has_no_form_for_is_refused_and_the_controller_goes_on(cluster: Cluster) -> None:
    reply = cluster.controller.ask(creation("User:a", resource_type=99))
    cluster.advance()
    assert isinstance(reply.error, BrokerError)
    assert reply.error.code == ErrorCode.INVALID_REQUEST
    cluster.ask(creation("User:a"), CreateAclsResponse)
    assert principals(cluster) == ["User:a"]


def test_acls_of_others_are_in_the_controllers_image_and_stay_at_its_next_write(cluster: Cluster) -> None:
    cluster.do(*(Create(above) for above in paths.above(PATH)), Create(PATH, written("User:k")))
    cluster.controller.candidate.node_changed(PATH)
    cluster.advance()
    assert principals(cluster) == ["User:k"]
    cluster.ask(creation("User:a"), CreateAclsResponse)
    assert cluster.zookeeper.tree.get(PATH).data == written("User:k", "User:a")
    cluster.do(Delete(PATH), Create(PATH, written("User:l")))
    cluster.controller.candidate.node_changed(PATH)
    cluster.advance()
    assert principals(cluster) == ["User:l"], "its version may be the one before"


def test_a_read_that_the_controllers_next_write_overtakes_takes_nothing_back(cluster: Cluster) -> None:
    node, path = cluster.controller, paths.config("users/u")
    epoch = node.candidate.controller
    cluster.ask(scram(4096), AlterUserScramCredentialsResponse)
    node.session.slow_ms = 20.0
    node.candidate.node_changed(path)
    second = node.ask(scram(5000))
    cluster.advance(50)
    third = node.ask(scram(6000))
    cluster.advance(500)
    assert (second.error, third.error) == (None, None)
    assert node.candidate.controller == epoch, "no write had an old version"
    (credential,) = (r for r in node.image.kept.values() if isinstance(r, UserScramCredentialRecord))
    assert credential.iterations == 6000
    assert b"iterations=6000" in cluster.zookeeper.tree.get(path).data


def test_what_else_a_user_has_by_others_stays_at_the_controllers_next_write(cluster: Cluster) -> None:
    path = paths.config("users/u")
    cluster.ask(scram(4096), AlterUserScramCredentialsResponse)
    cluster.do(Set(path, b'{"version":1,"config":{"else":"1","producer_byte_rate":"?"}}'))
    cluster.controller.candidate.node_changed(path)
    cluster.advance()
    cluster.ask(scram(5000), AlterUserScramCredentialsResponse)
    data = cluster.zookeeper.tree.get(path).data
    assert b'"else":"1","producer_byte_rate":"?"' in data
    assert b"iterations=5000" in data
