"""Every form of a node, against the bytes of Apache Kafka 3.9.2; what can't be read; and names in paths."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from blumfeld.spi.cluster import Endpoint, PartitionImage
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.messages.metadata_records import (
    ClientQuotaRecord,
    EntityData,
    UserScramCredentialRecord,
)
from blumfeld_consensus_zk_compat.tree import (
    forms,
    forms_configs,
    forms_security,
    forms_topics,
    paths,
)
from blumfeld_consensus_zk_compat.tree.forms import TreeError
from blumfeld_consensus_zk_compat.tree.forms_security import LITERAL, PREFIXED, AclResource
from tests.plugins.consensus_zk_compat.tree.kafka_nodes import KafkaNode, encoded, tree

ReadAndWrite = Callable[[str, bytes], bytes]


def _state(path: str, data: bytes) -> bytes:
    state = forms_topics.decode_state(path, data)
    image = PartitionImage(
        partition=0,
        replicas=(),
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=0,
        leader_recovery_state=state.leader_recovery_state or 0,
    )
    return forms_topics.encode_state(image, state.controller_epoch)


def _acls(path: str, data: bytes) -> bytes:
    *_, kind, name = path.split("/")
    pattern = PREFIXED if path.startswith(paths.EXTENDED_ACLS) else LITERAL
    resource = AclResource(forms_security.RESOURCE_TYPES[kind], name, pattern)
    assert forms_security.acl_path(resource) == path
    return forms_security.encode_acls(forms_security.decode_acls(path, data, resource))


def _acl_change(path: str, data: bytes) -> bytes:
    above, written = forms_security.encode_acl_change(forms_security.decode_acl_change(path, data))
    assert path.startswith(above)
    return written


def _users_config(path: str, data: bytes) -> bytes:
    """A user, client or address through the records of the image."""
    entity = path.removeprefix("/config/")
    values = forms_configs.decode_config(path, data)
    again: dict[str, str] = {}
    quotas = {record.key: record for record in forms_configs.decode_quotas(path, entity, values)}
    for key, value in values.items():
        if key in quotas:
            assert forms_configs.quota_entity(quotas[key].entity) == entity
            again[key] = forms_configs.quota_text(key, quotas[key].value)
        else:
            record = forms_configs.decode_scram(path, "name", key, value)
            assert forms_configs.scram_mechanism(record.mechanism) == key
            again[key] = forms_configs.encode_scram(record)
    return forms_configs.encode_config(again)


def _producer_ids(path: str, data: bytes) -> bytes:
    block = forms.decode_producer_ids(path, data)
    return b"" if block is None else forms.encode_producer_ids(block)


FORMS: dict[str, ReadAndWrite] = {
    "/admin/preferred_replica_election": lambda path, data: forms_topics.encode_partitions(
        forms_topics.decode_partitions(path, data)
    ),
    "/admin/reassign_partitions": lambda path, data: forms_topics.encode_reassignments(
        forms_topics.decode_reassignments(path, data)
    ),
    "/brokers/ids/": lambda path, data: forms.encode_broker(forms.decode_broker(path, data)),
    "/brokers/topics/": lambda path, data: (
        _state(path, data)
        if path.endswith("/state")
        else forms_topics.encode_topic(forms_topics.decode_topic(path, data))
    ),
    "/cluster/id": lambda path, data: forms.encode_cluster_id(forms.decode_cluster_id(path, data)),
    "/config/brokers/": lambda path, data: forms_configs.encode_config(
        forms_configs.decode_config(path, data)
    ),
    "/config/topics/": lambda path, data: forms_configs.encode_config(
        forms_configs.decode_config(path, data)
    ),
    "/config/users/": _users_config,
    "/config/clients/": _users_config,
    "/config/ips/": _users_config,
    "/config/changes/": lambda path, data: forms_configs.encode_config_change(
        forms_configs.decode_config_change(path, data)
    ),
    "/controller_epoch": lambda path, data: forms.encode_epoch(forms.decode_epoch(path, data)),
    "/controller": lambda path, data: forms.encode_controller(forms.decode_controller(path, data)),
    "/migration": lambda path, data: forms.encode_migration(forms.decode_migration(path, data)),
    "/delegation_token/tokens/": lambda path, data: forms_security.encode_token(
        forms_security.decode_token(path, data)
    ),
    "/delegation_token/token_changes/": lambda _, data: data,
    "/feature": lambda path, data: forms.encode_feature(forms.decode_feature(path, data)),
    "/isr_change_notification/": lambda path, data: forms_topics.encode_partitions(
        forms_topics.decode_partitions(path, data)
    ),
    "/kafka-acl/": _acls,
    "/kafka-acl-extended/": _acls,
    "/kafka-acl-changes/": _acl_change,
    "/kafka-acl-extended-changes/": _acl_change,
    "/latest_producer_id_block": _producer_ids,
    "/log_dir_event_notification/": lambda path, data: forms_topics.encode_log_dir_event(
        forms_topics.decode_log_dir_event(path, data)
    ),
}
"""The beginning of a path → reads a node, and writes what was read."""


def is_another_version(node: KafkaNode) -> bool:
    """Whether Kafka 3.9.2 reads this version, and writes a newer one."""
    broker = node.path.startswith("/brokers/ids/") and b'"version":5' not in node.data
    return broker or (node.path == "/feature" and b'"version":1' in node.data)


def nodes() -> list[Any]:
    """The nodes with data that are written in the version in which they are read."""
    return [
        pytest.param(node, id=node.path)
        for node in (*tree(), *encoded())
        if node.data and not is_another_version(node)
    ]


@pytest.mark.parametrize("node", nodes())
def test_a_node_of_kafka_is_read_and_written_as_kafka_writes_it(node: KafkaNode) -> None:
    """Byte for byte. The order of more than 11 partitions is that of a hash table: there as JSON."""
    form = next(form for above, form in FORMS.items() if node.path.startswith(above))
    written = form(node.path, node.data)
    if node.path == "/brokers/topics/many":
        assert json.loads(written) == json.loads(node.data)
    else:
        assert written == node.data


def test_every_form_has_a_node_of_kafka() -> None:
    """Else the test above would say nothing of it."""
    seen = {
        next(above for above in FORMS if node.path.startswith(above))
        for node in (*tree(), *encoded())
        if node.data
    }
    assert seen == set(FORMS)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_a_broker_of_each_version_is_read(version: int) -> None:
    plain, tls = Endpoint("PLAINTEXT", "host", 9092), Endpoint("SSL", "::1", 9093, "SSL")
    if version == 1:
        data = b'{"version":1,"host":"host","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
        expected: tuple[Any, ...] = (plain,), None
    else:
        data = next(node.data for node in encoded() if node.path == f"/brokers/ids/{version}")
        expected = (plain, tls), None if version == 2 else "rack"
    broker = forms.decode_broker("/brokers/ids/1", data)
    assert (broker.endpoints, broker.rack) == expected
    assert broker.jmx_port == 9999


def test_a_broker_without_a_plaintext_listener_has_no_host_for_old_clients() -> None:
    node = forms.BrokerNode(endpoints=(Endpoint("TLS", "::1", 9093, "SSL"),), timestamp_ms=5)
    written = forms.encode_broker(node)
    assert b'"port":-1,"host":null' in written
    assert forms.decode_broker("/brokers/ids/1", written) == node


def test_a_broker_is_registered_with_its_nodes_transaction_as_epoch() -> None:
    node = next(node for node in encoded() if node.path == "/brokers/ids/6")
    record = forms.broker_record(6, forms.decode_broker(node.path, node.data), 77)
    assert (record.broker_id, record.broker_epoch, record.fenced) == (6, 77, False)
    assert [(f.name, f.min_supported_version, f.max_supported_version) for f in record.features] == [
        ("group.version", 0, 1)
    ]
    assert [(at.name, at.port, at.security_protocol) for at in record.end_points] == [
        ("PLAINTEXT", 9092, 0),
        ("SSL", 9093, 1),
    ]


def test_features_of_both_versions_are_read() -> None:
    """Those of status 0 don't count, and say so."""
    read = [forms.decode_feature(node.path, node.data) for node in encoded() if node.path == paths.FEATURE]
    assert [(node.levels, node.enabled) for node in read] == [
        ({"group.version": 1}, True),
        ({"group.version": 1}, False),
    ]


