"""The effective configuration of a broker and of a topic, with the source of each value.

Precedence: topic, dynamic broker, dynamic default, manifest, Kafka's default. A :class:`BrokerConfig` is
immutable: AlterConfigs makes a new one (:meth:`BrokerConfig.with_overrides`). A :class:`TopicConfig` is
resolved once, so that the request path reads plain attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeAlias, cast

from blumfeld.config.definitions import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    LISTENER_PREFIX,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigError,
    Given,
    Typed,
    UnknownConfigError,
    parse,
    render,
    suggest,
    usable,
)

__all__ = [
    "BROKER_CONFIGS",
    "GROUP_CONFIGS",
    "TOPIC_CONFIGS",
    "BrokerConfig",
    "ConfigDef",
    "ConfigError",
    "Given",
    "Source",
    "Synonym",
    "TopicConfig",
    "Typed",
    "UnknownConfigError",
    "check_topic_configs",
    "parse",
    "render",
    "suggest",
    "usable",
]

# BrokerConfig has methods with these names. Inside of the class they would hide the types.
_Int: TypeAlias = int
_Bool: TypeAlias = bool
_Str: TypeAlias = str

# A broker key that is null takes the value of the next key here. Each key's unit is in its name.
_FALLBACKS = {
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
    "log.dirs": ("log.dir",),
}
_UNIT_MS = {"hours": 3_600_000, "minutes": 60_000}


class Source(IntEnum):
    """``ConfigSource`` in a DescribeConfigs answer: the layer that set a value (KIP-226)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class Synonym(NamedTuple):
    """One layer's value for a key; ``value`` is ``None`` if it is a secret."""

    name: str
    value: str | None
    source: Source


