"""AddPartitionsToTxn over topics with many partitions."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from blumfeld.metadata.image.partition_table import PartitionTable
from blumfeld.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from blumfeld_transactions.handlers import TransactionApis


class Table(PartitionTable):
    """The table of a large topic."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("a request for one partition goes through all of the topic")


def test_only_the_partitions_asked_for_are_looked_up() -> None:
    topics = {"big": SimpleNamespace(partitions=Table({i: cast("Any", None) for i in range(2_000)}))}
    around = SimpleNamespace(coordinator=None, metadata=SimpleNamespace(image=SimpleNamespace(topics=topics)))
    apis = TransactionApis(cast("Any", around))
    asked = [
        AddPartitionsToTxnTopic(name="big", partitions=[5, 2_000]),
        AddPartitionsToTxnTopic(name="none", partitions=[0]),
    ]
    assert apis._unknown(asked) == {("big", 2_000), ("none", 0)}