def test_topics_of_versions_1_and_2_have_no_id() -> None:
    for data in (
        b'{"version":1,"partitions":{"1":[2,3],"0":[1,2]}}',
        b'{"version":2,"partitions":{"1":[2,3],"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}',
    ):
        node = forms_topics.decode_topic("/brokers/topics/old", data)
        assert node.topic_id is None
        assert list(node.partitions.items()) == [(0, (1, 2)), (1, (2, 3))]


def test_a_migration_is_read() -> None:
    node = next(node for node in encoded() if node.path == paths.MIGRATION)
    state = forms.decode_migration(node.path, node.data)
    assert (state.kraft_controller_id, state.kraft_controller_epoch) == (3000, 5)


def test_unknown_fields_are_ignored_as_kafka_does() -> None:
    controller = forms.decode_controller("/controller", b'{"brokerid":1,"new":[1]}')
    assert controller == forms.ControllerNode(1)


@pytest.mark.parametrize(
    ("decode", "data", "allowed"),
    [
        (forms.decode_broker, b"", "version 1 to 5"),
        (forms.decode_broker, b'{"jmx_port":1,"version":6,"endpoints":[]}', "version 1 to 5"),
        (forms.decode_broker, b'{"jmx_port":1,"version":1}', "has host and port"),
        (forms.decode_broker, b'{"jmx_port":1,"version":5,"endpoints":["x"]}', "LISTENER://HOST:PORT"),
        (
            forms.decode_broker,
            b'{"jmx_port":1,"version":4,"endpoints":["A://h:1"],"listener_security_protocol_map":{"A":"B"}}',
            "among PLAINTEXT",
        ),
        (forms.decode_broker, b'{"jmx_port":1,"version":5,"timestamp":"x"}', "a whole number"),
        (forms.decode_controller, b"{}", "broker id"),
        (forms.decode_epoch, b"x", "a whole number"),
        (forms.decode_cluster_id, b'{"id":3}', "cluster's id"),
        (forms.decode_feature, b'{"features":{},"version":2,"status":2}', "status 0 or 1"),
        (forms.decode_feature, b'{"features":{"a":{}},"version":2,"status":1}', "status 0 or 1"),
        (forms.decode_producer_ids, b'{"broker":1,"block_start":"a","block_end":"1"}', "a whole number"),
        (forms_topics.decode_topic, b'{"partitions":{"0":["x"]}}', "version 1 to 3"),
        (forms_topics.decode_topic, b'{"topic_id":"short"}', "version 1 to 3"),
        (forms_topics.decode_topic, b'{"partitions":{"1":[1]}}', "from 0 on"),
        (forms_topics.decode_state, b'{"leader":1}', "leader_epoch"),
        (forms_topics.decode_partitions, b"[]", "topic and partition"),
        (forms_topics.decode_reassignments, b'{"partitions":[{}]}', "replicas"),
        (forms_topics.decode_log_dir_event, b"{}", "log directory"),
        (forms_configs.decode_config, b'{"version":2}', "version 1"),
        (forms_configs.decode_config, b'{"config":{"a":1}}', "as text"),
        (forms_configs.decode_config_change, b'{"version":2}', "entity_path"),
        (forms_security.decode_token, b"{}", "version 1 to 3"),
        (forms_security.decode_acl_change, b"TOPIC", "RESOURCE_TYPE:NAME"),
        (forms_security.decode_acl_change, b"PLANET:x", "one of Topic"),
    ],
)
def test_a_node_that_cant_be_read_is_named_with_what_it_holds_and_what_is_allowed(
    decode: Callable[[str, bytes], Any], data: bytes, allowed: str
) -> None:
    with pytest.raises(TreeError, match="/some/node") as error:
        decode("/some/node", data)
    assert allowed in str(error.value)


