"""A state that a former controller wrote after the next one's election is seen."""

from __future__ import annotations

from campaigns.cluster.tree import Written, writes_of_former_controllers

ELECTION = Written("/controller_epoch", 4, 0x20)


def state(epoch: int, mzxid: int) -> Written:
    return Written("/brokers/topics/t/partitions/0/state", {"controller_epoch": epoch, "leader": 1}, mzxid)


def test_a_state_that_a_former_controller_wrote_after_the_election_is_told() -> None:
    (said,) = writes_of_former_controllers(ELECTION, [state(3, 0x21)])
    assert said == (
        "/brokers/topics/t/partitions/0/state was written by the controller of epoch 3 in transaction 0x21, after the "
        "election of epoch 4 in 0x20"
    )


def test_a_state_from_before_the_election_and_one_of_the_present_controller_are_fine() -> None:
    assert writes_of_former_controllers(ELECTION, [state(3, 0x1F), state(4, 0x21)]) == []
