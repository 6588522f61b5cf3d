"""A controller's term on a simulated ZooKeeper: elections, take-overs, brokers, topics."""

from __future__ import annotations

import pytest

from blumfeld.spi.zookeeper import Create, Delete, Set
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
)
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms_topics import TopicNode, decode_topic, encode_topic
from tests.plugins.consensus_zk_compat.controller.cluster import Cluster


def alter_isr(cluster: Cluster, leader: int, *isr: int) -> int:
    """The leader of t-0 asks for another ISR; the error."""
    image = cluster.controller.image
    partition = image.topics["t"].partitions[0]
    wanted = RequestPartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        new_isr=list(isr),
        partition_epoch=partition.partition_epoch,
    )
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=image.brokers[leader].epoch,
        topics=[RequestTopicData(topic_id=image.topics["t"].topic_id, partitions=[wanted])],
    )
    response = cluster.ask(request, AlterPartitionResponse)
    return response.error_code or response.topics[0].partitions[0].error_code


def test_a_leader_whose_answer_was_lost_asks_the_same_again_and_is_told_its_isr() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.create("t", [1, 2, 3])
    image = cluster.controller.image
    topic_id, before = image.topics["t"].topic_id, image.topics["t"].partitions[0]
    wanted = RequestPartitionData(
        partition_index=0,
        leader_epoch=before.leader_epoch,
        new_isr=[1, 2],
        partition_epoch=before.partition_epoch,
    )
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=image.brokers[1].epoch,
        topics=[RequestTopicData(topic_id=topic_id, partitions=[wanted])],
    )
    first = cluster.ask(request, AlterPartitionResponse)
    again = cluster.ask(request, AlterPartitionResponse)
    assert first.topics[0].partitions[0].partition_epoch == before.partition_epoch + 1
    assert again == first, "no push tells a leader of an ISR that it has asked for"
    wanted.new_isr = [1, 3]
    other = cluster.ask(request, AlterPartitionResponse)
    assert other.topics[0].partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_a_topic_is_in_the_tree_before_its_creator_hears_of_it() -> None:
    cluster = Cluster()
    node = cluster.begin()
    assert cluster.create("t", [1, 2], [2, 3]) == ErrorCode.NONE
    assert (cluster.state("t").leader, cluster.state("t", 1).leader) == (1, 2)
    assert node.pushes is not None
    assert [topic.name for change in node.pushes.changes for topic in change.topics_created] == ["t"]
    cluster.check_image()


def test_a_controller_says_how_long_it_loaded_and_how_much() -> None:
    cluster = Cluster(nodes=2)
    first = cluster.begin()
    cluster.create("t", [1, 2], [2, 1])
    cluster.zookeeper.expire(first.session.session_id)
    cluster.advance(1_000)
    events = cluster.controller.log.events
    (said,) = (values for _, event, values in events if event == "controller at work")
    assert said.keys() == {"epoch", "znodes", "load_ms", "take_over_ms"}
    assert said["load_ms"] > 0
    assert said["znodes"] >= 5, "two brokers, a topic and two states"


def test_leaders_move_when_a_broker_goes_and_nothing_leads_on_it() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.create("t", [1, 2], [2, 1])
    cluster.create("alone", [1])
    cluster.stop_broker(1)
    cluster.advance()
    assert [cluster.state("t", n).leader for n in range(2)] == [2, 2]
    assert cluster.state("alone").leader == -1
    cluster.check_image()
    assert cluster.controller.pushes is not None
    assert ("went", 1) in cluster.controller.pushes.calls
    cluster.start_broker(1)
    cluster.advance()
    assert cluster.state("alone").leader == 1
    assert ("came", 1) in cluster.controller.pushes.calls
    cluster.check_image()


def test_a_broker_that_registers_anew_between_two_looks_went_and_came() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.create("t", [1, 2])
    cluster.controller.session.slow_ms = 50.0
    cluster.stop_broker(1)
    cluster.start_broker(1)
    cluster.advance(1_000)
    assert cluster.state("t").leader == 2, "its new process may lack what the old one had"
    assert cluster.controller.pushes is not None
    calls = [call for call in cluster.controller.pushes.calls if call[0] in ("went", "came")]
    assert calls == [("went", 1), ("came", 1)]


