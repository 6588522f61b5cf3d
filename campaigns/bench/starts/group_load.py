"""Time until a node that ended answers for all groups again, and the memory that their offsets take.

``python -m campaigns group-load --peer kafka-peer --groups 10000 --offsets 100``. Every server gets the same commits
over the wire, and is then started on copies of three data directories: ``empty``, without groups; ``clean``, after a
SIGTERM; ``killed``, after a SIGKILL. The extra time of ``clean`` over ``empty`` is the replay of the groups. The
extra time of ``killed`` over ``clean`` is the recovery of the logs.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.errors import COORDINATOR_MOVES, error_name
from blumfeld.coordinator.runtime.coordinator import partition_for
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.wire.messages.offset_commit import OffsetCommitResponse
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_kit.simulation.clients.offsets import commit_request
from campaigns.bench.starts import restarts
from campaigns.bench.starts.restarts import CLEAN, KILLED

EMPTY = "empty"
TOPIC = "group-load"
COMMIT_VERSION, FETCH_VERSION = 8, 7
CONNECTIONS = 8
"""Commits in flight at one time."""
TIMEOUT_S = 300.0
POLL_S = 0.005


@attrs.define
class Groups:
    """Groups with offsets; see :class:`campaigns.bench.starts.restarts.Data`."""

    groups: int
    offsets: int
    """Offsets of each group, one for each partition of one topic."""
    kinds: Sequence[str] = (EMPTY, CLEAN, KILLED)
    quiet_s: float = 1.0
    last: Sequence[int] = ()
    """For each partition of the groups' topic that has groups, the number of the one that was written last."""

    @property
    def title(self) -> str:
        """The number of groups and offsets."""
        return f"{self.groups} groups × {self.offsets} offsets = {self.groups * self.offsets}"

    def group(self, number: int) -> str:
        """Return the name of a group."""
        return f"group-{number:06d}"

    def fill(self, port: int, kind: str) -> None:
        """Create the topic, and commit all offsets of each group by one request; no group if ``kind`` is empty."""
        with WireClient("127.0.0.1", port, TIMEOUT_S) as client:
            client.create_topic(TOPIC, self.offsets)
            client.wait_for_leaders(TOPIC)
            client.await_coordinator(self.group(0))
            self.last = self.last_groups(len(client.wait_for_leaders(OFFSETS_TOPIC)))
        with ExitStack() as stack:
            connections = [stack.enter_context(_connect(port)) for _ in range(CONNECTIONS)]
            for start in range(0, 0 if kind == EMPTY else self.groups, CONNECTIONS):
                self._commit(connections, range(start, min(start + CONNECTIONS, self.groups)))

    def last_groups(self, partitions: int) -> list[int]:
        """Return, for each of so many partitions that has groups, the number of the one that is written last."""
        last = {partition_for(self.group(number), partitions): number for number in range(self.groups)}
        return [last[partition] for partition in sorted(last)]

    def _commit(self, connections: Sequence[BlockingConnection], numbers: range) -> None:
        left = list(numbers)
        deadline = time.monotonic() + TIMEOUT_S
        while left:
            pairs = list(zip(connections, left, strict=False))
            for connection, number in pairs:
                offsets = {(TOPIC, index): offset for index, offset in self._committed(number).items()}
                connection.send(commit_request(self.group(number), offsets), COMMIT_VERSION)
            for connection, number in pairs:
                answer = connection.receive().message
                assert isinstance(answer, OffsetCommitResponse)
                codes = {p.error_code for topic in answer.topics for p in topic.partitions}
                if codes == {0}:
                    left.remove(number)
                elif not codes <= COORDINATOR_MOVES or time.monotonic() > deadline:
                    raise DriverError(f"{self.group(number)}: {', '.join(map(error_name, sorted(codes)))}")

    def _committed(self, number: int) -> dict[int, int]:
        return {partition: number * 1_000 + partition for partition in range(self.offsets)}

    def await_all(self, port: int, kind: str) -> None:
        """Return when the last group of each partition has answered with the offsets that it committed."""
        deadline = time.monotonic() + TIMEOUT_S
        left = [] if kind == EMPTY else list(self.last)
        while left:
            try:
                with _connect(port) as connection:
                    while left:
                        if self._has_answered(connection, left[0]):
                            del left[0]
                        elif time.monotonic() > deadline:
                            raise DriverError(f"{len(left)} shards are not loaded")
                        else:
                            time.sleep(POLL_S)
            except (OSError, DecodeError) as error:
                if time.monotonic() > deadline:
                    raise DriverError(f"nobody answers: {error}") from error
                time.sleep(POLL_S)

    def _has_answered(self, connection: BlockingConnection, number: int) -> bool:
        request = OffsetFetchRequest(group_id=self.group(number), topics=None)
        answer = connection.ask(request, OffsetFetchResponse, FETCH_VERSION)
        if answer.error_code in COORDINATOR_MOVES:
            return False
        if answer.error_code:
            raise DriverError(f"{self.group(number)}: {error_name(answer.error_code)}")
        seen = {p.partition_index: p.committed_offset for topic in answer.topics for p in topic.partitions}
        if seen != self._committed(number):
            raise DriverError(
                f"{self.group(number)} has {len(seen)} offsets, and not those that it committed"
            )
        return True

    def copy(self, source: Path, target: Path) -> None:
        """Copy a data directory."""
        shutil.copytree(source, target)

    def unchanged(self, folder: Path) -> None:
        """A start may change everything."""


def _connect(port: int) -> BlockingConnection:
    return BlockingConnection("127.0.0.1", port, TOPIC, TIMEOUT_S)


def main() -> None:
    """Measure, print the table, write the result."""
    parser = restarts.options("group-load", __doc__)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--offsets", type=int, default=100, help="of each group")
    options = parser.parse_args()
    restarts.main(options, lambda: Groups(options.groups, options.offsets))


if __name__ == "__main__":
    main()
