"""The log of librdkafka is read right: it says which broker made it begin a producer epoch."""

from __future__ import annotations

import logging

import pytest

from tests.interop.producer_epochs import NOBODY, EpochLog

SKIPPED = (
    "DRAIN [rdkafka#producer-2] [thrd:127.0.0.1:43104/3]: Beginning partition drain in state Assigned for "
    "PID{Id:0,Epoch:0} epoch bump for 6 partition(s) with in-flight requests: skipped sequence numbers"
)
ONE_PARTITION = (
    "DRAIN [rdkafka#producer-2] [thrd:127.0.0.1:43002/2]: cluster-faults [1] beginning partition drain: drain before "
    "retrying"
)
BUMPED = (
    "DRAIN [rdkafka#producer-2] [thrd:127.0.0.1:43100/1]: All partitions drained, bumped epoch to PID{Id:0}"
)


@pytest.mark.parametrize(
    ("line", "brokers"),
    [
        (SKIPPED, {3}),
        (SKIPPED.replace("127.0.0.1:43104/3", "main"), {NOBODY}),
        (ONE_PARTITION, set()),
        (BUMPED, set()),
    ],
)
def test_a_new_epoch_is_counted_for_the_broker_whose_answer_began_it(line: str, brokers: set[int]) -> None:
    epochs = EpochLog()
    for _ in range(2):
        epochs.handle(logging.makeLogRecord({"msg": line}))
    assert epochs.brokers() == brokers
    assert sum(epochs.begun.values()) == 2 * len(brokers)
