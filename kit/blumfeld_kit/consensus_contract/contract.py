"""The promises of ``blumfeld.spi.consensus`` as tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest

from blumfeld.spi.cluster import TOPIC_RESOURCE, ClusterImage, ImageDelta, TopicImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ReplicaDriver
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from blumfeld.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from blumfeld.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from blumfeld.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from blumfeld_kit.consensus_contract.kit import CLIENT, LOOK_S, Ability, ConsensusKit, Nodes

NAMES = ("one", "two", "three", "four")
SOON_S = 0.5


class Follower:
    """A listener that follows the image by its deltas alone."""

    def __init__(self, waits: Callable[[], Completion[None] | None] = lambda: None) -> None:
        self.firsts = 0
        self.calls = 0
        self.topics: dict[str, TopicImage] = {}
        self._waits = waits
        self.held: Completion[None] | None = None

    def __call__(self, image: ClusterImage, delta: ImageDelta) -> Completion[None] | None:
        assert self.held is None or self.held.done, "a step came while the one before was being applied"
        self.calls += 1
        self.firsts += delta.first
        assert delta.first == (self.calls == 1), "the first call has everything, and no later one says so"
        for gone in delta.topics_deleted:
            del self.topics[gone.name]
        for topic in delta.topics_created:
            self.topics[topic.name] = topic
        for topic, partition in delta.partitions_changed:
            assert topic.partitions[partition.partition] == partition, (
                "a delta shows the partition as it is now"
            )
            self.topics[topic.name] = topic
        assert (list(self.topics) and self.topics == dict(image.topics)) or not image.topics, (
            "the image handed with a delta is the one before with the delta"
        )
        self.held = self._waits()
        return self.held


class ConsensusContract(ConsensusKit):
    """Subclass it. See :mod:`blumfeld_kit.consensus_contract`."""

    # The controller

    def test_one_node_is_the_controller_and_every_node_names_it(self, opened: Nodes) -> None:
        """``controller`` has the same node and epoch at every node, and the node that it names says so itself."""

        async def story() -> None:
            controller = await opened.begun()
            named = {opened.metadata(one).controller for one in opened.ids}
            assert len(named) == 1
            assert {at.node_id for at in named if at is not None} == {controller}

        opened.run(story())

    def test_a_dead_controller_has_a_successor_with_a_higher_epoch(self, opened: Nodes) -> None:
        """The epoch fences earlier controllers: each new controller has a higher one."""

        async def story() -> None:
            first = await opened.begun()
            epoch = _epoch(opened, first)
            opened.machine(first).crash(power_cut=False)
            assert _epoch(opened, await opened.successor(first)) > epoch

        opened.run(story())

    def test_what_was_answered_outlives_the_controller(self, opened: Nodes) -> None:
        """An answered command is committed: the controller may die with the answer, and the next one has the change."""

        async def story() -> None:
            first = await opened.begun()
            for name in NAMES:
                assert await opened.create(first, name) is ErrorCode.NONE
            opened.machine(first).crash(power_cut=True)
            await opened.successor(first)
            await opened.until(
                lambda: all(_all_show(opened, name) for name in NAMES),
                "the topics at every node that is left",
            )
            for name in NAMES:
                code = await opened.create(opened.controller, name, replicas=2)
                assert code is ErrorCode.TOPIC_ALREADY_EXISTS

        opened.run(story())

    def test_a_controller_that_resigns_decides_no_more_and_another_one_does(self, opened: Nodes) -> None:
        """After ``resign`` this node decides nothing, and another one takes over."""

        async def story() -> None:
            first = await opened.begun()
            epoch = _epoch(opened, first)
            await opened.machine(first).run(opened.metadata(first).resign())
            second = await opened.successor(first)
            assert _epoch(opened, second) > epoch
            assert await opened.create(second, "behind") is ErrorCode.NONE

        opened.run(story())

    def test_a_controller_that_was_paused_decides_nothing_that_its_successor_does_not_know(
        self, opened: Nodes
    ) -> None:
        """A controller that wakes behind its successor can't change anything: its epoch is over."""

        async def story() -> None:
            first = await opened.begun()
            machine = opened.machine(first)
            machine.pause()
            assert await opened.create(await opened.successor(first), "new", replicas=2) is ErrorCode.NONE
            machine.resume()
            code = await opened.code_of(opened.create(first, "new", replicas=2))
            assert code in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
            await opened.begun()
            await opened.until(lambda: None not in _ids(opened, "new"), "the topic at every node")
            assert len(_ids(opened, "new")) == 1, "two controllers have created one topic"

        opened.run(story())

    # Commands

    def test_an_answered_command_is_shown_by_the_image_of_its_node(self, opened: Nodes) -> None:
        """``submit`` completes when the image shows what the response tells, so that the client can read it there."""

        async def story() -> None:
            controller = await opened.begun()
            for name in NAMES:
                assert await opened.create(controller, name, partitions=3) is ErrorCode.NONE
                assert set(opened.image(controller).topics[name].partitions) == {0, 1, 2}

        opened.run(story())

    def test_every_node_comes_to_show_the_same_topics(self, opened: Nodes) -> None:
        """The image is the committed metadata: names, ids, replicas and leaders are the same everywhere."""

        async def story() -> None:
            controller = await opened.begun()
            for name in NAMES:
                assert await opened.create(controller, name, partitions=2) is ErrorCode.NONE
            await opened.until(lambda: len({_shown(opened, one) for one in opened.ids}) == 1, "equal images")
            assert len(_shown(opened, controller)) == 2 * len(NAMES)

        opened.run(story())

    def test_an_error_of_one_item_is_in_the_response(self, opened: Nodes) -> None:
        """A command fails as a whole only when nobody can decide on it."""

        async def story() -> None:
            controller = await opened.begun()
            assert await opened.create(controller, "one") is ErrorCode.NONE
            assert await opened.create(controller, "one") is ErrorCode.TOPIC_ALREADY_EXISTS
            assert await opened.create(controller, "two", replicas=99) is ErrorCode.INVALID_REPLICATION_FACTOR

        opened.run(story())

    def test_what_is_no_command_is_refused_with_unsupported_version(self, opened: Nodes) -> None:
        """UNSUPPORTED_VERSION: no controller of this build knows the command."""

        async def story() -> None:
            controller = await opened.begun()
            request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
            code = await opened.code_of(opened.submit(controller, request, HeartbeatRequest))
            assert code is ErrorCode.UNSUPPORTED_VERSION

        opened.run(story())

    def test_a_command_without_a_decision_fails_in_its_time(self, opened: Nodes) -> None:
        """NOT_CONTROLLER or REQUEST_TIMED_OUT, no later than the command's own time: a caller never waits for ever."""

        async def story() -> None:
            controller = await opened.begun()
            left = next(one for one in opened.ids if one != controller)
            self.take_away(opened, left)
            await asyncio.sleep(10.0)
            began_s = opened.loop.time()
            ask = AllocateProducerIdsRequest(broker_id=left, broker_epoch=opened.broker_epoch(left))
            asked = opened.submit(left, ask, AllocateProducerIdsResponse, timeout_ms=3_000)
            code = await opened.code_of(asked)
            assert code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
            assert opened.loop.time() - began_s < 3.5

        opened.run(story())

    def test_a_clients_command_at_another_node_is_forwarded_or_refused_as_the_constant_says(
        self, opened: Nodes
    ) -> None:
        """``forwards`` is a constant: with it any node takes a client's command, without it only the controller."""

        async def story() -> None:
            controller = await opened.begun()
            other = next(one for one in opened.ids if one != controller)
            code = await opened.code_of(opened.create(other, "one"))
            forwards = opened.metadata(other).forwards
            assert code is (ErrorCode.NONE if forwards else ErrorCode.NOT_CONTROLLER)
            assert ("one" in opened.image(controller).topics) is forwards

        opened.run(story())

    def test_a_nodes_own_command_reaches_the_controller_wherever_it_is(self, opened: Nodes) -> None:
        """Without ``on_behalf`` a command is the node's own, and is decided also where clients' aren't
        forwarded. Blocks of producer ids never overlap, either.
        """

        async def story() -> None:
            first = await opened.begun()
            blocks = []

            async def allocate(node_id: int) -> None:
                ask = AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=opened.broker_epoch(node_id))
                answer = await opened.submit(node_id, ask, AllocateProducerIdsResponse)
                assert not answer.error_code
                blocks.append(
                    range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
                )

            for one in opened.ids:
                await allocate(one)
            opened.machine(first).crash(power_cut=False)
            await opened.successor(first)
            for one in opened.ids:
                await allocate(one)
            blocks.sort(key=lambda block: block.start)
            for before, after in pairwise(blocks):
                assert before.stop <= after.start, f"{before} and {after} overlap"

        opened.run(story())

    # The image

    def test_a_listener_hears_of_each_step_once_and_in_order(self, opened: Nodes) -> None:
        """The first call has everything; each later delta leads from one image to the next."""

        async def story() -> None:
            controller = await opened.begun()
            assert await opened.create(controller, "before") is ErrorCode.NONE
            await opened.until(lambda: _all_show(opened, "before"), "the first topic")
            followers = {one: Follower() for one in opened.ids}
            for one, follower in followers.items():
                opened.metadata(one).subscribe(follower)
            await asyncio.sleep(LOOK_S)
            assert all(follower.firsts == 1 for follower in followers.values())
            for name in NAMES:
                assert await opened.create(controller, name, partitions=2) is ErrorCode.NONE
            await _delete(opened, controller, NAMES[0])
            await _grow(opened, controller, NAMES[1], 4)
            await opened.until(lambda: len({_shown(opened, one) for one in opened.ids}) == 1, "equal images")
            for one, follower in followers.items():
                assert follower.topics == dict(opened.image(one).topics)
                assert follower.calls > 1

        opened.run(story())

    def test_a_listener_that_takes_its_time_holds_up_the_next_step(self, opened: Nodes) -> None:
        """The next step, and the answers that wait for this one, come when the listener is done."""

        async def story() -> None:
            controller = await opened.begun()
            assert await opened.create(controller, "before") is ErrorCode.NONE
            held: list[Completion[None]] = []

            def hold() -> Completion[None] | None:
                held.append(Completion())
                return held[-1]

            follower = Follower(hold)
            opened.metadata(controller).subscribe(follower)
            creating = asyncio.ensure_future(opened.create(controller, "slow"))
            await asyncio.sleep(SOON_S)
            while not creating.done():
                waiting = [done for done in held if not done.done]
                assert len(waiting) <= 1, "two steps at one time"
                for done in waiting:
                    calls = follower.calls
                    await asyncio.sleep(SOON_S)
                    assert not creating.done(), "the answer came before its step was applied"
                    assert follower.calls == calls
                    opened.loop.call_soon(done.complete, None)
                await asyncio.sleep(LOOK_S)
            assert await creating is ErrorCode.NONE
            assert follower.calls > 1

            def no_more() -> None:
                for done in held:
                    if not done.done:
                        done.complete(None)

            follower._waits = lambda: None
            no_more()
            await asyncio.sleep(LOOK_S)

        opened.run(story())

    def test_a_node_that_starts_again_shows_all_that_was_committed_before(self, opened: Nodes) -> None:
        """``caught_up`` ends before the listeners open: no client sees an older cluster than the one that the node
        joined."""

        async def story() -> None:
            controller = await opened.begun()
            other = next(one for one in opened.ids if one != controller)
            await opened.machine(other).stop()
            for name in NAMES:
                assert await opened.create(controller, name, replicas=2) is ErrorCode.NONE
            assert await opened.machine(other).start()
            assert set(NAMES) <= set(opened.image(other).topics)

        opened.run(story())

    def test_a_name_that_is_used_again_has_another_id(self, opened: Nodes) -> None:
        """Each creation has an id of its own: remains of the topic before are not taken for the new one."""

        async def story() -> None:
            controller = await opened.begun()
            assert await opened.create(controller, "again") is ErrorCode.NONE
            first = opened.image(controller).topics["again"].topic_id
            await _delete(opened, controller, "again")
            code = ErrorCode.TOPIC_ALREADY_EXISTS
            end_s = opened.loop.time() + 30.0
            while code is ErrorCode.TOPIC_ALREADY_EXISTS and opened.loop.time() < end_s:
                code = await opened.create(controller, "again")
                await asyncio.sleep(LOOK_S)
            assert code is ErrorCode.NONE
            assert opened.image(controller).topics["again"].topic_id != first
            await opened.until(lambda: len(_ids(opened, "again")) == 1, "one id of the new topic")

        opened.run(story())

    def test_a_configuration_is_shown_by_every_node(self, opened: Nodes) -> None:
        """``config`` has the dynamic overrides of a resource, and ``configured`` names it."""

        async def story() -> None:
            controller = await opened.begun()
            assert await opened.create(controller, "one") is ErrorCode.NONE
            alteration = AlterableConfig(name="retention.ms", config_operation=0, value="12345")
            resource = AlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name="one", configs=[alteration]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = await opened.submit(
                controller, request, IncrementalAlterConfigsResponse, on_behalf=CLIENT
            )
            assert not answer.responses[0].error_code
            await opened.until(
                lambda: all(
                    opened.image(one).config(TOPIC_RESOURCE, "one").get("retention.ms") == "12345"
                    and "one" in opened.image(one).configured(TOPIC_RESOURCE)
                    for one in opened.ids
                ),
                "the configuration everywhere",
            )

        opened.run(story())

    def test_a_section_that_no_plugin_brings_is_a_key_error(self, opened: Nodes) -> None:
        """``section`` tells a plug-in that isn't there from a section that is empty."""

        async def story() -> None:
            controller = await opened.begun()
            with pytest.raises(KeyError):
                opened.image(controller).section("nobody-brings-this")

        opened.run(story())

    # Brokers and replicas

    def test_a_broker_that_dies_leads_nothing_and_its_next_process_has_a_higher_epoch(
        self, opened: Nodes
    ) -> None:
        """A broker's epoch is of one process. A dead broker's partitions are led by others, in higher leader epochs."""

        async def story() -> None:
            controller = await opened.begun()
            assert await opened.create(controller, "one", partitions=6) is ErrorCode.NONE
            other = next(one for one in opened.ids if one != controller)
            await opened.until(lambda: _in_sync(opened, controller, "one", 3), "all replicas in sync")
            before, epoch = _partitions(opened, controller, "one"), opened.broker_epoch(other)
            opened.machine(other).crash(power_cut=False)
            await opened.until(
                lambda: all(
                    p.leader not in (-1, other) for p in _partitions(opened, controller, "one").values()
                ),
                "leaders that live",
            )
            for number, partition in _partitions(opened, controller, "one").items():
                assert other not in partition.isr
                if before[number].leader == other:
                    assert partition.leader_epoch > before[number].leader_epoch
            assert await opened.machine(other).start()
            assert opened.broker_epoch(other) > epoch
            await opened.until(lambda: _in_sync(opened, controller, "one", 3), "all replicas in sync again")

        opened.run(story())

    def test_a_node_that_stops_in_order_hands_its_leaderships_over_first(self, opened: Nodes) -> None:
        """A heartbeat that wants to shut down is answered when other replicas lead."""

        async def story() -> None:
            controller = await opened.begun()
            assert await opened.create(controller, "one", partitions=6) is ErrorCode.NONE
            other = next(one for one in opened.ids if one != controller)
            await opened.until(lambda: _in_sync(opened, controller, "one", 3), "all replicas in sync")
            await opened.machine(other).stop()
            leaders = {partition.leader for partition in _partitions(opened, controller, "one").values()}
            assert other not in leaders
            assert -1 not in leaders

        opened.run(story())

    def test_replicas_are_driven_as_the_constant_says(self, opened: Nodes) -> None:
        """Each replica leads or follows as the image comes to say, whether the image drives it or pushes do."""

        async def story() -> None:
            controller = await opened.begun()
            assert opened.metadata(controller).replica_driver in ReplicaDriver
            assert await opened.create(controller, "one", partitions=3) is ErrorCode.NONE

            def leads(node_id: int, number: int) -> bool:
                node: Any = opened.machine(node_id).node
                replica = node.broker.partitions.find("one", number)
                return replica is not None and replica.leader is not None

            await opened.until(
                lambda: all(
                    leads(node_id, number) is (partition.leader == node_id)
                    for number, partition in _partitions(opened, controller, "one").items()
                    for node_id in opened.ids
                ),
                "replicas that lead as the image says",
            )

        opened.run(story())

    # What a consensus may lack

    def test_any_node_takes_a_clients_command(self, opened: Nodes) -> None:
        """Forwarding (KIP-590): a client need not know the controller."""

        async def story() -> None:
            await opened.begun()
            for one, name in zip(opened.ids, NAMES, strict=False):
                assert await opened.create(one, name) is ErrorCode.NONE
                assert name in opened.image(one).topics

        self.try_ability(Ability.FORWARDING, lambda: opened.run(story()))

    def test_the_quorum_names_its_leader(self, opened: Nodes) -> None:
        """DescribeQuorum: the leader is the controller, and a voter."""

        async def story() -> None:
            controller = await opened.begun()
            quorum = opened.metadata(controller).quorum()
            assert quorum is not None
            assert quorum.leader_id == controller
            assert controller in quorum.voters

        self.try_ability(Ability.QUORUM, lambda: opened.run(story()))

    def test_the_applied_offset_grows_with_the_image(self, opened: Nodes) -> None:
        """A broker reports it with its heartbeats, and is unfenced when it has caught up."""

        async def story() -> None:
            controller = await opened.begun()
            before = opened.metadata(controller).applied_offset
            assert await opened.create(controller, "one") is ErrorCode.NONE
            assert opened.metadata(controller).applied_offset > before >= 0

        self.try_ability(Ability.APPLIED_OFFSET, lambda: opened.run(story()))

    def test_a_dead_broker_stays_registered_and_fenced(self, opened: Nodes) -> None:
        """Its replicas count, and its epoch is known, while it is away."""

        async def story() -> None:
            controller = await opened.begun()
            other = next(one for one in opened.ids if one != controller)
            opened.machine(other).crash(power_cut=False)
            await asyncio.sleep(15.0)
            assert opened.image(controller).brokers[other].fenced

        self.try_ability(Ability.FENCED_BROKERS, lambda: opened.run(story()))

    def test_feature_levels_are_finalized(self, opened: Nodes) -> None:
        """``features`` has the levels, and ``features_epoch`` when they were set."""

        async def story() -> None:
            controller = await opened.begun()
            image = opened.image(controller)
            assert image.features
            assert image.features_epoch >= 0

        self.try_ability(Ability.FEATURES, lambda: opened.run(story()))

    def test_the_directory_of_a_replica_is_kept(self, opened: Nodes) -> None:
        """AssignReplicasToDirs (KIP-858) is a command."""

        async def story() -> None:
            controller = await opened.begun()
            epoch = opened.broker_epoch(controller)
            request = AssignReplicasToDirsRequest(broker_id=controller, broker_epoch=epoch, directories=[])
            answer = await opened.submit(controller, request, AssignReplicasToDirsResponse)
            assert not answer.error_code

        self.try_ability(Ability.DIRECTORIES, lambda: opened.run(story()))

    def test_every_image_has_the_epochs_of_all_brokers(self, opened: Nodes) -> None:
        """A leader checks its followers' epochs itself (KIP-903)."""

        async def story() -> None:
            await opened.begun()
            for one in opened.ids:
                epochs = {b.broker_id: b.epoch for b in opened.image(one).brokers.values()}
                assert epochs == {other: opened.broker_epoch(other) for other in opened.ids}

        self.try_ability(Ability.BROKER_EPOCHS, lambda: opened.run(story()))


