"""Kafka's numbers of the operations that an ACL allows or denies (``AclOperation``)."""

from __future__ import annotations

from collections.abc import Iterable

OPERATIONS = {
    "All": 2,
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "ClusterAction": 9,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
    "IdempotentWrite": 12,
    "CreateTokens": 13,
    "DescribeTokens": 14,
    "TwoPhaseCommit": 15,
}
"""Name → number."""


def mask_of(operations: Iterable[str]) -> int:
    """Returns the mask of "authorized operations" in an answer: it has the bit of each operation's number (KIP-430)."""
    return sum(1 << OPERATIONS[operation] for operation in operations)
