"""Several log directories: what lies where, what the start makes of them, and one that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blumfeld.config.values import TopicConfig
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_driver.node import CLUSTER_ID, NODE_ID, PARTITION, TOPIC_ID, Node
from blumfeld_storage_local.directories.places import MoveEnd, MoveMark, encode_marks
from blumfeld_storage_local.logs.partition_log import LocalLog
from blumfeld_storage_local.storage import LocalStorage
from tests.plugins.storage_local.local_node import Events, new_node, node_on_disk
from tests.plugins.storage_local.moving_tools import PATHS, places

OTHER = TopicPartition("other", 0)


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"paths": PATHS}


def paths_of(node: Node, count: int) -> list[str]:
    """Where logs are made that nobody says a place for."""
    paths = []
    for number in range(count):
        log = node.open(TopicPartition("new", number)).log
        paths.append(next(i.path for i in node.storage.log_dirs() if i.directory_id == log.directory_id))
    return paths


# Where


def test_each_directory_is_a_kafka_log_directory_of_its_own(node: Node) -> None:
    node.open(PARTITION, directory_id=node.directories[0]).fill(1)
    node.open(OTHER, directory_id=node.directories[1]).fill(2)
    node.storage.checkpoint([(PARTITION, 1), (OTHER, 2)])
    node.stop(broker_epoch=9)
    files = node.restart().runtime.files
    assert len(set(node.directories)) == 3
    for path, line in (("/a", b"0\n1\ntopic 0 1\n"), ("/b", b"0\n1\nother 0 2\n"), ("/c", b"0\n0\n")):
        assert {".lock", "meta.properties"} < set(files.list_dir(path))
        assert files.read_bytes(f"{path}/recovery-point-offset-checkpoint") == line
        assert files.read_bytes(f"{path}/replication-offset-checkpoint") == line
    assert node.storage.high_watermarks() == {PARTITION: 1, OTHER: 2}
    assert sorted(node.storage.partitions()) == [(OTHER, TOPIC_ID), (PARTITION, TOPIC_ID)]
    assert node.storage.previous_broker_epoch() == 9


def test_a_log_that_lies_somewhere_is_opened_there(node: Node) -> None:
    node.open(directory_id=node.directories[2]).fill(3)
    node.stop()
    node.restart()
    log = node.open(directory_id=node.directories[0])
    assert log.log.directory_id == node.directories[2]
    assert log.spans() == [(0, 3)]


def test_logs_that_are_opened_at_once_find_different_places(node: Node) -> None:
    async def open_all() -> list[bytes]:
        import asyncio

        logs = await asyncio.gather(
            *(
                node.storage.open_log(TopicPartition("t", n), TOPIC_ID, TopicConfig({}), node.listener)
                for n in range(3)
            )
        )
        return [log.directory_id for log in logs]

    assert sorted(node.runtime.run(open_all())) == sorted(node.directories)


def test_a_deleted_log_makes_room(node: Node) -> None:
    paths_of(node, 3)
    node.storage.delete_log(TopicPartition("new", 1))
    assert node.open(OTHER).log.directory_id == node.directories[1]


def test_space_is_told_of_and_not_asked_for_all_the_time(node: Node) -> None:
    node.runtime.disk.total_bytes, node.runtime.disk.usable_bytes = 1000, 400
    node.runtime.advance(1001)
    before = node.runtime.disk.operations.get("space", 0)
    for _ in range(5):
        assert [(info.total_bytes, info.usable_bytes) for info in node.storage.log_dirs()] == [
            (1000, 400)
        ] * 3
    assert node.runtime.disk.operations["space"] == before + 3
    node.runtime.disk.inject(Fault(operation="space", times=-1))
    node.runtime.advance(1001)
    assert [info.total_bytes for info in node.storage.log_dirs()] == [-1] * 3
    assert [info.online for info in node.storage.log_dirs()] == [True] * 3


def test_the_cleaner_checkpoint_is_kafkas(node: Node) -> None:
    log = node.open(compression_type="producer")
    log.fill(5, 5)
    assert isinstance(log.log, LocalLog)
    log.log._cleaned_to(7)
    node.runtime.run_turn()
    assert node.runtime.files.read_bytes("/a/cleaner-offset-checkpoint") == b"0\n1\ntopic 0 7\n"
    log.log.truncate_to(6)
    node.runtime.run_turn()
    assert node.runtime.files.read_bytes("/a/cleaner-offset-checkpoint") == b"0\n1\ntopic 0 5\n"
    node.crash(power_cut=False)
    assert node.open().log.cleaned_end_offset == 5
    node.storage.delete_log(PARTITION)
    assert node.open().log.cleaned_end_offset == 0


def test_a_cleaner_checkpoint_behind_the_log_is_its_end_and_one_before_it_is_taken_as_it_is(
    node: Node,
) -> None:
    """A crash took what was cleaned; or retention did, and the rules know what to do."""
    node.open().fill(5)
    node.stop()
    node.runtime.files.write_atomically("/a/cleaner-offset-checkpoint", b"0\n1\ntopic 0 999\n")
    node.restart()
    log = node.open()
    assert log.log.cleaned_end_offset == 5
    log.log.truncate_fully(1000)
    node.stop()
    node.restart()
    assert node.open().log.cleaned_end_offset == 5


# At start


def prepared() -> Node:
    """Stopped, with a log in /a and one in /b."""
    node = new_node(PATHS)
    node.open(PARTITION, directory_id=node.directories[0]).fill(3)
    node.open(OTHER, directory_id=node.directories[1]).fill(4)
    node.stop()
    return node


def test_the_node_starts_without_a_directory_that_does_not_work(events: Events) -> None:
    node = prepared()
    lost = node.directories[1]
    node.runtime.disk.inject(Fault(operation="list_dir", path_part="/b", times=-1))
    node.restart()
    assert [info.online for info in node.storage.log_dirs()] == [True, False, True]
    assert node.watcher.failures == [], "the start's own finding is in log_dirs"
    assert [partition for partition, _ in node.storage.partitions()] == [PARTITION]
    assert node.open().spans() == [(0, 3)]
    with pytest.raises(OSError, match="offline"):
        node.open(OTHER, directory_id=lost)
    assert node.open(TopicPartition("new", 0)).log.directory_id == node.directories[2]
    assert node.storage.previous_broker_epoch() == -1, "as Kafka: some logs can't be told of"
    node.stop()
    node.runtime.disk.heal()
    node.restart()
    node.open()
    assert node.listener.recoveries == [], "the others were stopped cleanly"
    assert node.open(OTHER).spans() == [(0, 4)]
    node.end()


def test_a_directory_whose_id_nobody_can_read_may_hold_a_log_that_is_assigned_elsewhere() -> None:
    """No empty log is made in its place."""
    node = prepared()
    lost = node.directories[1]
    node.runtime.disk.inject(Fault(operation="lock", path_part="/b", times=-1))
    node.restart()
    assert node.storage.log_dirs()[1].directory_id == bytes(16)
    with pytest.raises(OSError, match="offline"):
        node.open(OTHER, directory_id=lost)
    node.end()


def test_the_node_does_not_start_without_its_first_directory() -> None:
    """``__cluster_metadata`` lies there."""
    node = prepared()
    node.runtime.disk.inject(Fault(operation="list_dir", path_part="/a", times=-1))
    with pytest.raises(OSError, match=r"/a|output"):
        node.restart()
    assert node.runtime.disk.locks == set(), "nothing is held"


@pytest.mark.parametrize(("line", "text"), [("cluster.id", "is of cluster"), ("node.id", "is of node")])
def test_one_foreign_directory_is_enough_to_refuse(line: str, text: str) -> None:
    node = prepared()
    data = node.runtime.files.read_bytes("/c/meta.properties").decode().splitlines()
    data = [f"{line}=12345" if said.startswith(line) else said for said in data]
    node.runtime.files.write_atomically("/c/meta.properties", "\n".join(data).encode())
    with pytest.raises(ValueError, match=f"/c/meta.properties: the directory {text}"):
        node.restart()


def test_two_directories_with_one_id_are_refused() -> None:
    node = prepared()
    meta = node.runtime.files.read_bytes("/a/meta.properties")
    node.runtime.files.write_atomically("/c/meta.properties", meta)
    with pytest.raises(ValueError, match="/a and /c have the same directory"):
        node.restart()


def test_each_directory_is_clean_for_itself(node: Node) -> None:
    node.open(PARTITION, directory_id=node.directories[0]).fill(3)
    node.open(OTHER, directory_id=node.directories[1]).fill(4)
    node.stop()
    node.runtime.files.unlink("/b/.kafka_cleanshutdown")
    node.restart()
    assert node.storage.previous_broker_epoch() == -1
    node.open(PARTITION)
    assert node.listener.recoveries == []
    node.open(OTHER)
    assert node.listener.recoveries == [(0, 4)]


def test_directories_that_were_stopped_in_different_epochs_say_none(node: Node) -> None:
    node.stop(broker_epoch=5)
    node.runtime.files.write_atomically("/c/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":4}')
    node.restart()
    assert node.storage.previous_broker_epoch() == -1


def test_a_new_directory_is_made_this_nodes(node: Node) -> None:
    node.open().fill(1)
    node.stop()
    runtime = FakeRuntime(7, disk=node.runtime.disk)
    storage = LocalStorage(runtime, (*PATHS, "/new/d"), Events())
    runtime.run(storage.start(CLUSTER_ID, NODE_ID))
    assert [info.online for info in storage.log_dirs()] == [True] * 4
    assert storage.previous_broker_epoch() == -1, "as Kafka: it has no clean-shutdown file"
    runtime.run(storage.stop(1))


# A log in two directories


def copy_to(node: Node, path: str) -> None:
    """As an operator would, or a move that broke off."""
    files = node.runtime.files
    for name in files.list_dir("/a/topic-0"):
        files.make_dirs(f"{path}/topic-0")
        files.write_atomically(f"{path}/topic-0/{name}", files.read_bytes(f"/a/topic-0/{name}"))


def mark(node: Node, path: str, to: bytes, end: MoveEnd) -> None:
    data = encode_marks({PARTITION: MoveMark(to, end)})
    node.runtime.files.write_atomically(f"{path}/blumfeld-move-checkpoint", data)


def test_a_log_in_two_directories_is_refused() -> None:
    node = prepared()
    copy_to(node, "/c")
    with pytest.raises(ValueError, match="the log of topic-0 lies in /a/topic-0 and /c/topic-0"):
        node.restart()


@pytest.mark.parametrize(
    ("end", "counts"), [(MoveEnd.DONE, "/c"), (MoveEnd.GIVEN_UP, "/a")], ids=["done", "given up"]
)
def test_after_a_move_the_mark_says_which_copy_counts(end: MoveEnd, counts: str) -> None:
    node = prepared()
    copy_to(node, "/c")
    mark(node, "/a", node.directories[2], end)
    node.restart()
    assert node.open().spans() == [(0, 3)]
    node.runtime.advance(100)
    assert places(node) == {counts: ["topic-0"]}
    assert node.runtime.files.read_bytes("/a/blumfeld-move-checkpoint") == b"0\n0\n"
    node.end()


def test_a_mark_of_another_directory_says_nothing() -> None:
    node = prepared()
    copy_to(node, "/c")
    mark(node, "/a", node.directories[1], MoveEnd.DONE)
    with pytest.raises(ValueError, match="lies in"):
        node.restart()


def test_a_copy_that_comes_back_with_its_directory_is_stale() -> None:
    """The move's target was offline at a start: the log went on where it was, and that counts from then on."""
    node = prepared()
    copy_to(node, "/c")
    mark(node, "/a", node.directories[2], MoveEnd.DONE)
    node.runtime.disk.inject(Fault(operation="list_dir", path_part="/c", times=-1))
    node.restart()
    log = node.open()
    log.fill(1)
    node.crash(power_cut=True)
    node.runtime.disk.heal()
    node.stop()
    node.restart()
    node.runtime.advance(100)
    assert places(node) == {"/a": ["topic-0"]}
    node.end()


