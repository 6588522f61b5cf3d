"""The directories of a restored node: what a node finds in them, and a restore that dies at any step."""

from __future__ import annotations

from random import Random

import pytest

from blumfeld.log.checkpoints import MetaProperties, decode_offsets, encode_meta_properties
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.end_marker import EndMarker, end_marker_of
from blumfeld.log.producers.snapshot import ProducerEntry, encode_snapshot
from blumfeld.metadata.image.bootstrap import bootstrap_checkpoint
from blumfeld.metadata.image.checkpoint import decode_checkpoint
from blumfeld.metadata.image.records import image_of
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_tiered.metadata_topic.metadata_partition import MetadataPartition
from blumfeld_storage_tiered.restore.directories import (
    RestoreRefusedError,
    formatted_node,
    restore_nodes,
)
from blumfeld_storage_tiered.restore.files import metadata_records
from blumfeld_storage_tiered.restore.places import NodePlace
from blumfeld_storage_tiered.restore.plan import RestorePlan
from blumfeld_storage_tiered.restore.under_way import UNDER_WAY_FILE, check_restored
from tests.plugins.storage_tiered.catalog.history import AT
from tests.plugins.storage_tiered.restore.test_plan import description, found_topic, partition_of, planned

FEATURES = {"metadata.version": 30, "eligible.leader.replicas.version": 1}
PLAN = planned(
    found_topic(partition_of((0, 12), (12, 20)), partition_of((3, 10), number=1), described=description()),
    brokers=(1,),
)


def place(*directories: str, node_id: int = 1) -> NodePlace:
    return NodePlace(
        manifest="node.toml", node_id=node_id, is_broker=True, directories=directories, min_insync_replicas=2
    )


TWO = place("/one", "/two")
OTHER = place("/three", node_id=2)


BOTH = (TWO, OTHER)
PLAN_OF_TWO = planned(
    found_topic(partition_of((0, 12), (12, 20)), described=description(partitions=1)), brokers=(1, 2)
)


class Died(BaseException):
    """The process of the restore is killed."""


def formatted(runtime: FakeRuntime, *places: NodePlace) -> FakeRuntime:
    for at in places or (TWO,):
        for nth, directory in enumerate(at.directories):
            runtime.files.make_dirs(directory)
            meta = MetaProperties(
                cluster_id="cluster", node_id=at.node_id, directory_id=bytes([at.node_id, nth] * 8)
            )
            runtime.files.write_atomically(f"{directory}/meta.properties", encode_meta_properties(meta))
        path = f"{at.directories[0]}/bootstrap.checkpoint"
        runtime.files.write_atomically(path, bootstrap_checkpoint(FEATURES, 1))
    runtime.files.sync_dir("/")
    return runtime


def restore(runtime: FakeRuntime, *places: NodePlace, plan: RestorePlan = PLAN) -> None:
    nodes = [formatted_node(runtime.files, at, "cluster") for at in places or (TWO,)]
    restore_nodes(runtime.files, plan, nodes)


def content(runtime: FakeRuntime, folder: str) -> dict[str, bytes]:
    files = runtime.files
    there: dict[str, bytes] = {}
    for name in files.list_dir(folder or "/"):
        path = f"{folder}/{name}"
        there |= content(runtime, path) if files.is_dir(path) else {path: files.read_bytes(path)}
    return there


def everything(runtime: FakeRuntime) -> dict[str, bytes]:
    return content(runtime, "")


def test_the_image_of_a_restored_cluster_has_topics_features_and_settings() -> None:
    runtime = formatted(FakeRuntime(1))
    node = formatted_node(runtime.files, TWO, "cluster")
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


