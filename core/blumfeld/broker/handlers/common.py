"""Shared by handlers: legal topic names, authorized operations, the answer to requests on ACLs."""

from __future__ import annotations

import re
from typing import NoReturn

from blumfeld.spi.context import RequestContext
from blumfeld.wire.acl_operations import mask_of
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message

NO_OPERATIONS = -(2**31)
"""Value of "authorized operations" in an answer if the request didn't ask for them."""
OPERATIONS_OF = {
    "Topic": ("Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs"),
    "Cluster": (
        "Create",
        "Alter",
        "Describe",
        "ClusterAction",
        "DescribeConfigs",
        "AlterConfigs",
        "IdempotentWrite",
    ),
}
CLUSTER_NAME = "kafka-cluster"
TOPICS_AT_ONCE = 16
"""Topics that a large request changes with one command to the controller, because each may have many partitions."""
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_legal_topic(name: str) -> bool:
    """Whether the name is legal: 1 to 249 characters of ``[a-zA-Z0-9._-]``, and neither ``.`` nor ``..``."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def no_authorizer(_request: Message, _context: RequestContext) -> NoReturn:
    """Refuse a request on ACLs: this build has no authorizer.

    :raises BrokerError: SECURITY_DISABLED
    """
    raise BrokerError(ErrorCode.SECURITY_DISABLED, "no authorizer is composed, so there are no ACLs")


def cluster_operations(context: RequestContext, *, wanted: bool) -> int:
    """Returns the mask of the operations on the cluster: the default if the request didn't ask, and none for a client
    that may not describe the cluster."""
    if not wanted:
        return NO_OPERATIONS
    if not context.authorize("Describe", "Cluster", CLUSTER_NAME, quiet=True):
        return 0
    return authorized_operations(context, "Cluster", CLUSTER_NAME)


def authorized_operations(context: RequestContext, resource_type: str, name: str) -> int:
    """Returns the mask of the operations that the client may do on a resource (KIP-430)."""
    operations = OPERATIONS_OF[resource_type]
    return mask_of(o for o in operations if context.authorize(o, resource_type, name, quiet=True))