def _epoch(nodes: Nodes, node_id: int) -> int:
    controller = nodes.metadata(node_id).controller
    assert controller is not None
    return controller.epoch


def _ids(nodes: Nodes, name: str) -> set[bytes | None]:
    """The ids that the nodes show of a topic; ``None`` is that of a node that doesn't show it."""
    shown = [nodes.image(one).topics.get(name) for one in nodes.ids]
    return {None if topic is None else topic.topic_id for topic in shown}


def _all_show(nodes: Nodes, name: str) -> bool:
    return all(name in nodes.image(one).topics for one in nodes.ids)


def _partitions(nodes: Nodes, node_id: int, topic: str) -> Mapping[int, Any]:
    return nodes.image(node_id).topics[topic].partitions


def _in_sync(nodes: Nodes, node_id: int, topic: str, members: int) -> bool:
    return all(len(partition.isr) == members for partition in _partitions(nodes, node_id, topic).values())


def _shown(nodes: Nodes, node_id: int) -> frozenset[Any]:
    """What a node shows of each partition."""
    return frozenset(
        (topic.name, topic.topic_id, number, p.replicas, p.isr, p.leader, p.leader_epoch, p.partition_epoch)
        for topic in nodes.image(node_id).topics.values()
        for number, p in topic.partitions.items()
    )


async def _delete(nodes: Nodes, node_id: int, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    answer = await nodes.submit(node_id, request, DeleteTopicsResponse, on_behalf=CLIENT)
    assert not answer.responses[0].error_code
    await nodes.until(lambda: not any(name in nodes.image(one).topics for one in nodes.ids), f"{name} to go")


async def _grow(nodes: Nodes, node_id: int, name: str, count: int) -> None:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
    answer = await nodes.submit(node_id, request, CreatePartitionsResponse, on_behalf=CLIENT)
    assert not answer.results[0].error_code