def test_a_secret_that_cant_be_read_isnt_shown() -> None:
    with pytest.raises(TreeError) as error:
        forms_configs.decode_scram("/config/users/alice", "alice", "SCRAM-SHA-256", "salt=c2VjcmV0")
    assert "c2VjcmV0" not in str(error.value)
    assert "SCRAM-SHA-256" in str(error.value)


def test_acls_of_one_content_have_one_id() -> None:
    resource = AclResource(2, "orders", LITERAL)
    data = next(node.data for node in tree() if node.path == "/kafka-acl/Topic/orders")
    records = forms_security.decode_acls("/kafka-acl/Topic/orders", data, resource)
    again = forms_security.decode_acls("/kafka-acl/Topic/orders", data, resource)
    assert [record.id for record in records] == [record.id for record in again]
    assert len({record.id for record in records}) == len(records) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (12.5, "12.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (12345678.0, "1.2345678E7"),
        (1.5e300, "1.5E300"),
        (-1e-5, "-1.0E-5"),
        (200.0, "200.0"),
        (1e22, "1.0E22"),
    ],
)
def test_a_fraction_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert forms_configs.java_double(value) == text


@pytest.mark.parametrize("name", ["alice", "CN=ö,O=a b", "a/b*c+d~e%", "<default>", "-_.x"])
def test_a_name_comes_back_from_its_path(name: str) -> None:
    text = paths.sanitized(name)
    assert "/" not in text
    assert text != paths.DEFAULT_ENTITY
    assert paths.desanitized(text) == name
    assert paths.desanitized(paths.sanitized(None)) is None


