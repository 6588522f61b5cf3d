"""DescribeLogDirs and AlterReplicaLogDirs: what lies where, and moves between directories (KIP-113)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from blumfeld.spi.storage import LogDirNotFoundError, LogNotOpenError, TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from blumfeld.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.broker.harness import BrokerHarness, Permissions, failing
from tests.broker.plain_storage import PlainStorage

A, B = b"a" * 16, b"b" * 16
LONG = "t" * 220


@pytest.fixture
def broker() -> BrokerHarness:
    """Topic ``a`` in the first directory, ``b`` with two partitions in the second."""
    harness = BrokerHarness(storage=PlainStorage(("/m/a", "/m/b")))
    for name, directory, partitions in (("a", A, 1), ("b", B, 2)):
        harness.metadata.new_directory = directory
        harness.create_topic(name, partitions)
    return harness


Shown = dict[str, list[tuple[str, int, int, int, bool]]]


def described(broker: BrokerHarness, request: DescribeLogDirsRequest | None = None) -> Shown:
    """Path → (topic, partition, bytes, lag, future) of each replica."""
    answer = broker.ask(request or DescribeLogDirsRequest(topics=None), 4)
    assert answer.error_code == 0
    return {
        result.log_dir: [
            (topic.name, p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
            for topic in result.topics
            for p in topic.partitions
        ]
        for result in answer.results
    }


def altered(broker: BrokerHarness, dirs: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, list[int]]:
    """Ask that these replicas move to these paths; the errors, by topic."""
    wanted = [
        AlterReplicaLogDir(
            path=path, topics=[AlterReplicaLogDirTopic(name=n, partitions=[p]) for n, p in replicas]
        )
        for path, replicas in dirs.items()
    ]
    answer = broker.ask(AlterReplicaLogDirsRequest(dirs=wanted), 2)
    return {r.topic_name: [p.error_code for p in r.partitions] for r in answer.results}


# DescribeLogDirs


def test_each_directory_shows_what_lies_in_it(broker: BrokerHarness) -> None:
    broker.produced(topic="b")
    size = broker.log_of("b").size_bytes()
    assert described(broker) == {
        "/m/a": [("a", 0, 0, 0, False)],
        "/m/b": [("b", 0, size, 0, False), ("b", 1, 0, 0, False)],
    }
    results = broker.ask(DescribeLogDirsRequest(topics=None), 5).results
    assert [(r.total_bytes, r.usable_bytes, r.is_cordoned, r.error_code) for r in results] == [
        (1000, 400, False, 0)
    ] * 2


def test_only_what_was_asked_for_is_shown(broker: BrokerHarness) -> None:
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="b", partitions=[1])])
    assert described(broker, request) == {"/m/a": [], "/m/b": [("b", 1, 0, 0, False)]}


def test_a_directory_that_is_offline_has_an_error_and_nothing_in_it(broker: BrokerHarness) -> None:
    broker.storage.fail_directory("/m/b")
    first, second = broker.ask(DescribeLogDirsRequest(topics=None), 5).results
    assert (first.error_code, len(first.topics)) == (0, 1)
    assert (second.log_dir, second.error_code) == ("/m/b", ErrorCode.KAFKA_STORAGE_ERROR)
    assert (second.topics, second.total_bytes, second.usable_bytes) == ([], -1, -1)


def test_a_replica_whose_directory_fails_in_this_moment_is_left_out(
    broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage refuses the log before the partition knows: no error for the replicas in other directories."""
    monkeypatch.setattr(broker.log_of("b"), "size_bytes", failing(OSError(5, "log directory offline")))
    assert described(broker) == {"/m/a": [("a", 0, 0, 0, False)], "/m/b": [("b", 1, 0, 0, False)]}


def test_a_replica_that_moves_is_shown_in_both_directories(broker: BrokerHarness) -> None:
    for _ in range(3):
        broker.produced(topic="b")
    assert altered(broker, {"/m/a": [("b", 0)]}) == {"b": [0]}
    shown = described(broker)
    assert shown["/m/a"] == [("a", 0, 0, 0, False), ("b", 0, 0, 3, True)]
    assert ("b", 0, broker.log_of("b").size_bytes(), 0, False) in shown["/m/b"]
    broker.storage.finish_move(TopicPartition("b", 0))
    shown = described(broker)
    assert [(name, future) for name, *_, future in shown["/m/a"]] == [("a", False), ("b", False)]
    assert [index for _, index, *_ in shown["/m/b"]] == [1]


