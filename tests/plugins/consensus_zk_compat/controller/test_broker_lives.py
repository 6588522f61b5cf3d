from __future__ import annotations

from functools import partial

from blumfeld.metadata.partitions.directories import LOST_DIRECTORY
from blumfeld.metadata.slices import SLICE_RECORDS
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from blumfeld.wire.messages.metadata_records import ConfigRecord
from blumfeld_consensus_zk_compat.controller.broker_lives import (
    broker_came,
    broker_went,
    elect_left_over,
    replicas_failed,
    replicas_restored,
    shut_down,
)
from tests.plugins.consensus_zk_compat.controller.decided import Decided, registration, topic


def test_a_broker_that_goes_leaves_the_image_and_its_leaderships() -> None:
    cluster = Decided([1, 2], topic("t", (1, [1, 2], [1, 2]), (2, [2, 1], [2, 1]), (1, [1], [1])))
    _, changes = cluster.carry_out(partial(broker_went, broker_id=1, broker_epoch=100))
    assert 1 not in cluster.state.image.brokers
    assert [cluster.partition("t", n).leader for n in range(3)] == [2, 2, -1]
    assert [cluster.partition("t", n).isr for n in range(3)] == [(2,), (2,), (1,)]
    assert changes[0].brokers == (1,)


def test_a_broker_that_goes_changes_every_partition_by_one_version_and_one_leader_epoch() -> None:
    cluster = Decided([1, 2], topic("t", (1, [1, 2], [1, 2]), (2, [2, 1], [2, 1])))
    _, changes = cluster.carry_out(partial(broker_went, broker_id=1, broker_epoch=100))
    for step in changes[0].partitions:
        assert step.before is not None
        assert step.after is not None
        assert step.after.partition_epoch == step.before.partition_epoch + 1
        # Kafka 3.9 ignores LeaderAndIsr of the leader epoch that it knows, and would keep the old version for ever.
        assert step.after.leader_epoch == step.before.leader_epoch + 1


def test_the_end_of_an_older_registration_costs_the_next_process_nothing() -> None:
    cluster = Decided([1, 2], topic("t", (1, [1, 2], [1, 2])))
    _, changes = cluster.carry_out(partial(broker_went, broker_id=1, broker_epoch=99))
    assert cluster.partition("t").leader == 1
    assert 1 in cluster.state.image.brokers
    assert changes == []


def test_a_broker_leaves_many_partitions_in_parts() -> None:
    cluster = Decided([1, 2], topic("t", *[(1, [1, 2], [1, 2])] * 1_000))
    cluster.carry_out(partial(broker_went, broker_id=1, broker_epoch=100))
    assert {cluster.partition("t", n).leader for n in range(1_000)} == {2}


def test_a_broker_that_comes_leads_what_only_it_has_whole() -> None:
    cluster = Decided([2], topic("t", (-1, [1], [1, 2]), (-1, [3], [3, 2])))
    cluster.carry_out(partial(broker_came, registration=registration(1)))
    cluster.carry_out(elect_left_over)
    assert [cluster.partition("t", n).leader for n in range(2)] == [1, -1]


def test_a_partition_without_a_state_gets_its_first_one_with_version_0() -> None:
    cluster = Decided([2, 3], topic("t", (-1, [], [1, 2, 3]), (-1, [], [1])))
    _, changes = cluster.carry_out(elect_left_over)
    first = cluster.partition("t", 0)
    assert (first.leader, first.isr, first.leader_epoch, first.partition_epoch) == (2, (2, 3), 0, 0)
    assert cluster.partition("t", 1).partition_epoch == -1
    assert [len(change.partitions) for change in changes] == [1]


def test_other_listeners_of_the_same_process_keep_its_controlled_shutdown() -> None:
    cluster = Decided([1, 2], topic("t", (1, [1, 2], [1, 2])))
    cluster.carry_out(lambda state, moment: shut_down(state, shutdown_of(1), moment))
    cluster.carry_out(partial(broker_came, registration=registration(1, port=9093)))
    assert cluster.state.image.brokers[1].in_controlled_shutdown
    assert cluster.state.image.brokers[1].endpoints[0].port == 9093


def shutdown_of(broker_id: int, epoch: int = 100) -> ControlledShutdownRequest:
    return ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch)