def test_what_a_tree_cant_keep_is_refused() -> None:
    with pytest.raises(ValueError, match="resource type 32"):
        forms_configs.config_entity(32, "group")
    with pytest.raises(ValueError, match="allowed: user, client-id, both, ip"):
        forms_configs.quota_entity([EntityData(entity_type="planet", entity_name="x")])
    with pytest.raises(ValueError, match="resource types"):
        forms_security.acl_path(AclResource(9, "x", LITERAL))
    with pytest.raises(ValueError, match="allowed"):
        forms_configs.scram_mechanism(3)


def test_an_image_of_partitions_makes_the_topics_node() -> None:
    moving = PartitionImage(
        partition=0,
        replicas=(1, 2, 3),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        adding_replicas=(3,),
        removing_replicas=(1,),
    )
    node = forms_topics.topic_node(b"i" * 16, [moving])
    assert node == forms_topics.TopicNode({0: (1, 2, 3)}, b"i" * 16, {0: (3,)}, {0: (1,)})
    assert forms_topics.decode_topic("/t", forms_topics.encode_topic(node)) == node


def test_asked_partitions_and_notifications_keep_their_order() -> None:
    asked = (TopicPartition("b", 1), TopicPartition("a", 0))
    assert forms_topics.decode_partitions("/p", forms_topics.encode_partitions(asked)) == asked


def test_paths_above_a_node() -> None:
    assert paths.above("/config/users/u") == ["/config", "/config/users"]
    assert paths.above("/feature") == []


def test_quotas_and_credentials_go_by_their_numbers() -> None:
    record = UserScramCredentialRecord(
        name="a", mechanism=2, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    text = forms_configs.encode_scram(record)
    assert forms_configs.decode_scram("/p", "a", "SCRAM-SHA-512", text) == record
    quota = ClientQuotaRecord(
        entity=[EntityData("user", "u"), EntityData("client-id", None)], key="producer_byte_rate", value=7.0
    )
    assert forms_configs.quota_entity(quota.entity) == "users/u/clients/<default>"
