"""The directories of a restored node: what a node finds in them, and a restore that dies at any step."""

from __future__ import annotations

from random import Random

import pytest

from blumfeld.log.checkpoints import MetaProperties, decode_offsets, encode_meta_properties
from blumfeld.metadata.image.bootstrap import bootstrap_checkpoint
from blumfeld.metadata.image.checkpoint import decode_checkpoint
from blumfeld.metadata.image.records import image_of
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_tiered.metadata_topic.metadata_partition import MetadataPartition
from blumfeld_storage_tiered.restore.directories import (
    RestoreRefusedError,
    restore_node,
    restored_node,
)
from blumfeld_storage_tiered.restore.files import metadata_records
from blumfeld_storage_tiered.restore.places import NodePlace
from blumfeld_storage_tiered.restore.under_way import UNDER_WAY_FILE, check_restored
from tests.plugins.storage_tiered.catalog.history import AT
from tests.plugins.storage_tiered.restore.test_plan import description, found_topic, partition_of, planned

FEATURES = {"metadata.version": 30, "eligible.leader.replicas.version": 1}
PLAN = planned(
    found_topic(partition_of((0, 12), (12, 20)), partition_of((3, 10), number=1), described=description()),
    brokers=(1,),
)


def place(*directories: str) -> NodePlace:
    return NodePlace(
        manifest="node.toml", node_id=1, is_broker=True, directories=directories, min_insync_replicas=2
    )


TWO = place("/one", "/two")


class Died(BaseException):
    """The process of the restore is killed."""


def formatted(runtime: FakeRuntime, at: NodePlace = TWO) -> FakeRuntime:
    for nth, directory in enumerate(at.directories):
        runtime.files.make_dirs(directory)
        meta = MetaProperties(cluster_id="cluster", node_id=1, directory_id=bytes([nth + 1] * 16))
        runtime.files.write_atomically(f"{directory}/meta.properties", encode_meta_properties(meta))
    path = f"{at.directories[0]}/bootstrap.checkpoint"
    runtime.files.write_atomically(path, bootstrap_checkpoint(FEATURES, 1))
    runtime.files.sync_dir("/")
    return runtime


def restore(runtime: FakeRuntime, at: NodePlace = TWO) -> None:
    restore_node(runtime.files, PLAN, restored_node(runtime.files, at, "cluster"))


def content(runtime: FakeRuntime, folder: str) -> dict[str, bytes]:
    files = runtime.files
    there: dict[str, bytes] = {}
    for name in files.list_dir(folder):
        path = f"{folder}/{name}"
        there |= content(runtime, path) if files.is_dir(path) else {path: files.read_bytes(path)}
    return there


def everything(runtime: FakeRuntime) -> dict[str, bytes]:
    return {**content(runtime, "/one"), **content(runtime, "/two")}


def test_the_image_of_a_restored_cluster_has_topics_features_and_settings() -> None:
    runtime = formatted(FakeRuntime(1))
    node = restored_node(runtime.files, TWO, "cluster")
    image = image_of("cluster", metadata_records(PLAN, node))
    assert image.features == FEATURES
    assert image.topics[AT.topic].topic_id == AT.topic_id
    assert image.config(4, "") == {"min.insync.replicas": "2"}
    assert image.config(2, AT.topic)["retention.ms"] == "77"
    assert image.producer_ids is not None
    assert image.producer_ids.next_producer_id == PLAN.next_producer_id
    leaders = {p.leader for topic in image.topics.values() for p in topic.partitions.values()}
    assert leaders == {-1}


def test_the_snapshot_of_the_metadata_ends_where_its_log_begins() -> None:
    runtime = formatted(FakeRuntime(1))
    restore(runtime)
    (name,) = [n for n in runtime.files.list_dir("/one/__cluster_metadata-0") if n.endswith(".checkpoint")]
    records = decode_checkpoint(runtime.files.read_bytes(f"/one/__cluster_metadata-0/{name}"), name).records
    assert name == f"{len(records):020d}-0000000000.checkpoint"
    starts = decode_offsets(runtime.files.read_bytes("/one/log-start-offset-checkpoint"), "")
    assert starts[TopicPartition("__cluster_metadata", 0)] == len(records)


def test_each_log_begins_at_the_remote_end_with_its_state() -> None:
    runtime = formatted(FakeRuntime(1))
    restore(runtime)
    there = everything(runtime)
    (log,) = [path for path in there if path.endswith("/ticks-1/00000000000000000010.log")]
    folder = log.rpartition("/")[0]
    assert there[log] == b""
    assert there[f"{folder}/leader-epoch-checkpoint"] == b"0\n1\n0 3\n"
    assert there[f"{folder}/remote-log-start-offset"].startswith(b"3 ")
    assert f"{folder}/00000000000000000010.snapshot" in there
    assert f"{folder}/partition.metadata" in there
    starts = decode_offsets(there[f"{folder.rpartition('/')[0]}/log-start-offset-checkpoint"], "")
    assert starts[TopicPartition("ticks", 1)] == 10