def asked(cluster: Decided, broker_id: int, epoch: int = 100) -> ControlledShutdownResponse:
    request = shutdown_of(broker_id, epoch)
    response, _ = cluster.carry_out(lambda state, moment: shut_down(state, request, moment))
    assert isinstance(response, ControlledShutdownResponse)
    return response


def remaining(response: ControlledShutdownResponse) -> list[int]:
    return [partition.partition_index for partition in response.remaining_partitions]


def test_a_broker_that_shuts_down_keeps_only_what_nobody_else_can_lead() -> None:
    partitions = [(1, [1, 2], [1, 2]), (1, [1], [1]), (1, [1], [1, 2]), (2, [2, 1], [2, 1])]
    cluster = Decided([1, 2], topic("t", *partitions))
    response = asked(cluster, 1)
    assert response.error_code == ErrorCode.NONE
    assert [cluster.partition("t", n).leader for n in range(4)] == [2, 1, 1, 2]
    assert [cluster.partition("t", n).isr for n in range(4)] == [(2,), (1,), (1,), (2,)]
    assert remaining(response) == [2], "a partition with one replica is not waited for"


def test_a_controlled_shutdown_elects_nobody_who_may_lack_records() -> None:
    unclean = ConfigRecord(
        resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"
    )
    cluster = Decided([1, 2], [*topic("t", (1, [1], [1, 2])), unclean])
    assert remaining(asked(cluster, 1)) == [0]
    assert cluster.partition("t").leader == 1


def test_a_controlled_shutdown_goes_on_when_it_asks_again() -> None:
    cluster = Decided([1, 2], topic("t", *[(1, [1, 2], [1, 2])] * 300))
    assert remaining(asked(cluster, 1)) == []
    assert remaining(asked(cluster, 1)) == []


def test_a_controlled_shutdown_of_an_earlier_process_is_refused() -> None:
    cluster = Decided([1, 2], topic("t", (1, [1, 2], [1, 2])))
    assert asked(cluster, 1, 99).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert asked(cluster, 9).error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert cluster.partition("t").leader == 1
    assert asked(cluster, 1, -1).error_code == ErrorCode.NONE, "an old broker names no epoch"


def failed(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in numbers]


def test_a_replica_whose_directory_is_lost_leads_no_more_until_its_broker_registers_anew() -> None:
    cluster = Decided([1, 2], topic("t", (1, [1, 2], [1, 2]), (1, [1], [1, 2]), (2, [2], [2, 1])))
    _, changes = cluster.carry_out(partial(replicas_failed, broker_id=1, partitions=failed(0, 1, 2, 9)))
    assert [cluster.partition("t", n).leader for n in range(3)] == [2, -1, 2]
    steps = changes[0].partitions
    moved = [s for s in steps if s.before and s.after and s.before.partition_epoch != s.after.partition_epoch]
    assert [s.after.partition for s in moved if s.after] == [0, 1], "the third only loses a follower"
    cluster.carry_out(elect_left_over)
    assert cluster.partition("t", 1).leader == -1
    cluster.carry_out(partial(replicas_restored, broker_id=1, partitions=failed(0, 1, 2, 9)))
    cluster.carry_out(elect_left_over)
    assert cluster.partition("t", 1).leader == 1


def test_many_replicas_are_well_again_in_parts() -> None:
    partitions = [(1, [1, 2], [1, 2])] * (SLICE_RECORDS + 1)
    cluster = Decided([1, 2], topic("t", *partitions))
    lost = failed(*range(SLICE_RECORDS + 1))
    cluster.carry_out(partial(replicas_failed, broker_id=1, partitions=lost))
    _, changes = cluster.carry_out(partial(replicas_restored, broker_id=1, partitions=lost))
    assert [len(change.partitions) for change in changes] == [SLICE_RECORDS, 1]
    assert not any(LOST_DIRECTORY in cluster.partition("t", n).directories for n in range(SLICE_RECORDS + 1))


def test_a_replica_that_failed_twice_changes_nothing_the_second_time() -> None:
    cluster = Decided([1, 2], topic("t", (1, [1, 2], [1, 2]), (2, [2], [2, 1])))
    cluster.carry_out(partial(replicas_failed, broker_id=1, partitions=failed(0, 1)))
    _, changes = cluster.carry_out(partial(replicas_failed, broker_id=1, partitions=failed(0, 1)))
    assert changes == []
