"""What any node writes: which znode a record belongs to, and what the znode holds then."""

from __future__ import annotations

import pytest

from blumfeld.spi.zookeeper import BadVersionError, Create, Delete
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import NoFormError
from blumfeld_consensus_zk_compat.tree.forms_configs import encode_config
from blumfeld_consensus_zk_compat.tree.merging import NodeChange, node_changes, notification
from blumfeld_consensus_zk_compat.tree.versions import KnownAcls
from tests.plugins.consensus_zk_compat.tree.tree_session import TreeSession

USER = [EntityData(entity_type="user", entity_name="u")]


def acl(principal: str, pattern_type: int = 3, name: str = "t") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        resource_type=2,
        resource_name=name,
        pattern_type=pattern_type,
        principal=principal,
        host="*",
        operation=3,
        permission_type=3,
    )


def written(*names: str) -> bytes:
    """As Kafka's AclAuthorizer writes it: ``tree.jsonl`` has such nodes."""
    entries = ",".join(
        f'{{"principal":"{name}","permissionType":"Allow","host":"*","operation":"Read"}}' for name in names
    )
    return f'{{"acls":[{entries}],"version":1}}'.encode()


def test_a_configuration_is_written_by_any_broker_under_its_version() -> None:
    session = TreeSession()
    session.put("/config/topics/t", version=4)
    session.put(paths.CONFIG_CHANGES)
    session.change(*NodeChange("/config/topics/t").operations(encode_config({"a": "1"}), 4))
    session.put("/config/brokers")
    session.change(*NodeChange("/config/brokers/1").operations(encode_config({"a": "1"}), None))
    assert session.tree.children(paths.CONFIG_CHANGES) == (
        "config_change_0000000000",
        "config_change_0000000001",
    )
    with pytest.raises(BadVersionError):
        session.change(*NodeChange("/config/topics/t").operations(encode_config({"a": "2"}), 4))


def test_a_users_quotas_and_credentials_are_in_one_znode_beside_what_else_it_has() -> None:
    credential = UserScramCredentialRecord(
        name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    quota = ClientQuotaRecord(entity=USER, key="producer_byte_rate", value=1000.0)
    (change,) = node_changes([credential, quota], KnownAcls())
    assert change.path == "/config/users/u"
    assert notification(change.path).data == b'{"version":2,"entity_path":"users/u"}'
    data = change.merged(b'{"version":1,"config":{"else":"1"}}')
    assert data is not None
    for part in (b'"else":"1"', b'"producer_byte_rate":"1000"', b'"SCRAM-SHA-256":"salt=cw==,'):
        assert part in data
    gone = [
        RemoveUserScramCredentialRecord(name="u", mechanism=1),
        ClientQuotaRecord(entity=USER, key="producer_byte_rate", remove=True),
    ]
    (change,) = node_changes(gone, KnownAcls())
    assert change.merged(data) == b'{"version":1,"config":{"else":"1"}}'


def test_acls_of_a_resource_are_in_one_znode_that_goes_with_the_last_of_them() -> None:
    acls = KnownAcls()
    records = [acl("User:a"), acl("User:p", pattern_type=4), acl("User:b")]
    literal, prefixed = node_changes(records, acls)
    assert literal.path == "/kafka-acl/Topic/t"
    assert literal.merged(None) == written("User:a", "User:b")
    assert notification(literal.path) == Create(
        "/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True
    )
    assert prefixed.path == "/kafka-acl-extended/prefixed/Topic/t"
    extended = b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}'
    assert notification(prefixed.path).data == extended
    acls.note(records)
    (first,) = node_changes([RemoveAccessControlEntryRecord(id=records[0].id)], acls)
    assert first.merged(written("User:a", "User:k")) == written("User:k"), "others' entries stay"
    assert first.merged(written("User:a")) is None
    assert first.operations(None, 3)[0] == Delete("/kafka-acl/Topic/t", 3)
    assert first.operations(None, None) == (notification(first.path),)


def test_the_removal_of_an_acl_that_the_image_has_no_more_changes_nothing() -> None:
    assert node_changes([RemoveAccessControlEntryRecord(id=b"i" * 16)], KnownAcls()) == []


def test_a_token_is_a_znode() -> None:
    token = DelegationTokenRecord(token_id="i", owner="User:a", requester="User:a", renewers=[])
    (change,) = node_changes([token], KnownAcls())
    assert (change.path, notification(change.path).data) == ("/delegation_token/tokens/i", b"i")
    assert b'"owner":"User%3Aa"' in (change.merged(None) or b"")
    (change,) = node_changes([RemoveDelegationTokenRecord(token_id="i")], KnownAcls())
    assert change.merged(b"whatever") is None


def test_a_record_without_a_place_in_a_tree_is_refused() -> None:
    with pytest.raises(NoFormError, match="no place for TopicRecord"):
        node_changes([TopicRecord(name="t")], KnownAcls())