def test_the_pushes_begin_with_what_the_take_over_has_changed() -> None:
    cluster = Cluster(nodes=2)
    first = cluster.begin()
    cluster.create("t", [1, 2], [2, 1], [1, 2])
    cluster.zookeeper.expire(first.session.session_id)
    cluster.stop_broker(1)
    cluster.advance(1_000)
    pushes = cluster.controller.pushes
    assert pushes is not None
    steps = [step for change in pushes.changed_before for step in change.partitions]
    elected = [step.after for step in steps if step.after and step.before and step.before.leader == 1]
    assert [(after.partition, after.leader, after.leader_epoch) for after in elected] == [
        (0, 2, 1),
        (2, 2, 1),
    ]
    assert all(
        step.after == pushes.image.topics["t"].partitions[step.after.partition]
        for step in steps
        if step.after
    )


def test_another_candidate_takes_over_when_the_controllers_session_is_over() -> None:
    cluster = Cluster(nodes=2)
    first = cluster.begin()
    cluster.create("t", [1, 2])
    cluster.zookeeper.expire(first.session.session_id)
    cluster.stop_broker(1)
    cluster.advance(1_000)
    second = cluster.controller
    assert second is not first
    assert cluster.state("t").leader == 2
    assert cluster.zookeeper.tree.get(paths.CONTROLLER_EPOCH).data == b"2"
    cluster.check_image()


def test_a_member_of_an_isr_that_started_again_without_a_controller_leaves_the_isr() -> None:
    """Its process is another one, and may have lost its page cache. It comes back when it has everything."""
    cluster = Cluster(nodes=2)
    first = cluster.begin(1, 2, 3, 4)
    for name, replicas in (("follows", [1, 2, 3]), ("leads", [2, 3]), ("alone", [2]), ("left", [4, 2])):
        cluster.create(name, replicas)
    cluster.zookeeper.expire(first.session.session_id)
    cluster.stop_broker(4)
    cluster.stop_broker(2)
    cluster.start_broker(2)
    cluster.advance(1_000)
    assert (cluster.state("left").leader, cluster.state("left").isr) == (2, (2,)), "no other one lives"
    assert (cluster.state("follows").leader, cluster.state("follows").isr) == (1, (1, 3))
    assert (cluster.state("leads").leader, cluster.state("leads").isr) == (3, (3,))
    assert (cluster.state("alone").leader, cluster.state("alone").isr) == (2, (2,))
    assert cluster.state("alone").leader_epoch == 1, "two processes may not write in one leader epoch"
    cluster.check_image()


@pytest.mark.parametrize("delay_ms", [50, 100, 150, 200])
def test_a_broker_that_goes_while_the_take_over_is_written_waits_for_its_end(delay_ms: float) -> None:
    cluster = Cluster(nodes=2)
    first = cluster.begin(2)
    cluster.create("t", [2])
    [second] = [node for node in cluster.nodes if node is not first]
    cluster.stop_broker(2)
    cluster.advance()
    cluster.zookeeper.expire(first.session.session_id)
    cluster.zookeeper.latencies.client_ms = (5.0, 5.0)
    cluster.zookeeper.latencies.commit_ms = (50.0, 50.0)
    cluster.start_broker(2)
    while not second.candidate.elections_won:
        cluster.advance(1)
    cluster.advance(delay_ms)
    cluster.stop_broker(2)
    cluster.advance(2_500)
    assert second.works
    assert cluster.state("t").leader == -1
    cluster.check_image()


def test_a_controller_that_resigns_hands_over() -> None:
    cluster = Cluster(nodes=2)
    first = cluster.begin()
    first.runtime.run(first.candidate.resign())
    cluster.advance(500)
    assert cluster.controller is not first


def test_the_mark_of_the_controllers_own_old_session_is_not_taken_for_an_election_won() -> None:
    cluster = Cluster()
    node = cluster.begin()
    node.candidate.stop()
    old = node.session
    node.new_session()
    node.begin()
    cluster.advance(1_000)
    assert not node.works
    assert node.seen[-1] == 1
    cluster.zookeeper.expire(old.session_id)
    cluster.advance(1_000)
    assert node.works
    assert cluster.zookeeper.tree.get(paths.CONTROLLER_EPOCH).data == b"2"


