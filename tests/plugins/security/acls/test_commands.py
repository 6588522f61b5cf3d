"""Section and commands: what is created and deleted, what is refused, and that a command alone changes nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.spi.image_sections import Circumstances
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_acls import AclCreation, CreateAclsRequest
from blumfeld.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from blumfeld_security.acls.commands import REMOVED_MAX, CreateAcls, DeleteAcls, acl_of
from blumfeld_security.acls.rules import ALLOW, ANY, LITERAL, MATCH, PREFIXED, Acls, id_of
from blumfeld_security.acls.section import AclSection
from tests.broker.harness import refusal

SECTION = AclSection()


class Cluster:
    """The section of an image, and commands on it. Secrets are counted up."""

    def __init__(self) -> None:
        self.acls: Acls = SECTION.empty()
        self._secrets = 0

    def run(self, command: Any, request: Any) -> Any:
        before = self.acls
        image: Any = SimpleNamespace(section={"acls": self.acls}.__getitem__)
        at = Circumstances(monotonic_ms=0.0, wall_ms=0, on_behalf=None, new_secret=self._secret)
        decided = command.decide(image, request, at)
        assert self.acls is before
        self.acls = SECTION.replay(before, decided.records)
        return decided

    def _secret(self, count: int) -> bytes:
        self._secrets += 1
        return id_of(self._secrets)[:count]

    def create(self, *creations: AclCreation) -> list[tuple[int, str | None]]:
        decided = self.run(CreateAcls(), CreateAclsRequest(creations=list(creations)))
        return [(result.error_code, result.error_message) for result in decided.response.results]

    def delete(self, *filters: DeleteAclsFilter) -> Any:
        return self.run(DeleteAcls(), DeleteAclsRequest(filters=list(filters))).response.filter_results


def creation(name: str = "t", **fields: Any) -> AclCreation:
    given = {"resource_type": 2, "resource_pattern_type": LITERAL, "principal": "User:a", "host": "*"}
    given |= {"operation": 3, "permission_type": ALLOW} | fields
    return AclCreation(resource_name=name, **cast("Any", given))


def of_name(name: str | None, pattern_type: int = ANY, **fields: Any) -> DeleteAclsFilter:
    given = {"resource_type_filter": ANY, "principal_filter": None, "host_filter": None}
    given |= {"operation": ANY, "permission_type": ANY} | fields
    return DeleteAclsFilter(resource_name_filter=name, pattern_type_filter=pattern_type, **cast("Any", given))


def test_an_acl_that_is_there_or_comes_twice_is_created_once_and_is_a_success() -> None:
    cluster = Cluster()
    assert cluster.create(creation(), creation(), creation("u")) == [(0, None)] * 3
    assert len(cluster.acls) == 2
    assert cluster.create(creation()) == [(0, None)]
    assert len(cluster.acls) == 2


def test_an_acl_has_a_random_uuid_of_version_4() -> None:
    cluster = Cluster()
    cluster.create(creation(), creation("u"))
    ids = [id_of(number) for part in cluster.acls.parts() for number, _ in part]
    assert len(set(ids)) == 2
    assert all((acl_id[6] >> 4, acl_id[8] >> 6) == (4, 2) for acl_id in ids)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"name": ""}, "Invalid empty resource name"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": 1}, "Invalid patternType ANY"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 16}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` "
            "(no colon is present separating the principal type from the principal name)",
        ),
    ],
)
def test_an_acl_that_kafka_refuses_is_refused_in_its_words(fields: dict[str, Any], message: str) -> None:
    cluster = Cluster()
    answers = cluster.create(creation("good"), creation(**fields))
    assert answers == [(0, None), (ErrorCode.INVALID_REQUEST, message)]
    assert len(cluster.acls) == 1


def test_filters_take_what_kafkas_take() -> None:
    def taken(*filters: DeleteAclsFilter) -> list[list[str]]:
        cluster = Cluster()
        cluster.create(
            creation("abc"),
            creation("a", resource_pattern_type=PREFIXED),
            creation("*"),
            creation("x", principal="User:b", host="10.0.0.1"),
        )
        answers = cluster.delete(*filters)
        assert len(cluster.acls) == 4 - len(
            {id_of_acl for answer in answers for id_of_acl in map(repr, answer.matching_acls)}
        )
        return [sorted(acl.resource_name for acl in answer.matching_acls) for answer in answers]

    assert taken(of_name("abc")) == [["abc"]]
    assert taken(of_name("a")) == [["a"]]
    assert taken(of_name("a", LITERAL)) == [[]]
    assert taken(of_name("abc", MATCH)) == [["*", "a", "abc"]]
    assert taken(of_name(None, PREFIXED)) == [["a"]]
    assert taken(of_name(None, principal_filter="User:b")) == [["x"]]
    assert taken(of_name(None, host_filter="*")) == [["*", "a", "abc"]]
    assert taken(of_name("abc"), of_name(None, LITERAL)) == [["abc"], ["*", "abc", "x"]]
    exact = {"resource_type_filter": 2, "host_filter": "10.0.0.1", "operation": 3, "permission_type": ALLOW}
    assert taken(of_name("x", LITERAL, principal_filter="User:b", **exact)) == [["x"]]
    assert taken(of_name("x", LITERAL, principal_filter="User:a", **exact)) == [[]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resource_type_filter": 8}, "Unknown patternFilter."),
        ({"pattern_type": 5}, "Unknown patternFilter."),
        ({"operation": 16}, "Unknown entryFilter."),
        ({"permission_type": 4}, "Unknown entryFilter."),
    ],
)
def test_a_filter_with_an_unknown_value_deletes_nothing(fields: dict[str, Any], message: str) -> None:
    cluster = Cluster()
    cluster.create(creation())
    (answer,) = cluster.delete(of_name(None, **fields))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert len(cluster.acls) == 1


def test_no_more_acls_are_deleted_at_once_than_the_controller_decides_on_in_a_turn() -> None:
    """As in Kafka. 100,000 would hold its loop for a seventh of a second."""
    cluster = Cluster()
    cluster.acls = Acls().updated((id_of(n), acl_of(creation(f"t-{n}"))) for n in range(REMOVED_MAX + 1))
    with refusal(ErrorCode.INVALID_REQUEST):
        cluster.delete(of_name(None))
    assert len(cluster.acls) == REMOVED_MAX + 1
    [result] = cluster.delete(of_name("t-7"))
    assert len(result.matching_acls) == 1
    [result] = cluster.delete(of_name(None))
    assert len(result.matching_acls) == REMOVED_MAX