class BrokerConfig:
    """The configuration of one broker.

    :param static: the manifest's ``[config]``, Kafka's keys
    :param dynamic_default: set for all brokers at run time, from the cluster image
    :param dynamic: set for this broker at run time, from the cluster image
    :param abilities: what the build's plug-ins say that they can do beside their roles: ``secures``, ``limits``
    :raises ConfigError: a value that its key does not allow; UnknownConfigError: not one of Kafka's keys
    """

    def __init__(
        self,
        static: Mapping[str, Given] | None = None,
        *,
        dynamic_default: Mapping[str, Given] | None = None,
        dynamic: Mapping[str, Given] | None = None,
        abilities: Iterable[str] = (),
    ) -> None:
        self._abilities = frozenset(abilities)
        self._layers: tuple[tuple[Source, dict[str, Typed]], ...] = (
            (Source.DYNAMIC_BROKER, _parsed(dynamic)),
            (Source.DYNAMIC_DEFAULT_BROKER, _parsed(dynamic_default)),
            (Source.STATIC_BROKER, _parsed(static)),
        )
        self._resolved: dict[str, Typed] = {}
        self._topic_defaults: dict[str, Typed] | None = None

    def with_overrides(
        self,
        *,
        dynamic_default: Mapping[_Str, Given] | None = None,
        dynamic: Mapping[_Str, Given] | None = None,
    ) -> BrokerConfig:
        """Returns the same manifest with other dynamic values. A layer that is not given stays as it is.

        :raises ConfigError: as the constructor
        """
        made = BrokerConfig(dynamic_default=dynamic_default, dynamic=dynamic)
        kept = tuple(
            old if given is None else new
            for old, new, given in zip(
                self._layers, made._layers, (dynamic, dynamic_default, None), strict=True
            )
        )
        made._layers = kept
        made._abilities = self._abilities
        return made

    def get(self, name: _Str) -> Typed:
        """Returns the effective value. Fallback keys in other units (``log.retention.hours``) are applied
        already.

        :raises UnknownConfigError: not one of Kafka's keys
        """
        try:
            return self._resolved[name]
        except KeyError:
            value = self._resolved[name] = self._resolve(name)
            return value

    @property
    def tiers(self) -> _Bool:
        """Whether this build's storage can keep a part of a log in a remote store."""
        return self.bool("remote.log.storage.system.enable")

    @property
    def abilities(self) -> frozenset[_Str]:
        """What this build can do: some keys have their effect by it (``config.effects``)."""
        return self._abilities | {"tiers"} if self.tiers else self._abilities

    def int(self, name: _Str) -> _Int:
        """Returns a SHORT, INT or LONG. :raises ConfigError: it is null or of another type"""
        value = self.get(name)
        if isinstance(value, _Bool) or not isinstance(value, _Int):
            raise ConfigError(name, value, "a whole number")
        return value

    def float(self, name: _Str) -> float:
        """Returns a DOUBLE. :raises ConfigError: it is null or of another type"""
        value = self.get(name)
        if isinstance(value, _Bool) or not isinstance(value, (_Int, float)):
            raise ConfigError(name, value, "a number")
        return value

    def bool(self, name: _Str) -> _Bool:
        """Returns a BOOLEAN. :raises ConfigError: it is null or of another type"""
        value = self.get(name)
        if not isinstance(value, _Bool):
            raise ConfigError(name, value, "true or false")
        return value

    def str(self, name: _Str) -> _Str:
        """Returns a STRING, CLASS or PASSWORD. :raises ConfigError: it is null or of another type"""
        value = self.get(name)
        if not isinstance(value, _Str):
            raise ConfigError(name, value, "text")
        return value

    def list(self, name: _Str) -> tuple[_Str, ...]:
        """Returns a LIST; null is empty. :raises ConfigError: it is of another type"""
        value = self.get(name)
        if value is None:
            return ()
        if not isinstance(value, tuple):
            raise ConfigError(name, value, "a list")
        return value

    def source(self, name: _Str) -> Source:
        """Returns the source of the value that :meth:`get` returns."""
        synonyms = self.synonyms(name)
        return synonyms[0].source if synonyms else Source.DEFAULT

    def of_listener(self, listener: _Str, name: _Str) -> _Str:
        """Returns the key with the prefix of a listener (``listener.name.<name in lower case>.``) if that is set, else
        the key alone."""
        own = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        return name if self.source(own) is Source.DEFAULT else own

    def synonyms(self, name: _Str) -> tuple[Synonym, ...]:
        """Returns the layers of a broker key: the effective value first, then what would hold without it, and
        so on.

        Values are in the unit of the synonym's own name, as Kafka shows them.
        """
        return self._synonyms((name, *_FALLBACKS.get(name, ())))

    def given(self) -> Iterator[_Str]:
        """Yield every key that is set, each once: dynamic ones first, then the manifest's."""
        return iter(dict.fromkeys(name for _, layer in self._layers for name in layer))

    def topic_defaults(self) -> Mapping[_Str, Typed]:
        """Returns the value of every topic key for a topic without own settings."""
        if self._topic_defaults is None:
            self._topic_defaults = {
                name: defn.default if defn.server_default_name is None else self._topic_default(defn)
                for name, defn in TOPIC_CONFIGS.items()
            }
        return self._topic_defaults

    def _topic_default(self, defn: ConfigDef) -> Typed:
        return self.get(cast("str", defn.server_default_name))

    def _own(self, name: _Str) -> tuple[Typed, Source]:
        for source, layer in self._layers:
            if name in layer:
                return layer[name], source
        return BROKER_CONFIGS.find(name).default, Source.DEFAULT

    def _resolve(self, name: _Str) -> Typed:
        value, _ = self._own(name)
        for fallback in _FALLBACKS.get(name, ()):
            if value is not None:
                break
            value = self._own(fallback)[0]
            unit = _UNIT_MS.get(fallback.rpartition(".")[2])
            if unit is not None and isinstance(value, _Int):
                value *= unit
        if name == "log.retention.ms" and isinstance(value, _Int) and value < 0:
            return -1  # any negative number of hours or minutes means unlimited
        return value

    def _synonyms(self, names: tuple[_Str, ...]) -> tuple[Synonym, ...]:
        synonyms = [
            Synonym(name, _shown(BROKER_CONFIGS.find(name), layer[name]), source)
            for source, layer in self._layers
            for name in names
            if name in layer
        ]
        for name in names:
            defn = BROKER_CONFIGS.find(name)
            if defn.default is not None:
                synonyms.append(Synonym(name, _shown(defn, defn.default), Source.DEFAULT))
        return tuple(synonyms)


def _parsed(given: Mapping[str, Given] | None) -> dict[str, Typed]:
    return {name: parse(BROKER_CONFIGS.find(name), value) for name, value in (given or {}).items()}


def _shown(defn: ConfigDef, value: Typed) -> str | None:
    return None if defn.sensitive else render(defn, value)


