"""``leader.replication.throttled.replicas`` and ``follower.replication.throttled.replicas``: the replicas of a topic
that a reassignment throttles (KIP-73)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from blumfeld.config.definitions import ConfigError

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
KEYS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
ALL = "*"
_REPLICA = r"[0-9]{1,10}:[0-9]{1,10}"
"""A text, not a compiled pattern: each start imports this module, and few topics have such a list."""
_ALLOWED = "'*' alone, or a list of replicas: PARTITION:BROKER, with commas between"


def check_throttled_replicas(key: str, given: object) -> None:
    """Check a list of throttled replicas, as Kafka's ``ThrottledReplicaListValidator``.

    :raises ConfigError: an entry has another form
    """
    entries = _entries(given)
    if entries != [ALL] and not all(re.fullmatch(_REPLICA, entry) for entry in entries):
        raise ConfigError(key, given, _ALLOWED)


def is_throttled(replicas: Sequence[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list names the replica of a partition on a broker. An entry that can't be read names none."""
    if replicas and replicas[0] == ALL:
        return True
    named = (entry.split(":") for entry in replicas if re.fullmatch(_REPLICA, entry))
    return any((int(index), int(broker)) == (partition, broker_id) for index, broker in named)


def _entries(given: object) -> list[str]:
    entries = (
        given.split(",")
        if isinstance(given, str)
        else list(given)
        if isinstance(given, (list, tuple))
        else []
    )
    return [text for entry in entries if (text := str(entry).strip())]
