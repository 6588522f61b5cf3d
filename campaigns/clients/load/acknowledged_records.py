"""Records that were acknowledged, against those that are there at the end. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Account(msgspec.Struct):
    """Counts of records that one run lost, doubled or put out of order."""

    acked: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0

    def add(self, other: Account) -> None:
        """Take in the counts of another load."""
        self.acked += other.acked
        self.lost += other.lost
        self.doubled += other.doubled
        self.disordered += other.disordered


class AcknowledgedRecords:
    """Each partition's records are numbered from 0 on, in the order in which they were sent."""

    def __init__(self, partitions: int) -> None:
        self.offsets: list[dict[int, int]] = [{} for _ in range(partitions)]
        """Number → offset, by partition."""
        self.wrong: list[str] = []

    def ack(self, partition: int, number: int, offset: int) -> None:
        """The broker acknowledged a record at this offset; -1: as one that it had before."""
        if number in self.offsets[partition]:
            self.wrong.append(f"partition {partition}: record {number} was acknowledged twice")
        self.offsets[partition][number] = offset

    def check(self, partition: int, log: Iterable[tuple[int, int]], account: Account) -> None:
        """Compare a whole partition, as (offset, number), with what was acknowledged."""
        at: dict[int, int] = {}
        last = -1
        for offset, number in log:
            if number in at:
                account.doubled += 1
                self.wrong.append(f"partition {partition}: record {number} at {at[number]} and at {offset}")
                continue
            if number < last:
                account.disordered += 1
                self.wrong.append(f"partition {partition}: record {number} at {offset} is behind {last}")
            at[number], last = offset, max(last, number)
        acked = self.offsets[partition]
        account.acked += len(acked)
        for number, offset in acked.items():
            where = f"partition {partition}: record {number}, acknowledged at {offset}, is"
            if number not in at:
                account.lost += 1
                self.wrong.append(f"{where} lost")
            elif offset not in (-1, at[number]):
                self.wrong.append(f"{where} at {at[number]}")
