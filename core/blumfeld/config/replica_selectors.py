"""``replica.selector.class``: the replica that a consumer is sent to (KIP-392), by the name of Kafka's class."""

from __future__ import annotations

from blumfeld.config.definitions import ConfigError

KEY = "replica.selector.class"
LEADER = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def check_replica_selector(given: object) -> None:
    """Refuse a class of somebody else's.

    :raises ConfigError: it is none of Kafka's two
    """
    if given not in (None, "", LEADER, RACK_AWARE):
        raise ConfigError(KEY, given, f"{RACK_AWARE}, {LEADER}, or no value: no Java class is loaded")