def test_an_election_whose_answer_is_lost_is_held_again() -> None:
    cluster = Cluster()
    for broker in (1, 2):
        cluster.start_broker(broker)
    node = cluster.nodes[0]
    node.begin()
    node.session.lose_answers(2)  # creation of /controller_epoch, election
    cluster.advance(10_000)
    assert node.works
    stat = cluster.zookeeper.tree.get(paths.CONTROLLER).stat
    assert stat.ephemeral_owner == node.session.session_id


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (paths.CONTROLLER, b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}'),
        (paths.MIGRATION, b'{"version":0,"kraft_controller_epoch":4}'),
        (paths.CONTROLLER, b"not a controller"),
        (paths.CONTROLLER_EPOCH, b"not a number"),
    ],
)
def test_a_tree_that_belongs_to_kraft_or_to_nobody_is_not_controlled(path: str, data: bytes) -> None:
    cluster = Cluster()
    cluster.do(Create(path, data))
    cluster.nodes[0].begin()
    cluster.advance(5_000)
    assert not cluster.nodes[0].works
    [reason] = cluster.nodes[0].refused
    assert path in reason
    assert cluster.zookeeper.tree.get(path).data == data


def test_a_broker_that_cannot_be_read_stops_every_take_over_and_is_named_until_it_is_gone() -> None:
    path = paths.broker(9)
    cluster = Cluster(nodes=2)
    first = cluster.begin()
    (heir,) = (node for node in cluster.nodes if node is not first)
    cluster.do(*(Create(above) for above in paths.above(path) if not cluster.there(above)))
    cluster.do(Create(path, b"not json"))
    cluster.advance(1_000)
    assert first.works
    cluster.zookeeper.expire(first.session.session_id)
    cluster.advance(5_000)
    assert not heir.works
    said = [
        (level, path in str(values["error"]))
        for level, event, values in heir.log.events
        if event == "the tree can't be taken over; tried again"
    ]
    assert len(said) > 1
    assert set(said) == {("error", True)}
    cluster.do(Delete(path))
    cluster.advance(5_000)
    assert heir.works


def test_a_configuration_that_cannot_be_read_stops_no_take_over_and_its_repair_is_taken() -> None:
    cluster = Cluster(nodes=2)
    first = cluster.begin()
    cluster.create("t", [1, 2])
    (heir,) = (node for node in cluster.nodes if node is not first)
    broken = {
        paths.config("topics/t"): b"not json",
        paths.config("brokers/1"): b'{"version":1,"config":{"log.cleaner.threads":2}}',
    }
    unread = {
        paths.config("users/u"): b"not json",
        paths.token("a"): b"not json",
        f"{paths.ACLS}/Topic/t": b"not json",
    }
    for path, data in (broken | unread).items():
        cluster.do(*(Create(above) for above in paths.above(path) if not cluster.there(above)))
        cluster.do(Set(path, data) if cluster.there(path) else Create(path, data))
    cluster.zookeeper.expire(first.session.session_id)
    cluster.advance(2_000)
    assert heir.works
    assert heir.unreadable.keys() == broken.keys()
    assert all(path in error for path, error in heir.unreadable.items())
    assert cluster.create("u", [1]) == ErrorCode.NONE
    cluster.do(Set(paths.config("topics/t"), b'{"version":1,"config":{"retention.ms":"5"}}'))
    heir.candidate.node_changed(paths.config("topics/t"))
    cluster.advance()
    assert heir.image.config(2, "t") == {"retention.ms": "5"}


def test_a_tree_that_contradicts_itself_is_given_up_until_it_is_mended() -> None:
    """A topic whose node was copied by hand has the id of another one."""
    cluster = Cluster()
    node = cluster.begin()
    cluster.create("t", [1, 2])
    cluster.do(Create(paths.topic("u"), cluster.zookeeper.tree.get(paths.topic("t")).data))
    cluster.advance(5_000)
    assert not node.works
    cluster.do(Delete(paths.topic("u")))
    cluster.advance(5_000)
    assert node.works
    assert ("error", "the tree can't be taken over; tried again") in [said[:2] for said in node.log.events]


def test_a_migration_that_has_taken_nothing_over_yet_lets_brokers_elect() -> None:
    cluster = Cluster()
    cluster.do(Create(paths.MIGRATION, b'{"version":0,"kraft_controller_epoch":-1}'))
    cluster.begin()


def test_a_command_to_a_node_that_is_not_the_controller_gets_not_controller() -> None:
    cluster = Cluster(nodes=2)
    cluster.begin()
    [other] = [node for node in cluster.nodes if not node.works]
    reply = other.ask(CreateTopicsRequest())
    assert isinstance(reply.error, BrokerError)
    assert reply.error.code == ErrorCode.NOT_CONTROLLER


