"""A coordinator of transactions that says yes, for tests of what lies beside it."""

from __future__ import annotations

from typing import Any

from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.transactions import Outcomes, PartitionsOfTransaction, TransactionSurroundings
from blumfeld.wire.errors import BrokerError, ErrorCode


class FakeTransactions:
    """Implements ``TransactionCoordinator``. Every partition is in every transaction, unless ``refuse`` says
    otherwise."""

    def __init__(self) -> None:
        self.asked: list[PartitionsOfTransaction] = []
        self.refuse: ErrorCode | None = None
        self.held: list[Completion[Outcomes]] | None = None
        """With a list, answers wait in it."""

    def attach(self, surroundings: TransactionSurroundings) -> None:
        pass

    def handlers(self) -> list[ApiHandler]:
        return []

    def init_producer_id(self, request: Any, context: Any) -> Any:
        raise AssertionError("nobody asks for a producer id")

    def partitions_of(self, asked: PartitionsOfTransaction) -> Completion[Outcomes]:
        self.asked.append(asked)
        answer: Completion[Outcomes] = Completion()
        if self.held is not None:
            self.held.append(answer)
        elif self.refuse is not None:
            answer.fail(BrokerError(self.refuse))
        else:
            answer.complete(dict.fromkeys(asked.partitions, ErrorCode.NONE))
        return answer

    def new_shard(self) -> Any:
        raise AssertionError("no shard is made")

    def metrics(self) -> list[Any]:
        return []

    def perform(self, partition: int, epoch: int, effect: Any) -> None:
        raise AssertionError("no effect is ordered")
