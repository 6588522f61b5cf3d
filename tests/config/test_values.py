"""Configuration: Kafka's table, what a value may be, where it comes from, and what a topic makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.config.values import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigDef,
    ConfigError,
    Given,
    Source,
    Synonym,
    TopicConfig,
    Typed,
    UnknownConfigError,
    check_topic_configs,
    parse,
    render,
    suggest,
)
from blumfeld.wire.errors import ErrorCode
from tests.everyday import for_each
from tests.kafka_facts import configs

ALL = [
    *BROKER_CONFIGS.values(),
    *TOPIC_CONFIGS.values(),
    *GROUP_CONFIGS.values(),
]


def test_the_table_is_kafkas() -> None:
    facts = configs()
    for scope, table in (("broker", BROKER_CONFIGS), ("topic", TOPIC_CONFIGS), ("group", GROUP_CONFIGS)):
        expected = facts[scope] + (facts["brokerDynamicQuota"] if scope == "broker" else [])
        assert list(table) == [fact["name"] for fact in expected]
        for fact in expected:
            defn = table[fact["name"]]
            assert (defn.type, defn.scope, defn.importance) == (fact["type"], scope, fact["importance"])
            assert (defn.minimum, defn.maximum) == (fact.get("min"), fact.get("max"))
            assert defn.update_mode == fact.get("updateMode", "cluster-wide")
            assert defn.required == (fact["default"] == "<required>")
            if fact["type"] in ("INT", "LONG", "SHORT", "DOUBLE", "BOOLEAN") and not defn.required:
                assert defn.default == fact["default"], fact["name"]


@for_each(ALL)
def test_every_default_is_a_value_that_its_key_allows(defn: ConfigDef) -> None:
    """Parsed from its text it is itself again, and it has a type on the wire."""
    text = render(defn, defn.default)
    if text is not None:
        assert parse(defn, text) == defn.default
        assert parse(defn, defn.default) == defn.default
    elif not defn.required:
        assert parse(defn, None) is None
    assert 1 <= defn.wire_type <= 9
    assert defn.allowed_in_words


@for_each([*TOPIC_CONFIGS.values(), *GROUP_CONFIGS.values()])
def test_every_synonym_is_a_broker_key(defn: ConfigDef) -> None:
    for name in defn.broker_synonyms:
        assert name in BROKER_CONFIGS
    if defn.scope == "topic" and defn.server_default_name is not None:
        assert BrokerConfig().get(defn.server_default_name) == defn.default


PARSED: list[tuple[str, Given, Typed, str]] = [
    ("log.segment.bytes", 2_000_000, 2_000_000, "2000000"),
    ("log.segment.bytes", " 2000000 ", 2_000_000, "2000000"),
    ("log.retention.ms", "-1", -1, "-1"),
    ("log.retention.ms", None, None, ""),
    ("auto.create.topics.enable", False, False, "false"),
    ("auto.create.topics.enable", " TRUE ", True, "true"),
    ("log.cleanup.policy", "compact, delete", ("compact", "delete"), "compact,delete"),
    ("log.cleanup.policy", ["compact"], ("compact",), "compact"),
    ("log.cleanup.policy", "compact,delete , compact", ("compact", "delete"), "compact,delete"),
    ("log.cleanup.policy", "", (), ""),
    ("log.cleaner.min.cleanable.ratio", 1, 1.0, "1.0"),
    ("log.cleaner.min.cleanable.ratio", "0.25", 0.25, "0.25"),
    ("compression.gzip.level", "9", 9, "9"),
    ("group.consumer.migration.policy", "Disabled", "Disabled", "Disabled"),
    ("compression.type", " lz4", "lz4", "lz4"),
    ("ssl.key.password", " secret ", " secret ", " secret "),
]


@pytest.mark.parametrize(("name", "value", "typed", "text"), PARSED)
def test_values_are_read_as_people_and_clients_write_them(
    name: str, value: Given, typed: Typed, text: str
) -> None:
    typed_value = parse(BROKER_CONFIGS[name], value)
    assert typed_value == typed
    assert type(typed_value) is type(typed) or isinstance(typed, float)
    assert (render(BROKER_CONFIGS[name], typed_value) or "") == text


REFUSED: list[tuple[str, Given]] = [
    ("log.segment.bytes", 1_048_575),
    ("log.segment.bytes", 2**31),
    ("log.segment.bytes", True),
    ("log.segment.bytes", 2.0),
    ("log.segment.bytes", "2e6"),
    ("log.segment.bytes", "2_000_000"),
    ("log.segment.bytes", "9" * 5000),
    ("log.segment.bytes", None),
    ("auto.create.topics.enable", "yes"),
    ("auto.create.topics.enable", 1),
    ("log.cleanup.policy", "compact,,compact"),
    ("log.cleanup.policy", "drop,drop"),
    ("log.cleanup.policy", "drop"),
    ("log.cleanup.policy", 1),
    ("listeners", ""),
    ("log.cleaner.min.cleanable.ratio", "1.01"),
    ("log.cleaner.min.cleanable.ratio", "nan"),
    ("compression.type", "none"),
    ("compression.type", 5),
    ("compression.gzip.level", 0),
    ("compression.zstd.level", 23),
    ("log.message.timestamp.type", "createtime"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_values_that_a_key_does_not_allow_are_refused(name: str, value: Given) -> None:
    """With the key, what was found and what may stand there; INVALID_CONFIG on the wire."""
    with pytest.raises(ConfigError) as caught:
        parse(BROKER_CONFIGS[name], value)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.key == name
    assert name in str(caught.value)
    assert caught.value.allowed in str(caught.value)


def test_a_secret_is_in_no_error_and_no_synonym() -> None:
    with pytest.raises(ConfigError, match="hidden") as caught:
        parse(BROKER_CONFIGS["ssl.key.password"], 12345)
    assert "12345" not in str(caught.value)
    config = BrokerConfig({"ssl.key.password": "open sesame"})
    assert config.str("ssl.key.password") == "open sesame"
    assert config.synonyms("ssl.key.password") == (Synonym("ssl.key.password", None, Source.STATIC_BROKER),)


def test_a_key_that_is_none_is_said_once_with_the_key_that_was_meant() -> None:
    with pytest.raises(UnknownConfigError) as caught:
        BrokerConfig({"log.segment.byte": 1})
    assert caught.value.close == ("log.segment.bytes",)
    said = "log.segment.byte: no broker key of Kafka's; did you mean log.segment.bytes?"
    assert caught.value.message == said
    assert suggest("retention.mss", TOPIC_CONFIGS)[0] == "retention.ms"
    for key, said in (
        ("retnetion.ms", "retnetion.ms: no topic key of Kafka's; did you mean retention.ms?"),
        ("zzzzzzz", "zzzzzzz: no topic key of Kafka's"),
    ):
        with pytest.raises(UnknownConfigError) as caught:
            TopicConfig({key: "1"})
        assert caught.value.message == said


LISTS = [
    defn
    for table in (BROKER_CONFIGS, TOPIC_CONFIGS, GROUP_CONFIGS)
    for defn in table.values()
    if defn.type == "LIST"
]


@pytest.mark.parametrize("defn", LISTS, ids=lambda defn: defn.name)
def test_doubles_are_taken_out_of_the_lists_in_which_kafka_allows_none(defn: ConfigDef) -> None:
    """KIP-1161: ``cleanup.policy=delete,delete`` is ``delete``, and no error. The other lists have checks of their own,
    and stay as they are.
    """
    first_value, other = (*defn.allowed, "a", "b")[:2]
    doubled = f"{first_value},{other}, {first_value},{first_value}"
    own_checks = ("controller.quorum.", "leader.replication.", "follower.replication.")
    stays = defn.name.startswith(own_checks)
    assert parse(defn, doubled) == (
        (first_value, other, first_value, first_value) if stays else (first_value, other)
    )


def test_a_listeners_prefix_is_looked_through() -> None:
    defn = BROKER_CONFIGS.find("listener.name.internal.ssl.keystore.location")
    assert defn.name == "ssl.keystore.location"
    assert BROKER_CONFIGS.find("listener.name.x.plain.sasl.jaas.config").name == "sasl.jaas.config"
    with pytest.raises(UnknownConfigError):
        BROKER_CONFIGS.find("listener.name.internal.nothing")


def test_dynamic_beats_default_beats_manifest() -> None:
    name = "min.insync.replicas"
    config = BrokerConfig()
    assert (config.int(name), config.source(name)) == (1, Source.DEFAULT)
    config = BrokerConfig({name: 2})
    assert (config.int(name), config.source(name)) == (2, Source.STATIC_BROKER)
    config = config.with_overrides(dynamic_default={name: "3"})
    assert (config.int(name), config.source(name)) == (3, Source.DYNAMIC_DEFAULT_BROKER)
    config = config.with_overrides(dynamic={name: "4"})
    assert (config.int(name), config.source(name)) == (4, Source.DYNAMIC_BROKER)
    assert config.synonyms(name) == (
        Synonym(name, "4", Source.DYNAMIC_BROKER),
        Synonym(name, "3", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym(name, "2", Source.STATIC_BROKER),
        Synonym(name, "1", Source.DEFAULT),
    )
    assert list(config.given()) == [name]
    assert config.with_overrides(dynamic={}).int(name) == 3


def test_a_configuration_is_a_value() -> None:
    config = BrokerConfig({"num.partitions": 3})
    other = config.with_overrides(dynamic={"log.retention.bytes": "7"})
    assert config.int("log.retention.bytes") == -1
    assert (other.int("log.retention.bytes"), other.int("num.partitions")) == (7, 3)
    with pytest.raises(ConfigError):
        config.with_overrides(dynamic={"num.partitions": "x"})


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": 2}, 7_200_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3}, 180_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3, "log.retention.ms": 4}, 4),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.minutes": -5}, -1),
    ],
)
def test_finer_units_win(static: dict[str, Given], retention_ms: int) -> None:
    """Milliseconds before minutes before hours, for the broker's key and the topic's."""
    config = BrokerConfig(static)
    assert config.int("log.retention.ms") == retention_ms
    assert TopicConfig(broker=config).retention_ms == retention_ms


def test_typed_getters_refuse_another_type() -> None:
    config = BrokerConfig()
    assert config.bool("auto.create.topics.enable") is True
    assert config.float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.str("compression.type") == "producer"
    assert config.list("log.cleanup.policy") == ("delete",)
    assert config.list("early.start.listeners") == ()
    for wrong in (
        lambda: config.int("compression.type"),
        lambda: config.int("auto.create.topics.enable"),
        lambda: config.float("compression.type"),
        lambda: config.bool("num.partitions"),
        lambda: config.str("num.partitions"),
        lambda: config.list("num.partitions"),
    ):
        with pytest.raises(ConfigError):
            wrong()
    with pytest.raises(UnknownConfigError):
        config.get("nothing.like.it")


def test_a_topic_has_kafkas_defaults() -> None:
    config = TopicConfig()
    for name, defn in TOPIC_CONFIGS.items():
        assert config.get(name) == defn.default
        assert getattr(config, name.replace(".", "_")) == defn.default
    assert (config.compacts, config.deletes, config.log_append_time) == (False, True, False)


def test_a_topic_overrides_its_broker() -> None:
    broker = BrokerConfig({"log.retention.hours": 1, "log.segment.bytes": 2_000_000})
    config = TopicConfig(
        {
            "cleanup.policy": "compact,delete",
            "max.message.bytes": "77",
            "message.timestamp.type": "LogAppendTime",
        },
        broker,
    )
    assert (config.segment_bytes, config.max_message_bytes, config.retention_ms) == (2_000_000, 77, 3_600_000)
    assert (config.compacts, config.deletes, config.log_append_time) == (True, True, True)
    assert config.overrides["max.message.bytes"] == 77
    assert config.synonyms("max.message.bytes") == (
        Synonym("max.message.bytes", "77", Source.DYNAMIC_TOPIC),
        Synonym("message.max.bytes", "1048588", Source.DEFAULT),
    )
    assert config.synonyms("retention.ms") == (
        Synonym("log.retention.hours", "1", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )
    assert config.source("retention.ms") is Source.STATIC_BROKER
    assert config.source("max.message.bytes") is Source.DYNAMIC_TOPIC
    assert config.source("flush.ms") is Source.DEFAULT
    assert config.synonyms("remote.storage.enable") == (
        Synonym("remote.storage.enable", "false", Source.DEFAULT),
    )


def test_a_topic_takes_no_name_that_it_has_not() -> None:
    with pytest.raises(AttributeError):
        TopicConfig().retention_hours = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"retention.ms": "-2"}, "retention.ms"),
        ({"cleanup.policy": "archive"}, "cleanup.policy"),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, "min.compaction.lag.ms"),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact"}, "cleanup.policy"),
        (
            {"remote.storage.enable": "true", "retention.ms": "9", "local.retention.ms": "10"},
            "local.retention.ms",
        ),
        (
            {"remote.storage.enable": "true", "retention.bytes": "9", "local.retention.bytes": "-1"},
            "local.retention.bytes",
        ),
    ],
)
def test_what_a_topic_may_not_be(overrides: dict[str, Given], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_topic_configs(overrides)
    assert caught.value.key == key


def test_what_a_topic_may_be() -> None:
    assert check_topic_configs({"retention.ms": "-1", "cleanup.policy": ""}).retention_ms == -1
    assert check_topic_configs({"local.retention.ms": "10", "retention.ms": "9"}).local_retention_ms == 10
    assert check_topic_configs({"remote.storage.enable": "true"}).remote_storage_enable


def test_a_small_segment_needs_the_internal_key() -> None:
    """Tests of rolling want segments below Kafka's minimum of 1 MiB; so does Kafka."""
    with pytest.raises(ConfigError):
        TopicConfig({"segment.bytes": "1000"})
    assert TopicConfig({"internal.segment.bytes": "1000"}).segment_bytes == 1000
    assert TOPIC_CONFIGS["internal.segment.bytes"].internal


@given(value=st.text(max_size=30), name=st.sampled_from([defn.name for defn in TOPIC_CONFIGS.values()]))
def test_any_text_is_a_value_or_a_config_error(value: str, name: str) -> None:
    """What AlterConfigs brings raises nothing else, and what is taken is taken again from its own text."""
    defn = TOPIC_CONFIGS[name]
    try:
        typed = parse(defn, value)
    except ConfigError:
        return
    assert parse(defn, render(defn, typed)) == typed