def test_a_suspended_controller_decides_nothing_until_it_is_connected() -> None:
    cluster = Cluster()
    node = cluster.begin()
    cluster.create("t", [1, 2])
    node.session.disconnect()
    cluster.advance(1)
    offset = node.image.offset
    reply = node.ask(AlterPartitionRequest(broker_id=1, broker_epoch=-5))
    assert not reply.done
    assert node.image.offset == offset
    cluster.advance(3_000)
    assert isinstance(reply.result(), AlterPartitionResponse)
    assert node.works


def test_a_write_whose_answer_is_lost_ends_the_term_and_the_next_one_reads_the_tree() -> None:
    cluster = Cluster()
    node = cluster.begin()
    cluster.create("t", [1, 2])
    epoch = node.candidate.controller
    node.session.lose_answers()
    request = ControlledShutdownRequest(broker_id=1, broker_epoch=-1)
    reply = node.ask(request)
    cluster.advance(10_000)
    assert isinstance(reply.error, BrokerError)
    assert reply.error.code == ErrorCode.NOT_CONTROLLER
    assert node.works
    assert node.candidate.controller != epoch
    cluster.check_image()


def test_a_controllers_fenced_writes_are_counted_and_said_once() -> None:
    cluster = Cluster()
    node = cluster.begin()
    cluster.create("t", [1, 2])
    cluster.do(Set(paths.CONTROLLER_EPOCH, b"7"))
    reply = node.ask(ControlledShutdownRequest(broker_id=1, broker_epoch=-1))
    cluster.advance(1_000)
    assert isinstance(reply.error, BrokerError)
    assert node.candidate.counts.fenced_writes >= 1
    said = [
        values for _, event, values in node.log.events if event.startswith("a controller's write was fenced")
    ]
    assert said == [{"epoch": 1}]


def test_a_state_that_somebody_else_wrote_ends_the_term_and_is_respected() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.create("t", [1, 2])
    path = paths.state("t", 0)
    data = cluster.zookeeper.tree.get(path).data

    async def write() -> None:
        await cluster.by_hand.set(path, data)

    cluster.runtime.run(write())
    cluster.stop_broker(1)
    cluster.advance(3_000)
    assert cluster.state("t").leader == 2
    assert cluster.version("t") == 2
    cluster.check_image()


def test_a_topic_that_was_created_by_hand_gets_its_states() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.do(Create(paths.topic("old"), b'{"version":1,"partitions":{"0":[1,2],"1":[2,3]}}'))
    cluster.advance(5_000)
    assert (cluster.state("old").leader, cluster.state("old", 1).leader) == (1, 2)
    assert cluster.version("old") == 0
    cluster.check_image()


@pytest.mark.parametrize("is_new", [False, True])
def test_partitions_that_were_added_by_hand_get_their_states(is_new: bool) -> None:
    cluster = Cluster(nodes=2)
    first = cluster.begin()
    cluster.create("t", [1, 2])
    if not is_new:
        cluster.zookeeper.expire(first.session.session_id)
    cluster.advance(3_000)
    path = paths.topic("t")
    node = decode_topic(path, cluster.zookeeper.tree.get(path).data)
    more = TopicNode({**node.partitions, 1: (2, 3)}, node.topic_id)

    async def write() -> None:
        await cluster.by_hand.set(path, encode_topic(more))

    cluster.runtime.run(write())
    cluster.advance(3_000)
    assert cluster.state("t", 1).leader == 2
    cluster.check_image()


def test_the_controllers_own_writes_of_an_assignment_end_no_term() -> None:
    cluster = Cluster()
    node = cluster.begin()
    cluster.create("t", [1, 2])
    cluster.advance(3_000)
    for replicas in ([1, 3], [1, 2, 3], [2, 1]):
        reassign(cluster, *replicas)
        assert alter_isr(cluster, cluster.state("t").leader, 1, 2, 3) in (
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
        )
        cluster.advance(1_500)
    assert node.candidate.elections_won == 1
    node.session.disconnect()
    cluster.advance(5_000)
    assert node.candidate.elections_won == 1


# Deletions


def is_gone(cluster: Cluster, name: str = "t") -> bool:
    left = [paths.topic(name), paths.config(f"topics/{name}"), paths.deletion(name)]
    return not any(map(cluster.there, left))