class TopicConfig:
    """Every topic key as an attribute: ``max.message.bytes`` is ``max_message_bytes``.

    :param overrides: the topic's own settings, as in metadata records
    :param broker: supplies the rest; without it, Kafka's defaults
    :raises ConfigError: a value that its key does not allow; UnknownConfigError: not a topic key
    """

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    flush_messages: int
    flush_ms: int
    retention_bytes: int
    retention_ms: int
    max_message_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    file_delete_delay_ms: int
    min_cleanable_dirty_ratio: float
    cleanup_policy: tuple[str, ...]
    unclean_leader_election_enable: bool
    min_insync_replicas: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    preallocate: bool
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    leader_replication_throttled_replicas: tuple[str, ...]
    follower_replication_throttled_replicas: tuple[str, ...]
    remote_storage_enable: bool
    local_retention_ms: int
    local_retention_bytes: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    internal_segment_bytes: int | None

    compacts: bool
    """Whether ``cleanup.policy`` contains compact: every record needs a key."""
    deletes: bool
    """Whether ``cleanup.policy`` contains delete: retention applies."""
    log_append_time: bool
    """Whether ``message.timestamp.type`` is LogAppendTime."""

    __slots__ = (
        "_broker",
        "_overrides",
        "compacts",
        "deletes",
        "log_append_time",
        *(name.replace(".", "_") for name in TOPIC_CONFIGS),
    )

    def __init__(
        self, overrides: Mapping[str, Given] | None = None, broker: BrokerConfig | None = None
    ) -> None:
        self._broker = broker if broker is not None else BrokerConfig()
        self._overrides = {
            name: parse(TOPIC_CONFIGS.find(name), value) for name, value in (overrides or {}).items()
        }
        for name, value in {**self._broker.topic_defaults(), **self._overrides}.items():
            setattr(self, name.replace(".", "_"), value)
        if self.internal_segment_bytes is not None:
            self.segment_bytes = self.internal_segment_bytes
        self.compacts = "compact" in self.cleanup_policy
        self.deletes = "delete" in self.cleanup_policy
        self.log_append_time = self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def stored(cls, given: Mapping[str, str], broker: BrokerConfig | None = None) -> TopicConfig:
        """Returns a topic's configuration from metadata records, without values that this build can't read."""
        try:
            return cls(given, broker)
        except ConfigError:
            return cls(usable(TOPIC_CONFIGS, given), broker)

    @property
    def roll_ms(self) -> int:
        """Maximum age of the active segment: ``segment.ms``, for a compacted topic at most
        ``max.compaction.lag.ms``.
        """
        if self.compacts and 0 < self.max_compaction_lag_ms < self.segment_ms:
            return self.max_compaction_lag_ms
        return self.segment_ms

    @property
    def overrides(self) -> Mapping[str, Typed]:
        """The topic's own settings."""
        return self._overrides

    def get(self, name: str) -> Typed:
        """Returns the value of a topic key. :raises UnknownConfigError: not a topic key"""
        TOPIC_CONFIGS.find(name)
        if name in self._overrides:
            return self._overrides[name]
        return self._broker.topic_defaults()[name]

    def source(self, name: str) -> Source:
        """Returns the source of the value that :meth:`get` returns."""
        synonyms = self.synonyms(name)
        return synonyms[0].source if synonyms else Source.DEFAULT

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Returns the layers of a topic key, the effective value first; each in the unit of its name.

        :raises UnknownConfigError: not a topic key
        """
        defn = TOPIC_CONFIGS.find(name)
        own: tuple[Synonym, ...] = ()
        if name in self._overrides:
            own = (Synonym(name, _shown(defn, self._overrides[name]), Source.DYNAMIC_TOPIC),)
        if not defn.broker_synonyms:
            shown = _shown(defn, defn.default)
            return own if shown is None else (*own, Synonym(name, shown, Source.DEFAULT))
        return own + self._broker._synonyms(defn.broker_synonyms)


AS_TOTAL = -2
"""A local limit that is the topic's total one."""
# Kafka's own sentences: they say what to do.
NOT_COMPACTED = (
    "Remote log storage only supports topics with cleanup.policy=delete "
    "or cleanup.policy being an empty list."
)
KEEPS_OR_DELETES = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and "
    "turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
    "remote storage and delete all remote data, please set "
    "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
)
NO_COPIES = (
    "When `remote.log.copy.disable` is set to true, the `local.{0}` and `{0}` must be set to the identical value "
    "because there will be no more logs copied to the remote storage."
)


def check_topic_configs(
    overrides: Mapping[str, Given], broker: BrokerConfig | None = None, *, was_tiered: bool = False
) -> TopicConfig:
    """Check topic settings for CreateTopics and AlterConfigs: each value, then those that depend on each
    other.

    :param was_tiered: the topic has ``remote.storage.enable`` now
    :return: the configuration that the topic would have
    :raises ConfigError: INVALID_CONFIG with the reason
    """
    config = TopicConfig(overrides, broker)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "min.compaction.lag.ms",
            config.min_compaction_lag_ms,
            f"no more than max.compaction.lag.ms, {config.max_compaction_lag_ms}",
        )
    if config.remote_storage_enable:
        _check_tiered(config)
    elif was_tiered and not config.remote_log_delete_on_disable:
        raise ConfigError("remote.storage.enable", False, "true", KEEPS_OR_DELETES)
    return config


def _check_tiered(config: TopicConfig) -> None:
    if config.compacts:
        raise ConfigError("cleanup.policy", ",".join(config.cleanup_policy), "delete", NOT_COMPACTED)
    for key, local, total in (
        ("retention.ms", config.local_retention_ms, config.retention_ms),
        ("retention.bytes", config.local_retention_bytes, config.retention_bytes),
    ):
        if local == AS_TOTAL:
            continue
        if total >= 0 and (local == -1 or local > total):
            raise ConfigError(f"local.{key}", local, f"no more than {key}, {total}")
        if config.remote_log_copy_disable and local != total:
            raise ConfigError(f"local.{key}", local, f"{total}", NO_COPIES.format(key))
