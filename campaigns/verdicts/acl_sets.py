"""Sets of ACLs by seed. Pure."""

from __future__ import annotations

import random

from blumfeld.wire.messages.create_acls import AclCreation

PRINCIPALS = ("alice", "bob", "carol")
HOSTS = ("127.0.0.1", "127.0.0.2")
ALLOW, DENY = 3, 2
LITERAL, PREFIXED = 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
_NAMES = {
    TOPIC: ("t-a", "t-a", "t-b", "o-a", "t-none", "t-new", "*", "hardcode", "b/d"),
    GROUP: ("g-a", "g-a", "g-b", "g-none", "*"),
    CLUSTER: ("kafka-cluster",),
    TRANSACTIONAL_ID: ("x-a", "x-a", "y-a", "*"),
}
_PREFIXES = {
    TOPIC: ("t-", "t", "o", "t-a", "h"),
    GROUP: ("g-", "g"),
    CLUSTER: ("kafka", "k"),
    TRANSACTIONAL_ID: ("x", "y-"),
}
_OPERATIONS = {
    TOPIC: (2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 11),
    GROUP: (2, 3, 3, 6, 8, 10, 11),
    CLUSTER: (2, 5, 7, 8, 9, 9, 10, 11, 12),
    TRANSACTIONAL_ID: (2, 4, 4, 8),
}
"""``AclOperation`` by type of resource; one that stands twice comes twice as often."""


def acl_set(seed: int) -> list[AclCreation]:
    """Returns a set of ACLs: few or many, so that some requests of most sets are allowed and others aren't."""
    chance = random.Random(seed)
    return [_acl(chance) for _ in range(chance.choice((0, 2, 4, 8, 12, 20, 30)))]


def _acl(chance: random.Random) -> AclCreation:
    kind = chance.choice((TOPIC, TOPIC, TOPIC, GROUP, GROUP, CLUSTER, CLUSTER, TRANSACTIONAL_ID))
    prefixed = chance.random() < 0.25
    return AclCreation(
        resource_type=kind,
        resource_name="kafka-cluster"
        if kind == CLUSTER
        else chance.choice((_PREFIXES if prefixed else _NAMES)[kind]),
        resource_pattern_type=PREFIXED if prefixed else LITERAL,
        principal=chance.choice(("User:alice", "User:alice", "User:bob", "User:*", "User:nobody")),
        host=chance.choice(("*", "*", "*", *HOSTS)),
        operation=chance.choice(_OPERATIONS[kind]),
        permission_type=chance.choice((ALLOW, ALLOW, ALLOW, DENY)),
    )