def test_a_deleted_topic_goes_from_the_brokers_and_then_from_the_tree() -> None:
    cluster = Cluster()
    node = cluster.begin()
    cluster.create("t", [1, 2])
    assert cluster.delete("t") == ErrorCode.NONE
    cluster.advance()
    assert is_gone(cluster)
    assert node.pushes is not None
    assert {call[1] for call in node.pushes.calls if call[0] == "stop" and call[3]} == {1, 2}
    assert cluster.create("t", [1, 2]) == ErrorCode.NONE
    cluster.check_image()


def test_the_name_of_a_topic_that_goes_is_taken_until_its_last_replica_is_deleted() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.create("t", [1, 2])
    cluster.stop_broker(2)
    cluster.advance()
    cluster.delete("t")
    cluster.advance(1_000)
    assert cluster.there(paths.topic("t"))
    assert cluster.there(paths.deletion("t"))
    again = cluster.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), CreateTopicsResponse).topics[
        0
    ]
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert again.error_message == "Topic 't' is marked for deletion."
    assert cluster.delete("t") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.start_broker(2)
    cluster.advance(1_000)
    assert is_gone(cluster)
    assert cluster.create("t", [1]) == ErrorCode.NONE


def test_a_broker_that_could_not_delete_a_replica_is_asked_again() -> None:
    cluster = Cluster()
    node = cluster.begin()
    cluster.create("t", [1, 2])
    cluster.answer = lambda broker, _: ErrorCode.UNKNOWN_SERVER_ERROR if broker == 2 else ErrorCode.NONE
    cluster.delete("t")
    cluster.answer = lambda _, __: ErrorCode.NONE
    cluster.advance(3_000)
    assert not is_gone(cluster)
    cluster.advance(3_000)
    assert is_gone(cluster)
    assert node.pushes is not None
    assert [call[1] for call in node.pushes.calls if call[0] == "stop"] == [1, 2, 2]


def test_the_next_controller_goes_on_with_a_deletion() -> None:
    cluster = Cluster(nodes=2)
    first = cluster.begin()
    cluster.create("t", [1, 2])
    cluster.answer = lambda _, __: None
    cluster.delete("t")
    cluster.zookeeper.expire(first.session.session_id)
    cluster.answer = lambda _, __: ErrorCode.NONE
    cluster.advance(2_000)
    second = cluster.controller
    assert second.pushes is not None
    assert [topic.name for change in second.pushes.changes for topic in change.topics_deleted] == ["t"]
    assert is_gone(cluster)


def test_a_configuration_that_another_node_wrote_goes_with_its_topic() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.do(Create(paths.topic("t"), b'{"version":1,"partitions":{"0":[1,2]}}'))
    cluster.advance(5_000)
    cluster.do(Create(paths.config("topics/t"), b'{"version":1,"config":{}}'))
    cluster.delete("t")
    cluster.advance(500)
    assert is_gone(cluster)


def test_a_mark_that_was_made_by_hand_is_obeyed_and_one_of_no_topic_goes() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.create("t", [1, 2])
    cluster.do(Create(paths.deletion("t")), Create(paths.deletion("nothing")))
    cluster.advance(1_000)
    assert is_gone(cluster)
    assert is_gone(cluster, "nothing")


def test_marks_go_where_topics_may_not_be_deleted() -> None:
    cluster = Cluster(config={"delete.topic.enable": "false"})
    cluster.begin()
    cluster.create("t", [1, 2])
    cluster.do(Create(paths.deletion("t")))
    cluster.advance(1_000)
    assert not cluster.there(paths.deletion("t"))
    assert cluster.there(paths.topic("t"))


# Replicas


def reassign(cluster: Cluster, *replicas: int) -> None:
    partition = ReassignablePartition(partition_index=0, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[partition])])
    response = cluster.ask(request, AlterPartitionReassignmentsResponse)
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE


def test_a_reassignment_begins_a_leader_epoch_and_ends_with_the_leaders_isr() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.create("t", [1, 2])
    reassign(cluster, 1, 3)
    assert cluster.state("t").leader_epoch == 1
    cluster.check_image()
    assert alter_isr(cluster, 1, 1, 2, 3) == ErrorCode.NONE
    cluster.check_image()
    partition = cluster.controller.image.topics["t"].partitions[0]
    assert partition.replicas == (1, 3)
    assert partition.adding_replicas == partition.removing_replicas == ()
    assert cluster.controller.pushes is not None
    [last] = cluster.controller.pushes.changes[-1].partitions
    assert last.before is not None
    assert last.before.replicas == (1, 3, 2), "the pushes stop what is gone from there"


