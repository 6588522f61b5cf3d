"""DescribeAcls, CreateAcls, DeleteAcls: a build without an authorizer has no ACLs, and says so."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.api_versions import ApiVersionsRequest
from blumfeld.wire.messages.create_acls import AclCreation, CreateAclsRequest
from blumfeld.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from blumfeld.wire.messages.describe_acls import DescribeAclsRequest
from tests.broker.harness import CONTROLLER_LISTENER, LISTENER, BrokerHarness, Permissions

ACL_KEYS = {29: (1, 3), 30: (1, 3), 31: (1, 3)}
DISABLED = ErrorCode.SECURITY_DISABLED


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 3000])
def test_every_request_on_acls_is_answered_with_security_disabled(version: int, count: int) -> None:
    """MirrorMaker 2 asks for ACLs by default, and goes on at this answer. A closed connection is an error to it."""
    broker = BrokerHarness()
    described = broker.ask(DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1), version)
    assert (described.error_code, described.resources) == (DISABLED, [])
    assert "authorizer" in described.error_message
    created = broker.ask(CreateAclsRequest(creations=[AclCreation(resource_type=2)] * count), version)
    assert [result.error_code for result in created.results] == [DISABLED] * count
    deleted = broker.ask(
        DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=1)] * count), version
    )
    assert [(r.error_code, r.matching_acls) for r in deleted.filter_results] == [(DISABLED, [])] * count


@pytest.mark.parametrize("listener", [LISTENER, CONTROLLER_LISTENER], ids=lambda one: one.kind)
def test_both_kinds_of_listener_list_them_as_kafka_does(listener: Any) -> None:
    broker = BrokerHarness()
    keys = broker.ask(ApiVersionsRequest(), 0, connection=broker.connect(listener)).api_keys
    listed = {key.api_key: (key.min_version, key.max_version) for key in keys}
    assert {key: listed.get(key) for key in ACL_KEYS} == ACL_KEYS


def test_an_authorizer_brings_its_own_apis_on_acls() -> None:
    broker = BrokerHarness(authorizer=Permissions())
    listed = {key.api_key for key in broker.ask(ApiVersionsRequest(), 0).api_keys}
    assert not listed & ACL_KEYS.keys()
