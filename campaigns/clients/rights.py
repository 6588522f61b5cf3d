"""What an administrator gives users by librdkafka: credentials of SCRAM, and rights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

ASK_S = 30.0
ITERATIONS = 4096
Right = tuple[str, str, str]
"""The type of a resource, its name, an operation: the types and operations as librdkafka has them."""


def give_credentials(admin: Any, users: Iterable[str], password: str, mechanisms: Iterable[str]) -> None:
    """Give each user credentials of each mechanism.

    :raises KafkaException: one was refused
    """
    for user in users:
        for mechanism in mechanisms:
            info = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], ITERATIONS)
            wanted = UserScramCredentialUpsertion(user, info, password.encode())
            for answer in admin.alter_user_scram_credentials([wanted]).values():
                answer.result(ASK_S)


def give_rights(admin: Any, user: str, rights: Iterable[Right]) -> None:
    """Allow a user what these rights say, from everywhere.

    :raises KafkaException: one was refused
    """
    acls = [
        AclBinding(
            ResourceType[kind],
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in rights
    ]
    for answer in admin.create_acls(acls, request_timeout=ASK_S).values():
        answer.result(ASK_S)
