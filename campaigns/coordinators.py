"""Coordinators of groups and of transactional ids, and the offsets that a group has committed."""

from __future__ import annotations

import contextlib

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from campaigns.raw_connection import ConnectionEnded, RawConnection
from campaigns.waits import NoAnswerError

TIMEOUT_S = 2.0
FIND_COORDINATOR_VERSION = 3
OFFSET_FETCH_VERSION = 7
"""The first one that can ask for stable offsets (KIP-447)."""


def coordinator_address(bootstrap: str, key: str, key_type: int = 0) -> tuple[int, str]:
    """Return node id and address of the coordinator of a group (or, with key type 1, of a transactional id).

    :raises NoAnswerError: no broker names one
    """
    request = FindCoordinatorRequest(key=key, key_type=key_type)
    said = "no broker answers"
    for address in bootstrap.split(","):
        with contextlib.suppress(OSError, ConnectionEnded), RawConnection(address, TIMEOUT_S) as connection:
            coordinator = connection.ask(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse)
            if not coordinator.error_code:
                return coordinator.node_id, f"{coordinator.host}:{coordinator.port}"
            said = ErrorCode(coordinator.error_code).name
    raise NoAnswerError(f"{key} has no coordinator: {said}")


def stable_offsets(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """Return what a group has committed, by topic and partition.

    :raises NoAnswerError: there is no coordinator, it refuses, or an offset is unstable: a transaction is open
    """
    _, address = coordinator_address(bootstrap, group)
    request = OffsetFetchRequest(group_id=group, topics=None, require_stable=True)
    try:
        with RawConnection(address, TIMEOUT_S) as connection:
            answer = connection.ask(request, OFFSET_FETCH_VERSION, OffsetFetchResponse)
    except (OSError, ConnectionEnded) as error:
        raise NoAnswerError(f"the coordinator of {group} does not answer: {error!r}") from error
    rows = [(topic.name, partition) for topic in answer.topics for partition in topic.partitions]
    for code in (answer.error_code, *(partition.error_code for _, partition in rows)):
        if code:
            raise NoAnswerError(f"offsets of {group}: {ErrorCode(code).name}")
    return {(name, partition.partition_index): partition.committed_offset for name, partition in rows}