def test_a_reassignment_asked_for_in_the_tree_is_carried_out_and_its_node_goes_at_the_end() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.create("t", [1, 2])
    data = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,3]}]}'
    cluster.do(Create(paths.REASSIGNMENTS, data))
    cluster.advance(2_500)
    assert cluster.there(paths.REASSIGNMENTS)
    assert alter_isr(cluster, 1, 1, 2, 3) == ErrorCode.NONE
    cluster.advance(2_500)
    assert not cluster.there(paths.REASSIGNMENTS)
    assert cluster.controller.image.topics["t"].partitions[0].replicas == (1, 3)


def test_a_preferred_election_asked_for_in_the_tree_is_held() -> None:
    cluster = Cluster(config={"auto.leader.rebalance.enable": "false"})
    cluster.begin()
    cluster.create("t", [1, 2])
    cluster.stop_broker(1)
    cluster.advance()
    cluster.start_broker(1)
    cluster.advance()
    assert alter_isr(cluster, 2, 2, 1) == ErrorCode.NONE
    cluster.do(Create(paths.PREFERRED_ELECTIONS, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'))
    cluster.advance(500)
    assert cluster.state("t").leader == 1
    assert not cluster.there(paths.PREFERRED_ELECTIONS)


def test_a_leader_of_an_earlier_process_changes_no_isr() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.create("t", [1, 2])
    request = AlterPartitionRequest(broker_id=1, broker_epoch=1)
    assert cluster.ask(request, AlterPartitionResponse).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_an_isr_that_a_leader_wrote_by_itself_is_read_and_its_notification_goes() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.create("t", [1, 2])
    path = paths.state("t", 0)
    data = cluster.zookeeper.tree.get(path).data.replace(b"[1,2]", b"[1]")

    async def write() -> None:
        await cluster.by_hand.set(path, data)

    cluster.runtime.run(write())
    note = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    cluster.do(Create(f"{paths.ISR_CHANGES}/isr_change_", note, sequential=True))
    cluster.advance(500)
    assert cluster.controller.image.topics["t"].partitions[0].isr == (1,)
    assert cluster.zookeeper.tree.children(paths.ISR_CHANGES) == ()
    cluster.check_image()
    assert alter_isr(cluster, 1, 1, 2) == ErrorCode.NONE


def test_a_broker_that_lost_a_disk_is_asked_again_and_what_it_lost_is_led_elsewhere() -> None:
    cluster = Cluster()
    node = cluster.begin()
    cluster.create("t", [1, 2])
    event = b'{"version":1,"broker":1,"event":1}'
    cluster.do(Create(f"{paths.LOG_DIR_EVENTS}/log_dir_event_", event, sequential=True))
    cluster.advance(500)
    assert node.pushes is not None
    assert ("resend", 1) in node.pushes.calls
    assert cluster.zookeeper.tree.children(paths.LOG_DIR_EVENTS) == ()
    from blumfeld.spi.storage import TopicPartition

    node.pushes.replica_failed(1, [TopicPartition("t", 0)])
    cluster.advance()
    assert (cluster.state("t").leader, cluster.state("t").isr) == (2, (2,))
    cluster.check_image()


def test_a_broker_shuts_down_in_order_and_is_told_what_it_still_leads() -> None:
    cluster = Cluster()
    node = cluster.begin()
    cluster.create("t", [1, 2], [2, 1])
    cluster.create("alone", [1])
    request = ControlledShutdownRequest(broker_id=1, broker_epoch=node.image.brokers[1].epoch)
    response = cluster.ask(request, ControlledShutdownResponse)
    assert (response.error_code, response.remaining_partitions) == (ErrorCode.NONE, [])
    assert [cluster.state("t", n).leader for n in range(2)] == [2, 2]
    assert cluster.state("alone").leader == 1
    assert node.pushes is not None
    [stop] = [call for call in node.pushes.calls if call[0] == "stop"]
    assert (stop[1], [at.partition for at in stop[2]], stop[3]) == (1, [1], False)
    assert alter_isr(cluster, 2, 2, 1) == ErrorCode.INELIGIBLE_REPLICA