def test_a_transaction_whose_marker_was_not_copied_is_aborted_at_the_remote_end() -> None:
    found = partition_of((0, 12))
    producer = ProducerEntry(producer_id=5, epoch=3, coordinator_epoch=7, txn_first_offset=9)
    found.producers = encode_snapshot([ProducerEntry(producer_id=4), producer])
    plan = planned(found_topic(found, described=description(partitions=1)), brokers=(1,))
    assert [finding.kind for finding in plan.findings] == ["open transaction"]
    runtime = formatted(FakeRuntime(1), place("/one"))
    restore(runtime, place("/one"), plan=plan)
    (marker,) = split_batches(memoryview(runtime.files.read_bytes("/one/ticks-0/00000000000000000012.log")))
    assert (marker.base_offset, marker.producer_id, marker.producer_epoch) == (12, 5, 3)
    assert end_marker_of(marker) == EndMarker(committed=False, coordinator_epoch=7)
    epoch = marker.partition_leader_epoch
    epochs = LeaderEpochCache.decode(runtime.files.read_bytes("/one/ticks-0/leader-epoch-checkpoint"))
    assert epochs.entries[-1] == EpochEntry(epoch, 12)
    assert epoch == plan.topics[0].partitions[0].leader_epoch
    for name, offset in (("log-start-offset", 12), ("replication-offset", 13), ("recovery-point-offset", 13)):
        offsets = decode_offsets(runtime.files.read_bytes(f"/one/{name}-checkpoint"), name)
        assert offsets[TopicPartition("ticks", 0)] == offset


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
def test_a_restore_that_dies_at_any_step_keeps_the_nodes_from_starting_and_can_be_run_again(
    power_cut: bool,
) -> None:
    whole = formatted(FakeRuntime(1), *BOTH)
    before = everything(whole)
    steps = 0

    def watch(operation: str, path: str) -> None:
        nonlocal steps
        steps += 1

    whole.disk.watch = watch
    restore(whole, *BOTH, plan=PLAN_OF_TWO)
    whole.disk.watch = None
    assert steps > 150
    for dies_at in range(steps):
        _die_and_restore_again(dies_at, before, everything(whole), power_cut=power_cut)


def _die_and_restore_again(
    dies_at: int, before: dict[str, bytes], wanted: dict[str, bytes], *, power_cut: bool
) -> None:
    runtime = formatted(FakeRuntime(1), *BOTH)
    count = 0

    def watch(operation: str, path: str) -> None:
        nonlocal count
        count += 1
        if count > dies_at:
            raise Died

    runtime.disk.watch = watch
    with pytest.raises(Died):
        restore(runtime, *BOTH, plan=PLAN_OF_TWO)
    runtime.disk.watch = None
    runtime.crash(power_cut=power_cut, luck=Random(dies_at))
    again = FakeRuntime(2, disk=runtime.disk)
    there = {path for path in everything(again) if not path.endswith(".tmp")}
    changed = there != set(before)
    for first, own in (("/one", ("/one/", "/two/")), ("/three", ("/three/",))):
        if not again.files.exists(f"{first}/{UNDER_WAY_FILE}"):
            mine = {path for path in there if path.startswith(own)}
            is_first_step = there <= {*before, f"/one/{UNDER_WAY_FILE}", f"/three/{UNDER_WAY_FILE}"}
            assert is_first_step or mine == {path for path in wanted if path.startswith(own)}, dies_at
        else:
            assert changed
            with pytest.raises(OSError, match="was interrupted"):
                check_restored(again.files, first)
    restore(again, *BOTH, plan=PLAN_OF_TWO)
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


def test_a_node_that_was_restored_and_has_not_started_is_left_as_it_is() -> None:
    runtime = formatted(FakeRuntime(1))
    restore(runtime)
    before = everything(runtime)
    runtime.disk.watch = lambda operation, path: pytest.fail(path) if "write" in operation else None
    restore(runtime)
    assert everything(runtime) == before


def test_a_restored_node_that_has_changed_is_refused() -> None:
    runtime = formatted(FakeRuntime(1))
    restore(runtime)
    path = next(path for path in everything(runtime) if "__remote_log_metadata-" in path and ".log" in path)
    runtime.files.write_atomically(path, b"a record of a node that has started")
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
        formatted_node(runtime.files, TWO, "other")
