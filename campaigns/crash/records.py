"""Records that were acknowledged, against those that are there at the end. Pure: tested without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class Account(msgspec.Struct):
    """What of one run was lost, doubled or out of order."""

    acked: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0


class RecordLedger:
    """Each partition's messages are numbered from 0 on, in the order in which they were sent."""

    def __init__(self, partitions: int) -> None:
        self.acked: list[dict[int, int]] = [{} for _ in range(partitions)]
        """Number → offset."""
        self.committed = [-1] * partitions
        """The highest offset whose commit was answered with success."""
        self.commits = 0
        self.wrong: list[str] = []

    def ack(self, partition: int, number: int, offset: int) -> None:
        """The broker acknowledged a message at this offset; -1: as one that it had before."""
        if number in self.acked[partition]:
            self.wrong.append(f"partition {partition}: message {number} was acknowledged twice")
        self.acked[partition][number] = offset

    def commit(self, partition: int, offset: int) -> None:
        """A commit was answered with success."""
        self.commits += 1
        self.committed[partition] = max(self.committed[partition], offset)

    def check_committed(
        self, promised: Sequence[int], committed: Sequence[int], log_ends: Sequence[int]
    ) -> None:
        """What a fetch says, asked after ``promised`` was read off and before the log ends were."""
        for partition, (least, offset, end) in enumerate(zip(promised, committed, log_ends, strict=True)):
            if offset < least:
                self.wrong.append(f"partition {partition}: commit went back from {least} to {offset}")
            if offset > end:
                self.wrong.append(f"partition {partition}: commit {offset} is beyond the log end {end}")

    def check(self, partition: int, log: Iterable[tuple[int, int]], account: Account) -> None:
        """The whole partition at the end, as (offset, number)."""
        at: dict[int, int] = {}
        last = -1
        for offset, number in log:
            if number in at:
                account.doubled += 1
                self.wrong.append(f"partition {partition}: message {number} at {at[number]} and at {offset}")
                continue
            if number < last:
                account.disordered += 1
                self.wrong.append(f"partition {partition}: message {number} at {offset} is behind {last}")
            at[number], last = offset, max(last, number)
        acked = self.acked[partition]
        account.acked += len(acked)
        for number, offset in acked.items():
            if number not in at:
                account.lost += 1
                self.wrong.append(
                    f"partition {partition}: message {number}, acknowledged at {offset}, is lost"
                )
            elif offset not in (-1, at[number]):
                self.wrong.append(
                    f"partition {partition}: message {number} was acknowledged at {offset}, is at {at[number]}"
                )