def test_the_metadata_topic_knows_every_segment() -> None:
    runtime = formatted(FakeRuntime(1))
    restore(runtime)
    known: set[bytes] = set()
    for path, data in everything(runtime).items():
        if "__remote_log_metadata-" in path and path.endswith(".log"):
            partition = MetadataPartition(0)
            partition.take(split_batches(memoryview(data)), lambda place, error: pytest.fail(str(error)))
            known |= {segment.segment_id for c in partition.catalogs.values() for segment in c}
    (topic,) = PLAN.topics
    assert known == {s.segment_id for partition in topic.partitions for s in partition.history.segments}
    assert known


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_restore_that_dies_at_any_step_keeps_the_node_from_starting_and_can_be_run_again(
    power_cut: bool,
) -> None:
    whole = formatted(FakeRuntime(1))
    steps: list[tuple[str, str]] = []
    whole.disk.watch = lambda operation, path: steps.append((operation, path))
    restore(whole)
    whole.disk.watch = None
    wanted = everything(whole)
    assert len(steps) > 100
    for dies_at in range(len(steps)):
        _die_and_restore_again(dies_at, wanted, power_cut=power_cut)


def _die_and_restore_again(dies_at: int, wanted: dict[str, bytes], *, power_cut: bool) -> None:
    runtime = formatted(FakeRuntime(1))
    before = everything(runtime)
    count = 0

    def watch(operation: str, path: str) -> None:
        nonlocal count
        count += 1
        if count > dies_at:
            raise Died

    runtime.disk.watch = watch
    with pytest.raises(Died):
        restore(runtime)
    runtime.disk.watch = None
    runtime.crash(power_cut=power_cut, luck=Random(dies_at))
    again = FakeRuntime(2, disk=runtime.disk)
    there = everything(again)
    if not again.files.exists(f"/one/{UNDER_WAY_FILE}"):
        held = {path for path in there if not path.endswith(".tmp")}
        assert held in (set(before), set(wanted)), dies_at
    else:
        with pytest.raises(OSError, match="was interrupted"):
            check_restored(again.files, "/one")
    if set(there) == set(wanted):
        return
    restore(again)
    assert everything(again) == wanted, dies_at


@pytest.mark.parametrize(
    "name",
    [
        "ticks-0/00000000000000000000.log",
        "__cluster_metadata-0/00000000000000000000.log",
        "notes.txt",
        "remote-store",
    ],
)
def test_a_directory_that_holds_something_is_refused_by_name(name: str) -> None:
    runtime = formatted(FakeRuntime(1))
    runtime.files.make_dirs(f"/two/{name}".rpartition("/")[0])
    runtime.files.write_atomically(f"/two/{name}", b"x")
    before = everything(runtime)
    with pytest.raises(
        RestoreRefusedError, match=rf"^/two: found {name.partition('/')[0]}.*allowed: a directory that"
    ):
        restore(runtime)
    assert everything(runtime) == before


def test_a_restore_is_not_done_twice() -> None:
    runtime = formatted(FakeRuntime(1))
    restore(runtime)
    with pytest.raises(RestoreRefusedError, match="/one: found __cluster_metadata-0/"):
        restore(runtime)


def test_the_mark_of_a_restore_is_no_licence_for_what_somebody_else_wrote() -> None:
    runtime = formatted(FakeRuntime(1))
    runtime.files.write_atomically(f"/one/{UNDER_WAY_FILE}", b"")
    runtime.files.write_atomically("/two/notes.txt", b"x")
    with pytest.raises(RestoreRefusedError, match=r"/two: found notes\.txt"):
        restore(runtime)


def test_a_directory_that_is_not_formatted_is_refused_with_the_command_that_formats_it() -> None:
    runtime = formatted(FakeRuntime(1), place("/one"))
    runtime.files.make_dirs("/two")
    with pytest.raises(
        RestoreRefusedError, match=r"/two: isn't formatted.*format node\.toml --cluster-id cluster"
    ):
        restore(runtime)


def test_a_directory_of_another_cluster_is_refused() -> None:
    runtime = formatted(FakeRuntime(1))
    with pytest.raises(
        RestoreRefusedError, match="found node 1 of cluster cluster; allowed: node 1 of cluster other"
    ):
        restored_node(runtime.files, TWO, "other")