FUTURE = "topic-0." + "a" * 32 + "-future"


def test_a_copy_in_the_making_waits_for_its_logs_directory() -> None:
    """That is offline now; when it is back the move goes on."""
    node = new_node(("/b", "/a", "/c"))
    node.open(directory_id=node.directories[1]).fill(3)
    node.stop()
    node.runtime.files.make_dirs(f"/c/{FUTURE}")
    node.runtime.disk.inject(Fault(operation="list_dir", path_part="/a", times=-1))
    node.restart()
    node.runtime.advance(1000)
    assert node.storage.partitions() == []
    node.stop()
    node.runtime.disk.heal()
    node.restart()
    log = node.open()
    node.runtime.advance(1000)
    assert log.spans() == [(0, 3)]
    assert log.log.directory_id == node.directories[2]
    node.end()


def test_a_copy_in_the_making_that_nothing_can_come_of_is_removed() -> None:
    node = prepared()
    node.runtime.files.make_dirs("/c/gone-0." + "b" * 32 + "-future")
    node.runtime.files.make_dirs(f"/a/{FUTURE}")
    node.restart()
    node.runtime.advance(100)
    for path in PATHS:
        assert not [name for name in node.runtime.files.list_dir(path) if name.endswith("-future")]
    node.end()


# A failure


