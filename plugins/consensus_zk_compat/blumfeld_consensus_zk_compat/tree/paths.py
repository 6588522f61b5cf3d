"""Paths of the nodes of a Kafka cluster, below the chroot."""

from __future__ import annotations

from urllib.parse import quote, unquote_plus

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
PRODUCER_IDS = "/latest_producer_id_block"
MIGRATION = "/migration"
BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"
DELETIONS = "/admin/delete_topics"
REASSIGNMENTS = "/admin/reassign_partitions"
PREFERRED_ELECTIONS = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACLS = "/kafka-acl-extended"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"

DEFAULT_ENTITY = "<default>"
"""Name of the entity that stands for all others of its type."""
CONTROLLER_CONFIG_KINDS = ("topics", "brokers")
"""The entities whose configurations a controller decides on."""
CONFIG_KINDS = ("topics", "clients", "users", "brokers", "ips")
"""Types of entities below ``/config``."""
PERSISTENT = (
    "/consumers",
    BROKERS,
    TOPICS,
    CONFIG_CHANGES,
    DELETIONS,
    "/brokers/seqid",
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_KINDS),
)
"""Nodes that each broker of Kafka creates at its start if they aren't there, with the nodes above them."""


def broker(broker_id: int) -> str:
    """A broker's registration."""
    return f"{BROKERS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's assignment and id."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """The node above a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, number: int) -> str:
    """The node above a partition's state."""
    return f"{TOPICS}/{name}/partitions/{number}"


def state(name: str, number: int) -> str:
    """A partition's leader and ISR."""
    return f"{TOPICS}/{name}/partitions/{number}/state"


def deletion(name: str) -> str:
    """The mark of a topic that is to be deleted."""
    return f"{DELETIONS}/{name}"


def config(entity: str) -> str:
    """The configuration of an entity, which is named as in a change notification: ``topics/orders``."""
    return f"{CONFIG}/{entity}"


def token(token_id: str) -> str:
    """A delegation token."""
    return f"{TOKENS}/{token_id}"


def above(path: str) -> list[str]:
    """The nodes above this one, the highest first."""
    names = path.split("/")[1:-1]
    return ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]


def sanitized(name: str | None) -> str:
    """A name of a user, client or address as Kafka puts it into a path; ``None`` is the default entity."""
    return DEFAULT_ENTITY if name is None else quote(name, safe="").replace("~", "%7E")


def desanitized(text: str) -> str | None:
    """The name that a part of a path stands for; ``None`` for the default entity."""
    return None if text == DEFAULT_ENTITY else unquote_plus(text)
