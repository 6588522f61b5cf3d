"""Remote log metadata of a node (KIP-405): writes changes wherever their partition is led, and reads all that the node
needs.

Kafka's ``TopicBasedRemoteLogMetadataManager``. A change counts when it is committed *and* read back here: then the
node that made it sees it, and knows whether it was refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from posixpath import basename
from typing import Any, TypeVar, cast

from blumfeld.client.produce import one_batch, only_outcome
from blumfeld.spi.cluster import ClusterImage, ImageDelta, PartitionImage, TopicImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import Composition
from blumfeld.spi.internal_topics import REMOTE_LOG_METADATA_TOPIC
from blumfeld.spi.parts import join, release
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Task
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import BrokerError, CorruptBatch, ErrorCode, is_retriable, known_code
from blumfeld.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.messages.produce import ProduceResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.catalog.records import encode_change, metadata_partition
from blumfeld_storage_tiered.catalog.segment import Change, TopicIdPartition
from blumfeld_storage_tiered.metadata_topic.metadata_partition import (
    Append,
    MetadataPartition,
    OtherHistoryError,
    key_of,
    settle,
)
from blumfeld_storage_tiered.metadata_topic.reserve import Reserve
from blumfeld_storage_tiered.metadata_topic.snapshot_file import (
    BYTES_MAX,
    encode_snapshot,
    file_name,
    read_snapshot,
    restore_snapshot,
    write_snapshot,
)
from blumfeld_storage_tiered.metadata_topic.topic import MetadataTopic, MetadataTopicSettings

T = TypeVar("T")

APPEND_TIMEOUT_MS = 120_000
"""Time for one change to be committed and read back, retries included (Kafka's
``remote.log.metadata.consume.wait.ms``)."""
REQUEST_TIMEOUT_MS = 30_000
RETRY_MS, RETRY_MAX_MS = 100, 1_000
"""Pauses after an error: each is twice as long as the one before."""
LASTING_MS = 400
"""The pause from which on errors are told of: an election is over after the first ones."""
FETCH_WAIT_MS = 500
"""Longest wait of a fetch at another leader. A partition that is assigned meanwhile waits for its end."""
READ_BYTES = 16 << 10
"""Bytes of one partition that are taken in one turn: about a hundred records, in one or two milliseconds."""
RESPONSE_BYTES = 64 << 10
SAVE_INTERVAL_MS = 60_000
EARLIEST, LATEST = -2, -1
"""The timestamps that ask ListOffsets for the log start and for the end of what is committed."""
TOPIC_NAMES_TO = 12
"""The last version of Produce and Fetch that names topics."""

Watcher = Callable[[TopicIdPartition], None]
"""Is told that the catalog of an assigned partition has changed. It may not raise."""


class _Bell:
    """A bell for one task: :meth:`ring` ends its present or next wait. Implements ``EndWatcher``."""

    def __init__(self) -> None:
        self._rung: Completion[None] = Completion()

    def ring(self) -> None:
        if not self._rung.done:
            self._rung.complete(None)

    moved = changed = ring

    async def wait(self) -> None:
        await self._rung
        self._rung = Completion()


class RemoteLogMetadata:
    """Made → started → stopped. Every method is called on the loop's thread.

    :param composition: its consensus, its broker and its peers are used from :meth:`start` on
    :param directory: where snapshots of the catalogs lie, on the local disk
    """

    def __init__(self, composition: Composition, settings: MetadataTopicSettings, directory: str) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._settings = settings
        self._directory = directory
        self._events = composition.log("remote log metadata")
        self._repeated = RepeatedEvents(composition.runtime)
        self._topic = MetadataTopic(composition, settings, self._events)
        self._reserve = Reserve(
            self._runtime.files, [f"{disk}/{basename(directory)}" for disk in composition.data_dirs]
        )
        self._topic_id = b""
        """Empty until the topic was seen."""
        self._image: TopicImage | None = None
        """The topic, as of the last delta."""
        self._partitions: dict[int, MetadataPartition] = {}
        self._watchers: list[Watcher] = []
        self._led: set[int] = set()
        """Metadata partitions that this node leads. It reads them all."""
        self._readers: set[int] = set()
        """Nodes that a task reads from. A partition that is led here has a task of its own."""
        self._bells: dict[int, _Bell] = {}
        """Partitions that are led here → the bells of their tasks."""
        self._tasks: dict[Task, None] = {}
        self._left: list[MetadataPartition] = []
        """Partitions that nothing here needs any more, until their snapshots are written."""
        self._writes: list[Completion[None]] = []
        """Snapshots that workers write. No task that is cancelled ends one."""
        self._is_creating = False
        self._is_started = False
        self._is_stopped = False

    # Life

    async def start(self) -> None:
        """Begin to read and write. The node's consensus and its broker must be there; the topic need not.

        :raises OSError: the directory of the snapshots can't be made
        """
        self._runtime.files.make_dirs(self._directory)
        self._is_started = True
        self._composition.metadata.subscribe(self._image_changed)
        self._spawn(self._save_often, "save remote log metadata")
        for metadata in self._partitions.values():
            self._begin(metadata)

    async def stop(self) -> None:
        """Stop, and save what was read. Appends that wait fail. Legal without start."""
        self._is_stopped = True
        for task in list(self._tasks):
            task.cancel()
        stopped = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the node stops")
        for write in list(self._writes):
            await self._ended(write)
        for metadata in (*self._left, *self._partitions.values()):
            self._fail_appends(metadata, stopped)
            await self._save(metadata)

    # Partitions

    def assign(self, partition: TopicIdPartition) -> None:
        """This node has a replica of ``partition``, or works for it: keep its catalog, until each assignment has been
        taken back."""
        index = metadata_partition(partition, self._settings.num_partitions)
        metadata = self._partitions.get(index)
        if metadata is None:
            metadata = self._partitions[index] = MetadataPartition(index)
            metadata.assign(partition)
            if self._is_started:
                self._begin(metadata)
            return
        metadata.assign(partition)
        if index in self._bells:
            self._bells[index].ring()

    def unassign(self, partition: TopicIdPartition) -> None:
        """Take one assignment back."""
        metadata = self._find(partition)
        if metadata is None:
            return
        gone = BrokerError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.topic} has no replica here any more"
        )
        metadata.unassign(partition, gone)
        if metadata.ready(partition) is None:
            self._fail_appends(metadata, gone, partition)
        self._leave(metadata)

    def _leave(self, metadata: MetadataPartition) -> None:
        """Read a metadata partition no more, if nothing needs it."""
        if len(metadata) or metadata.index in self._led:
            return
        del self._partitions[metadata.index]
        metadata.leader = -1
        metadata.abandon(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "its metadata is led elsewhere now"))
        if self._is_started:
            self._left.append(metadata)
            self._spawn(partial(self._save_left, metadata), "save remote log metadata")
        if metadata.index in self._bells:
            self._bells[metadata.index].ring()

    async def led_catalogs(self) -> list[RemoteLogCatalog]:
        """Returns the catalogs of all partitions, assigned or not, whose metadata this node leads, with all that is
        committed now. So each partition of the cluster is known to one node, also if its topic is gone.

        :raises BrokerError: the lead of one of them goes to another node meanwhile
        """
        led = [metadata for metadata in self._partitions.values() if metadata.index in self._led]
        for metadata in led:
            refreshed = metadata.refresh()
            if metadata.index in self._bells:
                self._bells[metadata.index].ring()
            await refreshed
        node_id = self._composition.node_id
        return [
            catalog
            for metadata in led
            if metadata.leader == node_id
            for catalog in metadata.catalogs.values()
        ]

    def catalog(self, partition: TopicIdPartition) -> RemoteLogCatalog:
        """Returns the catalog of an assigned partition, as far as it was read. Ask anew each time: it may be replaced.

        :raises KeyError: it isn't assigned
        """
        return self._assigned(partition).catalog(partition)

    def is_assigned(self, partition: TopicIdPartition) -> bool:
        """Whether its catalog is kept here."""
        metadata = self._find(partition)
        return metadata is not None and metadata.ready(partition) is not None

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether the catalog has all records that there were when the partition was assigned."""
        metadata = self._find(partition)
        ready = None if metadata is None else metadata.ready(partition)
        return ready is not None and ready.done and ready.error is None

    def when_ready(self, partition: TopicIdPartition) -> Completion[None]:
        """Complete when it is ready; fails with ``BrokerError`` if it is unassigned before.

        :raises KeyError: it isn't assigned
        """
        ready = self._assigned(partition).ready(partition)
        assert ready is not None
        return ready

    def refresh(self, partition: TopicIdPartition) -> Completion[None]:
        """Complete once the catalog has all records that there are now; fails as :meth:`when_ready`.

        :raises KeyError: it isn't assigned
        """
        metadata = self._assigned(partition)
        refreshed = metadata.refresh(partition)
        if metadata.index in self._bells:
            self._bells[metadata.index].ring()
        return refreshed

    def watch(self, watcher: Watcher) -> None:
        """Tell ``watcher`` of each catalog of an assigned partition that changed, once for many records."""
        self._watchers.append(watcher)

    def _find(self, partition: TopicIdPartition) -> MetadataPartition | None:
        return self._partitions.get(metadata_partition(partition, self._settings.num_partitions))

    def _assigned(self, partition: TopicIdPartition) -> MetadataPartition:
        metadata = self._find(partition)
        if metadata is None or metadata.ready(partition) is None:
            raise KeyError(f"{partition} isn't assigned to this node")
        return metadata

    # Writing

    def append(self, change: Change) -> Completion[None]:
        """Write a change of an assigned partition.

        Completes when it is committed and applied to the catalog here. Fails with ``CatalogError``: it is committed,
        and every node passes over it; with ``BrokerError``: its outcome isn't known (REQUEST_TIMED_OUT after two
        minutes, or the partition is unassigned, or the node stops), or the topic refuses it, or the partition isn't
        assigned (NOT_LEADER_OR_FOLLOWER). The same change may be appended again.
        """
        done: Completion[None] = Completion()
        metadata = self._find(change.partition)
        if metadata is None or metadata.ready(change.partition) is None:
            done.fail(
                BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{change.partition.topic} left this node")
            )
            return done
        value = encode_change(change)
        if value in metadata.appends:
            metadata.appends[value].callers.append(done)
        else:
            metadata.appends[value] = append = Append(key_of(change.partition), [done], Completion())
            self._spawn(partial(self._write, metadata, value, append), "write remote log metadata")
        return done

    async def _write(self, metadata: MetadataPartition, value: bytes, append: Append) -> None:
        """Write until it is read back, fails for good, or its time is over."""
        ends_ms = self._runtime.monotonic_ms() + APPEND_TIMEOUT_MS
        pause_ms = RETRY_MS
        while not append.read_back.done:
            left_ms = ends_ms - self._runtime.monotonic_ms()
            if left_ms <= 0:
                self._fail_append(
                    metadata, value, BrokerError(ErrorCode.REQUEST_TIMED_OUT, "it was not read back")
                )
                return
            error = await self._write_once(metadata.index, value, min(left_ms, REQUEST_TIMEOUT_MS))
            if error is None:
                await self._within(ends_ms - self._runtime.monotonic_ms(), append.read_back)
            elif isinstance(error, BrokerError) and not is_retriable(error.code):
                self._fail_append(metadata, value, error)
                return
            elif _is_of_storage(error) and self._reserve.give():
                self._say("a full disk: a record of remote log metadata takes room that was kept", "", error)
            else:
                if pause_ms >= LASTING_MS:
                    self._say("a record of remote log metadata was not written", metadata.index, error)
                await self._within(pause_ms, append.read_back)
                pause_ms = min(2 * pause_ms, RETRY_MAX_MS)

    async def _write_once(self, index: int, value: bytes, timeout_ms: float) -> Exception | None:
        """Try to write. Returns why not."""
        batch = build_batch([Record(value=value, timestamp=self._runtime.now_ms())])
        image = self._image_of(index)
        if image is None or image.leader < 0:
            return BrokerError(ErrorCode.LEADER_NOT_AVAILABLE)
        try:
            if image.leader == self._composition.node_id:
                at = TopicPartition(REMOTE_LOG_METADATA_TOPIC, index)
                epoch = self._composition.local_partitions.ends(at).leader_epoch
                placed = self._composition.local_partitions.append(at, RecordBatch(memoryview(batch)), epoch)
                if not await self._within(timeout_ms, placed):
                    return BrokerError(ErrorCode.REQUEST_TIMED_OUT)
                placed.result()
                return None
            request = one_batch(REMOTE_LOG_METADATA_TOPIC, index, bytes(batch), timeout_ms=int(timeout_ms))
            channel = self._channel(image.leader, "remote log metadata writes")
            answer = await channel.send(request, timeout_ms, TOPIC_NAMES_TO)
        except (OSError, BrokerError) as error:
            return error
        assert isinstance(answer, ProduceResponse)
        code = only_outcome(answer).error_code
        return BrokerError(known_code(code)) if code else None

    def _fail_append(self, metadata: MetadataPartition, value: bytes, error: BrokerError) -> None:
        append = metadata.appends.pop(value, None)
        if append is not None:
            append.read_back.complete(None)
            settle(append.callers, error)

    def _fail_appends(
        self, metadata: MetadataPartition, error: BrokerError, partition: TopicIdPartition | None = None
    ) -> None:
        """Fail the appends of a partition, or all."""
        for value, append in list(metadata.appends.items()):
            if partition is None or append.key == key_of(partition):
                self._fail_append(metadata, value, error)

    # Reading

    def _begin(self, metadata: MetadataPartition) -> None:
        self._spawn(partial(self._load, metadata), "load remote log metadata")

    async def _load(self, metadata: MetadataPartition) -> None:
        """Find the topic, restore the snapshot, and let the partition be read."""
        await self._topic_there()
        path = self._path(metadata.index)
        if self._runtime.files.exists(path):
            try:
                data = await self._runtime.offload(read_snapshot, self._runtime.files, path)
                await self._steps(Lane.LOADING, restore_snapshot(self._topic_id, data, metadata))
            except (OSError, DecodeError) as error:
                self._events.warning(
                    "a snapshot of remote log metadata can't be used: its partition is read from the start",
                    path=path,
                    error=str(error),
                )
        metadata.is_loaded = True
        self._arrange()

    async def _topic_there(self) -> None:
        pause_ms = RETRY_MS
        while (topic := self._topic.image()) is None:
            if self._topic.is_absent and not self._is_creating:
                self._is_creating = True
                try:
                    await self._topic.create()
                finally:
                    self._is_creating = False
            if self._topic.image() is None:
                await self._pause(pause_ms)
                pause_ms = min(2 * pause_ms, RETRY_MAX_MS)
        if not self._topic_id:
            self._topic_id = topic.topic_id

    def _image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        topic = image.topics.get(REMOTE_LOG_METADATA_TOPIC)
        if topic is not self._image:
            self._image = topic
            self._arrange()

    def _arrange(self) -> None:
        """Let each partition be read from its leader as of now."""
        if self._is_stopped:
            return
        topic = self._topic.image()
        if topic is not None and self._topic_id and topic.topic_id != self._topic_id:
            self._made_again(topic.topic_id)
        self._take_led(topic)
        for metadata in self._partitions.values():
            image = self._image_of(metadata.index)
            leader, epoch = (image.leader, image.leader_epoch) if image and metadata.is_loaded else (-1, -1)
            before = metadata.leader
            metadata.led_by(leader, epoch)
            if leader == before:
                continue
            if leader == self._composition.node_id:
                self._bells[metadata.index] = bell = _Bell()
                self._spawn(partial(self._read_here, metadata, bell), "read remote log metadata here")
            elif leader >= 0 and leader not in self._readers:
                self._readers.add(leader)
                self._spawn(partial(self._read_from, leader), f"read remote log metadata of node {leader}")
        for bell in self._bells.values():
            bell.ring()

    def _take_led(self, topic: TopicImage | None) -> None:
        """Read what this node leads, and let go of what it led and nothing else needs."""
        before = self._led
        partitions = {} if topic is None else topic.partitions
        self._led = {
            index
            for index, image in partitions.items()
            if image.leader == self._composition.node_id and index < self._settings.num_partitions
        }
        for index in sorted(self._led - self._partitions.keys()):
            metadata = self._partitions[index] = MetadataPartition(index)
            self._begin(metadata)
        for index in sorted(before - self._led):
            self._leave(self._partitions[index])

    def _made_again(self, topic_id: bytes) -> None:
        self._events.error(
            "the topic of remote log metadata was deleted and made again: what it said of remote segments is lost",
            topic=REMOTE_LOG_METADATA_TOPIC,
        )
        self._topic_id = topic_id
        for metadata in self._partitions.values():
            metadata.reset(0)

    async def _read_here(self, metadata: MetadataPartition, bell: _Bell) -> None:
        """Read a partition that this node leads, until it doesn't."""
        at = TopicPartition(REMOTE_LOG_METADATA_TOPIC, metadata.index)
        pause_ms = RETRY_MS
        while self._is_reading_here(metadata, bell):
            try:
                self._composition.local_partitions.watch(at, bell, log_end=False)
                await self._read_while_led(metadata, bell, at)
                return
            except (BrokerError, OSError, CorruptBatch) as error:
                # The log isn't open yet, or the image is behind: another one comes.
                if pause_ms >= LASTING_MS:
                    self._say("remote log metadata can't be read", metadata.index, error)
                self._composition.local_partitions.unwatch(at, bell, log_end=False)
                await self._pause(pause_ms)
                pause_ms = min(2 * pause_ms, RETRY_MAX_MS)

    def _is_reading_here(self, metadata: MetadataPartition, bell: _Bell) -> bool:
        return (
            self._bells.get(metadata.index) is bell
            and self._partitions.get(metadata.index) is metadata
            and metadata.leader == self._composition.node_id
        )

    async def _read_while_led(self, metadata: MetadataPartition, bell: _Bell, at: TopicPartition) -> None:
        local = self._composition.local_partitions
        while self._is_reading_here(metadata, bell):
            ends = local.ends(at)
            if not ends.log_start_offset <= metadata.position <= ends.log_end_offset:
                self._read_anew(metadata, ends.log_start_offset)
            elif metadata.next_offset < ends.log_start_offset:
                metadata.trust()
            # Not the high watermark: that of a new leader may be below what the one before had committed.
            metadata.read_up_to(metadata.waiting(), ends.log_end_offset)
            high_watermark = ends.high_watermark
            while metadata.next_offset < high_watermark:
                read = self._composition.local_partitions.read(
                    at, metadata.next_offset, READ_BYTES, read_committed=False
                )
                log_read = await read if isinstance(read, Completion) else read
                data = join(log_read.parts)
                release(log_read.parts)
                if not data or not self._is_reading_here(metadata, bell):
                    break
                try:
                    self._take(metadata, data)
                except OtherHistoryError:
                    self._read_anew(metadata, ends.log_start_offset)
                await self._pause(0)
            await bell.wait()
        self._composition.local_partitions.unwatch(at, bell, log_end=False)

    async def _read_from(self, leader: int) -> None:
        """Read the partitions that another node leads, until it leads none that is needed."""
        pause_ms = RETRY_MS
        while mine := [metadata for metadata in self._partitions.values() if metadata.leader == leader]:
            try:
                passed = await self._fetch(leader, mine)
            except (OSError, BrokerError) as error:
                if pause_ms >= LASTING_MS:
                    self._say("remote log metadata can't be read", leader, error)
                passed = False
            if passed:
                pause_ms = RETRY_MS
                await self._pause(0)
            else:
                await self._pause(pause_ms)
                pause_ms = min(2 * pause_ms, RETRY_MAX_MS)
        self._readers.discard(leader)

    async def _fetch(self, leader: int, mine: list[MetadataPartition]) -> bool:
        """Fetch once. Returns whether all partitions were answered without an error."""
        await self._learn_ends(leader, mine)
        asked = {metadata.index: (metadata, metadata.next_offset) for metadata in mine}
        topic = FetchTopic(
            topic=REMOTE_LOG_METADATA_TOPIC,
            partitions=[
                FetchPartition(partition=index, fetch_offset=position, partition_max_bytes=READ_BYTES)
                for index, (_, position) in asked.items()
            ],
        )
        request = FetchRequest(
            max_wait_ms=RETRY_MS if any(metadata.waiting() for metadata in mine) else FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=RESPONSE_BYTES,
            topics=[topic],
        )
        channel = self._channel(leader, "remote log metadata")
        answer = await channel.send(request, FETCH_WAIT_MS + REQUEST_TIMEOUT_MS, TOPIC_NAMES_TO)
        assert isinstance(answer, FetchResponse)
        if answer.error_code:
            raise BrokerError(known_code(answer.error_code))
        passed = True
        for data in (data for topic in answer.responses for data in topic.partitions):
            metadata, position = asked[data.partition_index]
            # Not if it has another leader meanwhile: that one's task reads it.
            if metadata.leader == leader and metadata.next_offset == position:
                passed = await self._take_fetched(leader, metadata, data) and passed
                if data.records:  # the records of each partition take a turn of their own
                    await self._pause(0)
        return passed

    async def _take_fetched(self, leader: int, metadata: MetadataPartition, data: PartitionData) -> bool:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return await self._look_at_start(leader, metadata)
        error: Exception | None = None
        if data.error_code:
            error = BrokerError(known_code(data.error_code))
        else:
            try:
                self._take(metadata, cast("bytes", data.records or b""))
            except OtherHistoryError:
                return await self._look_at_start(leader, metadata)
            except CorruptBatch as corrupt:
                error = corrupt
        if error is not None:
            self._say("remote log metadata can't be read", metadata.index, error)
        return error is None

    async def _look_at_start(self, leader: int, metadata: MetadataPartition) -> bool:
        """The leader's log doesn't have the next records. Returns False: the next fetch comes after a pause."""
        start = (await self._offsets(leader, [metadata.index], EARLIEST)).get(metadata.index)
        if start is None or metadata.leader != leader:
            return False
        if metadata.next_offset < start <= metadata.position:
            metadata.trust()
        else:
            self._read_anew(metadata, start)
        return False

    async def _learn_ends(self, leader: int, mine: list[MetadataPartition]) -> None:
        """Ask for the ends that waits wait for.

        A fetch tells its high watermark, which may be below what the last leader had committed. ListOffsets answers
        OFFSET_NOT_AVAILABLE then, and is asked again (KIP-207).
        """
        waiting = {metadata.index: (metadata, waits) for metadata in mine if (waits := metadata.waiting())}
        if waiting:
            for index, end_offset in (await self._offsets(leader, list(waiting), LATEST)).items():
                metadata, waits = waiting[index]
                if metadata.leader == leader:
                    metadata.read_up_to(waits, end_offset)

    async def _offsets(self, leader: int, indexes: list[int], timestamp: int) -> dict[int, int]:
        """Ask another leader where its logs begin or end. Returns what it says without an error."""
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes]
        topic = ListOffsetsTopic(name=REMOTE_LOG_METADATA_TOPIC, partitions=partitions)
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        answer = await self._channel(leader, "remote log metadata").send(request, REQUEST_TIMEOUT_MS)
        assert isinstance(answer, ListOffsetsResponse)
        answered = [partition for topic in answer.topics for partition in topic.partitions]
        return {each.partition_index: each.offset for each in answered if not each.error_code}

    def _take(self, metadata: MetadataPartition, data: bytes) -> None:
        def report(place: str, error: Exception) -> None:
            self._say("a record of remote log metadata was passed over", place, error)

        for partition in metadata.take(split_batches(memoryview(data), allow_partial=True), report):
            for watcher in self._watchers:
                watcher(partition)

    def _read_anew(self, metadata: MetadataPartition, log_start_offset: int) -> None:
        """The topic doesn't have the records any more that were read, or not the next ones."""
        self._events.error(
            "remote log metadata that was read, or was next, is gone from its topic: it is read from the start",
            partition=metadata.index,
            position=metadata.position,
            log_start_offset=log_start_offset,
        )
        metadata.reset(log_start_offset)

    # Snapshots

    async def _save_often(self) -> None:
        while True:
            with suppress(OSError):  # a full disk is told of by those that write to it
                await self._runtime.offload(self._reserve.keep)
            await self._pause(SAVE_INTERVAL_MS)
            for metadata in list(self._partitions.values()):
                await self._save(metadata)

    async def _save_left(self, metadata: MetadataPartition) -> None:
        await self._save(metadata)
        self._left.remove(metadata)

    async def _save(self, metadata: MetadataPartition) -> None:
        """Write the snapshot of a partition, if there is news. A failure is logged: the old one is as good."""
        if not metadata.is_loaded or metadata.position == metadata.saved_position or not self._topic_id:
            return
        position, data = await self._steps(Lane.UPKEEP, encode_snapshot(self._topic_id, metadata))
        if position > metadata.position:
            return  # it was reset meanwhile
        path = self._path(metadata.index)
        if len(data) > BYTES_MAX:
            self._say("a snapshot of remote log metadata is too large to be kept", path, None)
            return
        write = self._write_file(path, data)
        await self._ended(write)
        if write.error is None:
            metadata.saved_position = position

    def _write_file(self, path: str, data: bytes) -> Completion[None]:
        done: Completion[None] = Completion()

        async def write() -> None:
            try:
                await self._runtime.offload(write_snapshot, self._runtime.files, path, data)
            except OSError as error:
                self._say("a snapshot of remote log metadata can't be written", path, error)
                done.fail(error)
            else:
                done.complete(None)
            finally:
                self._writes.remove(done)
                if not done.done:
                    done.fail(OSError("the write was cancelled"))

        self._writes.append(done)
        self._runtime.spawn(write(), "write a snapshot of remote log metadata")
        return done

    async def _ended(self, completion: Completion[Any]) -> None:
        """Wait for a completion, whatever its outcome is."""
        over: Completion[None] = Completion()
        completion.when_done(lambda _: over.complete(None))
        await over

    def _path(self, index: int) -> str:
        return f"{self._directory}/{file_name(index)}"

    # Helpers

    def _image_of(self, index: int) -> PartitionImage | None:
        topic = self._topic.image()
        return None if topic is None else topic.partitions.get(index)

    def _channel(self, node_id: int, purpose: str) -> Any:
        listener = next((each.name for each in self._composition.listeners if each.inter_broker), "")
        return self._composition.peers.channel(node_id, listener, purpose)

    def _say(self, event: str, about: object, error: Exception | None) -> None:
        reason = "" if error is None else str(error) or type(error).__name__
        self._repeated.say(self._events.warning, event, (event, about, reason), about=about, error=reason)

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run a task until it ends, or this stops."""
        tasks: list[Task] = []

        async def run() -> None:
            try:
                await work()
            finally:
                self._tasks.pop(tasks[0], None)

        tasks.append(self._runtime.spawn(run(), name))
        self._tasks[tasks[0]] = None

    async def _pause(self, ms: float) -> None:
        over: Completion[None] = Completion()
        timer = self._runtime.call_later(ms, partial(over.complete, None))
        try:
            await over
        finally:
            timer.cancel()

    async def _within(self, ms: float, completion: Completion[Any]) -> bool:
        """Wait for a completion, but not longer. Returns whether it is done; its error is its own."""
        over: Completion[None] = Completion()

        def end(_: object = None) -> None:
            if not over.done:
                over.complete(None)

        timer = self._runtime.call_later(max(ms, 0), end)
        completion.when_done(end)
        try:
            await over
        finally:
            timer.cancel()
        return completion.done

    def _steps(self, lane: Lane, steps: Steps[T]) -> Awaitable[T]:
        outcome: Completion[T] = Completion()

        def finished(result: T, error: BaseException | None) -> None:
            if error is None:
                outcome.complete(result)
            else:
                outcome.fail(error)

        self._runtime.scheduler.run(lane, steps, finished)
        return outcome


def _is_of_storage(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
