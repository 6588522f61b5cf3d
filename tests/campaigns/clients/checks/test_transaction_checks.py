"""The columns for transactions bite: a client that shows too much, too little or commits as a zombie fails them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from campaigns.clients.checks import transaction_checks
from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import FENCED, Client
from campaigns.clients.records import Received, Sample, Turn
from campaigns.clients.verdicts import CheckFailed


class FakeBatch:
    is_transactional = True

    def __init__(self, is_control: bool) -> None:
        self.is_control = is_control


class FakeScene:
    """Names, and three markers in each partition."""

    def new_topic(self, partitions: int, what: str = "t") -> str:
        return what

    topic = group = lambda self, what="g": what

    def batches(self, topic: str, partition: int) -> list[FakeBatch]:
        return [FakeBatch(False), *[FakeBatch(True)] * 3]


class FakeClient(Client):
    """Remembers what it sent, and shows it by its isolation level; what it does wrong is set from outside."""

    name = "fake"

    def __init__(self, leaks: bool = False, hides: bool = False, error: str = "fenced") -> None:
        super().__init__("h:1")
        self._turns: list[Turn] = []
        self._leaks, self._hides, self._error = leaks, hides, error

    def transact(self, topic: str, transactional_id: str, turns: Sequence[Turn]) -> None:
        self._turns += turns

    def fence(self, topic: str, transactional_id: str, sample: Sample) -> str:
        if self._leaks:
            self._turns.append(Turn([sample], True))
        return self._error

    def consume(self, topic: str, group: str, count: int) -> list[Received]:
        committed = self.isolation == "read_committed"
        shown = [
            sample
            for turn in self._turns
            if turn.commits or (self._leaks if committed else not self._hides)
            for sample in turn.samples
        ]
        return [Received(s.partition, at, s.key, s.value, (), 0) for at, s in enumerate(shown)]


def run(column: str, client: Client) -> None:
    transaction_checks.TRANSACTION_COLUMNS[column](client, cast("Scene", FakeScene()))


@pytest.mark.parametrize("column", ["transactions", "fencing"])
def test_a_client_that_does_all_of_it_passes(column: str) -> None:
    run(column, FakeClient())


@pytest.mark.parametrize(
    ("column", "wrong", "complaint"),
    [
        ("transactions", {"leaks": True}, "partition 0: 12 wanted, 18 came"),
        ("transactions", {"hides": True}, "partition 0: 18 wanted, 12 came"),
        ("fencing", {"error": ""}, "the commit of a fenced producer was taken"),
        ("fencing", {"error": "it timed out"}, "failed with: it timed out"),
        ("fencing", {"leaks": True}, "partition 0: 1 wanted, 2 came"),
    ],
)
def test_what_a_client_does_wrong_is_told(column: str, wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CheckFailed, match=complaint):
        run(column, FakeClient(**wrong))


@pytest.mark.parametrize(
    "text",
    [
        "Local: This instance has been fenced by a newer instance",
        "ProducerFenced: There is a newer producer with the same transactionalId",
        "KafkaJSProtocolError: Producer attempted an operation with an old epoch, fenced",
        "org.apache.kafka.common.errors.InvalidProducerEpochException: Producer attempted to produce",
    ],
)
def test_clients_words_for_a_fence_are_known(text: str) -> None:
    assert FENCED.search(text)
    assert not FENCED.search("Local: Timed out")
