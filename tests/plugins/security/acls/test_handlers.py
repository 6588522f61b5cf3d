"""DescribeAcls, CreateAcls and DeleteAcls of a whole node, over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from blumfeld.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from blumfeld.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from blumfeld_security.acls.composing import STANDARD_AUTHORIZER
from campaigns.raw_connection import ConnectionEnded, RawConnection
from tests.plugins.security.acls.test_commands import creation, of_name

MANY = 700


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """A node where ANONYMOUS may do everything: the address of each kind of listener."""
    listeners = [
        {"name": "PLAINTEXT", "bind": "127.0.0.1:0", "inter_broker": True},
        {"name": "CONTROLLER", "kind": "controller", "bind": "127.0.0.1:0"},
    ]
    acls = {"super_users": ["User:ANONYMOUS"]}
    manifest: dict[str, Any] = {
        "network": {"listeners": listeners},
        "security": {"plugin": "security", "options": {"acls": acls}},
    }
    config = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    with EmbeddedBroker(manifest=manifest, config=config) as broker:
        yield {one.kind: f"127.0.0.1:{one.port}" for one in broker.node.listeners}


def describe(connection: RawConnection, name: str | None = None) -> DescribeAclsResponse:
    request = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=name,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return connection.ask(request, 3, DescribeAclsResponse)


@pytest.mark.parametrize("kind", ["broker", "controller"])
def test_acls_are_created_described_and_deleted(addresses: dict[str, str], kind: str) -> None:
    with RawConnection(addresses[kind]) as connection:
        request = CreateAclsRequest(creations=[creation("t"), creation("t", host="10.0.0.1"), creation("")])
        created = connection.ask(request, 3, CreateAclsResponse)
        assert [result.error_code for result in created.results] == [0, 0, ErrorCode.INVALID_REQUEST]
        (resource,) = describe(connection).resources
        assert resource.resource_name == "t"
        assert sorted(acl.host for acl in resource.acls) == ["*", "10.0.0.1"]
        deleted = connection.ask(DeleteAclsRequest(filters=[of_name("t")]), 3, DeleteAclsResponse)
        assert [len(result.matching_acls) for result in deleted.filter_results] == [2]
        assert describe(connection).resources == []


def test_many_acls_are_created_and_deleted_in_steps(addresses: dict[str, str]) -> None:
    with RawConnection(addresses["broker"]) as connection:
        request = CreateAclsRequest(creations=[creation(f"t-{number}") for number in range(MANY)])
        created = connection.ask(request, 3, CreateAclsResponse)
        assert [result.error_code for result in created.results] == [0] * MANY
        assert len(describe(connection).resources) == MANY
        assert [one.resource_name for one in describe(connection, "t-7").resources] == ["t-7"]
        filters = [of_name(f"t-{number}") for number in range(MANY - 1)] + [of_name(None)]
        deleted = connection.ask(DeleteAclsRequest(filters=filters), 3, DeleteAclsResponse)
        assert {len(result.matching_acls) for result in deleted.filter_results[:-1]} == {1}
        assert describe(connection).resources == []


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (CreateAclsRequest(creations=[creation("t"), creation("t", operation=0)]), CreateAclsResponse),
        (DeleteAclsRequest(filters=[of_name(None, operation=0)]), DeleteAclsResponse),
        (DescribeAclsRequest(), DescribeAclsResponse),
    ],
)
def test_an_unknown_value_closes_the_connection_and_changes_nothing(
    addresses: dict[str, str], request_: Any, answer: Any
) -> None:
    with RawConnection(addresses["broker"]) as connection, pytest.raises(ConnectionEnded):
        connection.ask(request_, 3, answer)
    with RawConnection(addresses["broker"]) as connection:
        assert describe(connection).resources == []
