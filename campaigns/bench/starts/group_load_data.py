"""Fill a node with committed offsets over the wire, and read them back from one group of each partition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

import attrs

from blumfeld.client.errors import error_name
from blumfeld.coordinator.runtime.partitioning import partition_for
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import WireClient
from campaigns.raw_connection import ConnectionEnded, RawConnection

TOPIC = "group-load"
FIND_COORDINATOR_VERSION = 3
COMMIT_VERSION = 8
FETCH_VERSION = 7
CONNECTIONS = 8
"""Commits in flight at one time."""
TIMEOUT_S = 300.0
POLL_S = 0.005
SOON = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors of a group whose shard isn't loaded yet."""


@attrs.frozen
class Shape:
    """Content to be written."""

    groups: int
    offsets: int
    """Offsets of each group, one for each partition of one topic."""

    def group(self, number: int) -> str:
        """Return the name of a group."""
        return f"group-{number:06d}"

    def offset(self, number: int, partition: int) -> int:
        """Return the offset that group ``number`` commits for a partition."""
        return number * 1_000 + partition


def fill(port: int, shape: Shape) -> int:
    """Create the topic, and commit all offsets of each group by one request. Return the partition count of the groups'
    topic.

    :raises DriverError: the server refused a request
    """
    with WireClient("127.0.0.1", port, TIMEOUT_S) as client:
        client.create_topic(TOPIC, shape.offsets)
        client.wait_for_leaders(TOPIC)
        with RawConnection(f"127.0.0.1:{port}", TIMEOUT_S) as connection:
            _find(connection, shape.group(0))
        partitions = len(client.wait_for_leaders(OFFSETS_TOPIC))
    with ExitStack() as stack:
        connections = [
            stack.enter_context(RawConnection(f"127.0.0.1:{port}", TIMEOUT_S)) for _ in range(CONNECTIONS)
        ]
        for start in range(0, shape.groups, CONNECTIONS):
            _commit(connections, shape, range(start, min(start + CONNECTIONS, shape.groups)))
    return partitions


def _find(connection: RawConnection, group: str) -> None:
    """Make the server create the groups' topic, and wait until it has its coordinators."""
    deadline = time.monotonic() + TIMEOUT_S
    request = FindCoordinatorRequest(key=group, key_type=0)
    while connection.ask(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse).error_code:
        if time.monotonic() > deadline:
            raise DriverError(f"nobody coordinates {group}")
        time.sleep(POLL_S)


def _commit(connections: Sequence[RawConnection], shape: Shape, numbers: range) -> None:
    left = list(numbers)
    deadline = time.monotonic() + TIMEOUT_S
    while left:
        asked = list(zip(connections, left, strict=False))
        for connection, number in asked:
            connection.send_frame(connection.request(_request(shape, number), COMMIT_VERSION))
        for connection, number in asked:
            answer = connection.answer(OffsetCommitResponse, COMMIT_VERSION)
            codes = {p.error_code for topic in answer.topics for p in topic.partitions}
            if codes == {0}:
                left.remove(number)
            elif not codes <= set(SOON) or time.monotonic() > deadline:
                raise DriverError(f"{shape.group(number)}: {', '.join(map(error_name, sorted(codes)))}")


def _request(shape: Shape, number: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=at, committed_offset=shape.offset(number, at))
        for at in range(shape.offsets)
    ]
    return OffsetCommitRequest(
        group_id=shape.group(number), topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    )


def last_groups(shape: Shape, partitions: int) -> list[int]:
    """Return, for each partition of the groups' topic that has groups, the one that was written last."""
    last = {partition_for(shape.group(number), partitions): number for number in range(shape.groups)}
    return [last[partition] for partition in sorted(last)]


def await_all(port: int, shape: Shape, numbers: Sequence[int]) -> None:
    """Return when all these groups have answered with the offsets that they committed.

    :raises DriverError: a group answered with other offsets, or it took longer than five minutes
    """
    deadline = time.monotonic() + TIMEOUT_S
    left = list(numbers)
    while left:
        try:
            with RawConnection(f"127.0.0.1:{port}", TIMEOUT_S) as connection:
                while left:
                    if _has_answered(connection, shape, left[0]):
                        del left[0]
                    elif time.monotonic() > deadline:
                        raise DriverError(f"{len(left)} shards are not loaded")
                    else:
                        time.sleep(POLL_S)
        except (OSError, ConnectionEnded) as error:
            if time.monotonic() > deadline:
                raise DriverError(f"nobody answers: {error}") from error
            time.sleep(POLL_S)


def _has_answered(connection: RawConnection, shape: Shape, number: int) -> bool:
    request = OffsetFetchRequest(group_id=shape.group(number), topics=None)
    answer = connection.ask(request, FETCH_VERSION, OffsetFetchResponse)
    if answer.error_code in SOON:
        return False
    if answer.error_code:
        raise DriverError(f"{shape.group(number)}: {error_name(answer.error_code)}")
    found = {p.partition_index: p.committed_offset for topic in answer.topics for p in topic.partitions}
    if found != {at: shape.offset(number, at) for at in range(shape.offsets)}:
        raise DriverError(f"{shape.group(number)} has {len(found)} offsets, and not those that it committed")
    return True
