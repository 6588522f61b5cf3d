"""Every command changes nothing by itself, and its records say everything (docs/design.md, rule 3)."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.metadata.controller import COMMANDS, command_for
from blumfeld.metadata.image.checkpoint import decode_checkpoint, encode_checkpoint
from blumfeld.metadata.image.records import image_of, image_records
from blumfeld.wire.api import message_class
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from blumfeld.wire.messages.alter_partition import (
    BrokerState,
    RequestPartitionData,
)
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from blumfeld.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from blumfeld.wire.messages.metadata import MetadataRequest
from blumfeld.wire.messages.unregister_broker import UnregisterBrokerRequest
from blumfeld.wire.schema import Message
from tests.everyday import examples
from tests.metadata.driven import Driven, isr_request, replayed

BROKERS = st.integers(1, 4)
NAMES = st.sampled_from(["alpha", "beta", "a.b", "a_b"])


def test_a_command_that_no_controller_knows() -> None:
    with pytest.raises(BrokerError) as refused:
        Driven().decide(MetadataRequest())
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


@st.composite
def commands(draw: st.DrawFn) -> Any:
    """A function from a driven controller to some request that may or may not make sense."""
    kind = draw(st.integers(0, 10))
    broker, name = draw(BROKERS), draw(NAMES)
    number, other = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    flag, more = draw(st.booleans()), draw(st.booleans())
    isr = draw(st.lists(BROKERS, min_size=1, max_size=3))

    def epoch(driven: Driven, broker_id: int) -> int:
        found = driven.image.brokers.get(broker_id)
        return -1 if found is None else found.epoch

    def ask(driven: Driven) -> Message:
        image = driven.image
        match kind:
            case 0:
                return driven.registration(broker, incarnation=other)
            case 1 | 2 | 3:
                return BrokerHeartbeatRequest(
                    broker_id=broker,
                    broker_epoch=epoch(driven, broker),
                    current_metadata_offset=len(driven.log),
                    want_fence=flag and kind == 2,
                    want_shut_down=more and kind == 3,
                )
            case 4 | 5:
                topic = CreatableTopic(name=name, num_partitions=number, replication_factor=other)
                return CreateTopicsRequest(topics=[topic], validate_only=flag and more)
            case 6:
                return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
            case 7:
                grown = CreatePartitionsTopic(name=name, count=number + other, assignments=None)
                return CreatePartitionsRequest(topics=[grown])
            case 8:
                edit = AlterableConfig(
                    name="retention.ms", config_operation=int(flag), value=None if flag else str(number)
                )
                resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=[edit])
                return IncrementalAlterConfigsRequest(resources=[resource])
            case 9:
                return AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch(driven, broker))
            case _:
                found = image.topics.get(name)
                if found is None or more:
                    return UnregisterBrokerRequest(broker_id=broker)
                partition = found.partitions[0]
                wanted = RequestPartitionData(
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr_with_epochs=[BrokerState(broker_id=b) for b in isr],
                )
                leader = partition.leader
                return isr_request(leader, epoch(driven, leader), found.topic_id, wanted)

    return ask


def check(driven: Driven, epochs: dict[tuple[bytes, int], tuple[int, int]]) -> None:
    """What must hold after every step."""
    for name, topic in driven.image.topics.items():
        assert driven.image.topic_names[topic.topic_id] == name
        assert list(topic.partitions) == list(range(len(topic.partitions)))
        for number, p in topic.partitions.items():
            assert set(p.isr) <= set(p.replicas)
            assert len(set(p.isr)) == len(p.isr)
            assert not set(p.isr) & set(p.eligible_leader_replicas)
            assert p.isr or p.eligible_leader_replicas or driven.image.elr_enabled
            if p.leader >= 0:
                assert p.leader in p.isr
                assert driven.image.is_active(p.leader), "a fenced broker leads"
            key = topic.topic_id, number
            before = epochs.get(key, (-1, -1))
            assert p.leader_epoch >= before[0]
            assert p.partition_epoch >= before[1]
            epochs[key] = p.leader_epoch, p.partition_epoch


@pytest.mark.parametrize("levels", [{}, {"eligible.leader.replicas.version": 1}], ids=["isr", "elr"])
@settings(max_examples=examples(60), deadline=None)
@given(steps=st.lists(commands(), min_size=1, max_size=30))
def test_any_sequence_of_commands_keeps_the_invariants(levels: dict[str, int], steps: list[Any]) -> None:
    """And after it: replaying the log, or a snapshot, gives the same image."""
    driven = Driven(levels=levels)
    driven.join(1, 2)
    driven.create("alpha", 2, 2)
    epochs: dict[tuple[bytes, int], tuple[int, int]] = {}
    for ask in steps:
        driven.now_ms += 4_000
        request = ask(driven)
        before = driven.image.copy()
        decision = driven.decide(request)
        assert driven.image == before, "a command alone changes nothing"
        driven.place(decision.records)
        driven.controller.answered(request, decision.response, driven.now_ms)
        driven.expire()
        check(driven, epochs)
    assert replayed(driven.log) == driven.image
    data = encode_checkpoint(image_records(driven.image), epoch=1, timestamp_ms=1)
    assert image_of("", decode_checkpoint(data, "x").records) == driven.image


def test_the_same_commands_make_the_same_log() -> None:
    """Nothing in the controller depends on a hash or on chance."""

    def logged() -> list[Message]:
        driven = Driven()
        driven.join(3, 1, 2)
        driven.create("alpha", 5, 2)
        driven.now_ms += 10_000
        driven.expire()
        return driven.log

    assert logged() == logged()


def test_every_command_of_the_contract_is_there() -> None:
    """The commands that spi.consensus names; each request class and each function exists."""
    text = (Path(__file__).parents[2] / "core/blumfeld/spi/consensus.py").read_text()
    named = ast.get_docstring(ast.parse(text)) or ""
    for request in COMMANDS:
        name = request.removesuffix("Request")
        assert command_for(request) is not None
        assert message_class(request).meta.kind == "request"
        if name not in ("UnregisterBroker", "ControllerRegistration"):
            assert name in named, name