def test_a_checkpoint_that_can_not_be_written_takes_its_directory_offline(node: Node) -> None:
    node.open(PARTITION, directory_id=node.directories[0]).fill(2)
    other = node.open(OTHER, directory_id=node.directories[1])
    other.fill(2)
    other.flush()
    node.runtime.disk.inject(Fault(operation="write_atomically", path_part="/b/recovery", times=-1))
    node.storage.checkpoint([(PARTITION, 2), (OTHER, 2)])
    node.runtime.run_turn()
    assert [failed.path for failed, _ in node.watcher.failures] == ["/b"]
    assert node.runtime.files.read_bytes("/a/replication-offset-checkpoint") == b"0\n1\ntopic 0 2\n"


def test_a_stop_fails_only_if_no_directory_could_be_left(node: Node) -> None:
    log = node.open()
    log.fill(1)
    node.runtime.disk.inject(Fault(operation="fdatasync", path_part="/a", times=-1))
    node.stop()
    assert node.runtime.disk.locks == set()


def test_real_directories(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    node = node_on_disk(*paths)
    node.open(PARTITION).fill(1)
    node.open(OTHER).fill(2)
    assert (tmp_path / "a" / "topic-0").is_dir()
    assert (tmp_path / "b" / "other-0").is_dir()
    assert all(info.usable_bytes > 0 for info in node.storage.log_dirs())
    node.stop()
    node.restart()
    assert node.open(OTHER).spans() == [(0, 2)]
    node.end()
