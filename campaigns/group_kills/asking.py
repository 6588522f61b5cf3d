"""Questions to a broker that may have just come back: asked again until it answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from campaigns.group_kills.ledger import Epochs, Place
from campaigns.raw_connection import ConnectionEnded, RawConnection

PATIENCE_S = 60.0
PAUSE_S = 0.02
FETCH_VERSION = 7
SOON = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
T = TypeVar("T")


class NoAnswer(Exception):  # noqa: N818 - not ours: what the broker did
    """Nobody answered for a minute."""


def patiently(ask: Callable[[], T | None], what: str) -> T:
    """Ask until there is an answer.

    :raises NoAnswer: there is none
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            answer = ask()
        except (OSError, ConnectionEnded):
            answer = None
        if answer is not None:
            return answer
        time.sleep(PAUSE_S)
    raise NoAnswer(what)


def committed(address: str, group: str) -> dict[Place, int]:
    """What a group has committed.

    :raises NoAnswer: as :func:`patiently`
    """

    def ask() -> dict[Place, int] | None:
        with RawConnection(address) as connection:
            answer = connection.ask(
                OffsetFetchRequest(group_id=group, topics=None), FETCH_VERSION, OffsetFetchResponse
            )
        if answer.error_code in SOON:
            return None
        assert not answer.error_code, answer.error_code
        return {
            (topic.name, item.partition_index): item.committed_offset
            for topic in answer.topics
            for item in topic.partitions
        }

    return patiently(ask, f"the offsets of {group}")


def epochs(address: str, group: str) -> Epochs:
    """A KIP-848 group; without members where it isn't there.

    :raises NoAnswer: as :func:`patiently`
    """

    def ask() -> Epochs | None:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        with RawConnection(address) as connection:
            described = connection.ask(request, 1, ConsumerGroupDescribeResponse).groups[0]
        if described.error_code in SOON:
            return None
        members = {member.member_id: member.member_epoch for member in described.members}
        return Epochs(described.group_state, described.group_epoch, members)

    return patiently(ask, f"the members of {group}")
