"""The scripts of committed offsets against Apache Kafka 4.3.1: same requests, same answers. Slow: starts Java."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.wire.api import API_BY_KEY, response_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.headers import put_request_header, response_body_offset
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from blumfeld.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from blumfeld.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from blumfeld.wire.schema import Message
from tests.coordinator.fakes import FakeLog
from tests.coordinator.groups.offsets_trace import BothTypesScript, OffsetsScript, script_of
from tests.kafka_peer import kafka_on, peer_script
from tests.trace_files import text_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPTS = (
    "commit",
    "consumer_groups",
    "consumer_transactions",
    "emptied",
    "listing",
    "odd",
    "pending_deletion",
    "precedence",
    "transactions",
    "transactions_errors",
    "transactions_members",
)
NOT_KAFKAS = ("config", "fail", "reload", "untopic", "wait")
"""Commands that it can't be told, or that take as long as they say: a script ends there."""
SETTINGS = (
    "offsets.topic.num.partitions=1",
    "transaction.partition.verification.enable=false",
)
"""So that offsets may be committed in a transaction that no coordinator knows of, and markers find them."""
THEIRS = {"hb", "join", "leave"}
"""Answers that others look at, full of ids."""
READY_S_MAX = 60
PRODUCERS_A_SCRIPT = 1_000


class Live:
    """``Groups`` of a broker that runs somewhere. Groups and producers of one script are its own."""

    def __init__(self, address: str, number: int = 0) -> None:
        host, port = address.rsplit(":", 1)
        self.address = (host, int(port))
        self.prefix = f"script-{number}-{time.monotonic_ns()}-"
        self.number = number
        self.log = FakeLog()
        self._epochs: dict[int, int] = {}

    def send(self, request: Message, version: int | None = None, **options: Any) -> Completion[Any]:
        """As ``Groups.send``; no script has two members that wait for each other."""
        return Completion.of(self.ask(request, version))

    def ask(self, request: Any, version: int | None = None, **options: Any) -> Any:
        key = request.meta.key
        version = API_BY_KEY[key].max_version if version is None else version
        if isinstance(request, TxnOffsetCommitRequest):
            version = min(version, 4)  # from v5 on the transaction's coordinator has to know it
        self._make_own(request)
        frame = put_request_header(key, version, 1, "a") + encode(request, version)
        with socket.create_connection(self.address, timeout=10) as connection:
            connection.sendall(len(frame).to_bytes(4) + frame)
            with connection.makefile("rb") as answer:
                body = answer.read(int.from_bytes(answer.read(4)))
        _, start = response_body_offset(memoryview(body), key, version)
        response = decode(response_class(key), body, version, start)
        if hasattr(response, "groups"):
            own = [g for g in response.groups if not g.group_id or g.group_id.startswith(self.prefix)]
            response.groups = own
        return response

    def _make_own(self, request: Any) -> None:
        if hasattr(request, "group_id"):
            request.group_id = self._own(request.group_id)
        for name in ("groups", "groups_names"):
            if hasattr(request, name):
                setattr(request, name, [self._own(group) for group in getattr(request, name)])
        if getattr(request, "producer_id", -1) >= 0:
            request.producer_id += self.number * PRODUCERS_A_SCRIPT
            self._epochs[request.producer_id] = request.producer_epoch

    def _own(self, group: Any) -> Any:
        if isinstance(group, str):
            return self.prefix + group if group else group
        group.group_id = self._own(group.group_id)
        return group

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        producer_id += self.number * PRODUCERS_A_SCRIPT
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=self._epochs[producer_id],
            transaction_result=committed,
            topics=[WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[0])],
        )
        response = self.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        assert response.markers[0].topics[0].partitions[0].error_code == 0

    def wait_for_coordinator(self) -> None:
        """Until the groups' shard is there: a member is unknown then, and not before."""
        end = time.monotonic() + READY_S_MAX
        while (
            self.ask(HeartbeatRequest(group_id="g", member_id="m"), 4).error_code
            != ErrorCode.UNKNOWN_MEMBER_ID
        ):
            assert time.monotonic() < end, "the coordinator does not come"
            time.sleep(0.2)


class LiveScript(OffsetsScript):
    """A script against a live broker."""

    def __init__(self, live: Live) -> None:
        super().__init__()
        self._groups: Any = live
        names = [MetadataRequestTopic(name=name) for name in ("t", "u")]
        topics = live.ask(MetadataRequest(topics=names), 12).topics
        self._topic_ids: dict[str, bytes] = {topic.name: topic.topic_id for topic in topics}

    def topic_ids(self) -> dict[str, bytes]:
        return self._topic_ids

    def topic_id(self, name: str) -> bytes:
        return self._topic_ids.get(name, b"nowhere to be...")

    def run(self, line: str) -> list[str]:
        """Without what makes groups the script's own."""
        return [said.replace(self._groups.prefix, "") for said in super().run(line)]


class LiveBothTypesScript(LiveScript, BothTypesScript):
    """The same with KIP-848 groups."""


def answers(script: OffsetsScript, text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """(command, words of each answer in alphabetical order) up to the first command that Kafka can't be told."""
    for line in text.splitlines():
        if line.startswith("> "):
            if line.split()[1] in NOT_KAFKAS:
                return
            said = [answer for answer in script.run(line[2:]) if not answer.startswith("log ")]
            yield line, [sorted(answer.split()) for answer in said if not THEIRS & set(answer.split()[1:2])]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where Kafka listens, with the topics that scripts commit to, and the groups' topic."""
    with kafka_on(peer_script(), tmp_path_factory.mktemp("kafka"), *SETTINGS) as address:
        live = Live(address)
        topics = [
            CreatableTopic(name=n, num_partitions=c, replication_factor=1) for n, c in (("t", 4), ("u", 1))
        ]
        live.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
        live.ask(FindCoordinatorRequest(key="warm-up"), 3)
        live.wait_for_coordinator()
        yield address


@pytest.mark.parametrize("name", SCRIPTS)
def test_kafka_answers_a_script_as_we_do(name: str, kafka: str) -> None:
    text = text_of(f"offsets_{name}")
    make = script_of(f"offsets_{name}")
    live = LiveScript if make is OffsetsScript else LiveBothTypesScript
    ours = list(answers(make(), text))
    theirs = list(answers(live(Live(kafka, 1 + SCRIPTS.index(name))), text))
    assert [pair for pair in zip(theirs, ours, strict=True) if pair[0] != pair[1]] == []