def test_describing_needs_leave() -> None:
    broker = BrokerHarness(authorizer=Permissions())
    answer = broker.ask(DescribeLogDirsRequest(topics=None), 3)
    assert (answer.error_code, answer.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


# AlterReplicaLogDirs


def test_a_move_is_begun_and_given_up_again(broker: BrokerHarness) -> None:
    assert altered(broker, {"/m/a": [("b", 0)], "/m/b": [("b", 1)]}) == {"b": [0, 0]}
    (move,) = broker.storage.moves()
    assert (move.partition, move.from_directory_id, move.to_directory_id) == (TopicPartition("b", 0), B, A)
    assert altered(broker, {"/m/b": [("b", 0)]}) == {"b": [0]}
    assert broker.storage.moves() == ()


def test_directories_that_there_are_not(broker: BrokerHarness) -> None:
    for path in ("/m/c", "m/a", "", "/m", "/m/a/"):
        assert altered(broker, {path: [("a", 0)]}) == {"a": [ErrorCode.LOG_DIR_NOT_FOUND]}
    assert broker.storage.moves() == ()


def test_replicas_that_are_not_here(broker: BrokerHarness) -> None:
    broker.change_partition("a", 3, replicas=(9,), leader=9)
    assert altered(broker, {"/m/b": [("a", 3), ("nowhere", 0), (LONG, 0)]}) == {
        "a": [ErrorCode.REPLICA_NOT_AVAILABLE],
        "nowhere": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        LONG: [ErrorCode.INVALID_TOPIC_EXCEPTION],
    }


def test_a_replica_that_comes_later_is_made_where_it_was_wanted(broker: BrokerHarness) -> None:
    """As Kafka's reassignment tool does it: first the directory, then the replica."""
    assert altered(broker, {"/m/b": [("later", 0)]}) == {"later": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]}
    broker.metadata.new_directory = A
    broker.create_topic("later", 2)
    assert broker.log_of("later", 0).directory_id == B
    assert broker.log_of("later", 1).directory_id == A
    broker.metadata.delete_topic("later")
    broker.create_topic("later")
    assert broker.log_of("later", 0).directory_id == A


def test_the_last_directory_named_for_a_replica_counts(broker: BrokerHarness) -> None:
    assert altered(broker, {"/m/a": [("b", 0)], "/m/b": [("b", 0)]}) == {"b": [0]}
    assert broker.storage.moves() == ()


def test_nothing_moves_while_a_directory_is_offline() -> None:
    broker = BrokerHarness(storage=PlainStorage(("/m/a", "/m/b", "/m/c")))
    for name, directory in (("a", A), ("b", B)):
        broker.metadata.new_directory = directory
        broker.create_topic(name)
    broker.storage.fail_directory("/m/b")
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert altered(broker, {"/m/b": [("a", 0)]}) == {"a": [storage_error]}
    assert altered(broker, {"/m/c": [("a", 0), ("b", 0)]}) == {"a": [storage_error], "b": [storage_error]}
    assert altered(broker, {"/m/a": [("a", 0)]}) == {"a": [0]}
    assert broker.storage.moves() == ()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LogDirNotFoundError("no such directory"), ErrorCode.LOG_DIR_NOT_FOUND),
        (LogNotOpenError("not open"), ErrorCode.REPLICA_NOT_AVAILABLE),
        (KeyError("a defect that is no answer"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ValueError("a defect that is no answer"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (OSError(5, "input/output error"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_what_the_storage_refuses(broker: BrokerHarness, error: Exception, code: ErrorCode) -> None:
    broker.storage.move_log = failing(error)  # type: ignore[method-assign]
    assert altered(broker, {"/m/b": [("a", 0)]}) == {"a": [code]}


def test_moving_needs_leave() -> None:
    broker = BrokerHarness(authorizer=Permissions())
    broker.create_topic("a")
    assert altered(broker, {"/plain/d": [("a", 0)]}) == {"a": [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]}
