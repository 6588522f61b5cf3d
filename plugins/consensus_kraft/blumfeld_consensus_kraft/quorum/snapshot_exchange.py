"""A replica that the leader's log can't bring up to date takes a snapshot instead (KIP-630): both sides of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from blumfeld.metadata.image.checkpoint import CheckpointId
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.wire.codec import leave_out
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.fetch_snapshot import FetchSnapshotRequest
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.quorum.driver import RaftDriver
from blumfeld_consensus_kraft.quorum.log_reopener import LogReopener
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_consensus_kraft.snapshot_fetcher import SnapshotFetcher
from blumfeld_consensus_kraft.snapshot_server import KnownLeader, serve_snapshot
from blumfeld_consensus_kraft.snapshot_source import SnapshotSource
from blumfeld_consensus_kraft.stored_state import Loaded

DOWNLOAD_RETRY_MS = 1_000
"""Pause after a download that failed, before the leader is asked again how to go on."""


class SnapshotExchange:
    """Fetches snapshots for this replica, and serves them to others.

    :param taken_over: called with what a snapshot holds, when the log goes on behind it
    """

    def __init__(
        self,
        composition: Composition,
        driver: RaftDriver,
        log: RaftLog,
        events: EventLog,
        reopening: LogReopener,
        listener: str,
        taken_over: Callable[[Loaded], None],
    ) -> None:
        self._composition = composition
        self._driver = driver
        self._log = log
        self._events = events
        self._reopener = reopening
        self._listener = listener
        self._taken_over = taken_over
        self._timeout_ms = composition.config.int("controller.quorum.request.timeout.ms")
        self._source = SnapshotSource(composition.runtime, log.snapshots)
        self._fetcher = SnapshotFetcher(
            composition.runtime,
            log.snapshots,
            self._ask,
            cluster_id=composition.cluster_id,
            replica=(composition.node_id, driver.raft.me.directory_id),
            alive=driver.leader_is_there,
            fetched=self._fetched,
            failed=self._failed,
            bytes_max=composition.config.int("controller.quorum.fetch.snapshot.max.bytes"),
            section_kinds=SectionKinds(composition.image_sections),
        )

    def download(self, effect: effects.Download) -> None:
        """Fetch a snapshot from the leader."""
        snapshot = CheckpointId(effect.snapshot.end_offset, effect.snapshot.epoch)
        self._events.info("fetching a metadata snapshot", leader_id=effect.leader_id, snapshot=snapshot.name)
        self._fetcher.fetch(effect.leader_id, effect.epoch, snapshot)

    def stop(self) -> None:
        """Fetch nothing any more: another leader, or the end of this node."""
        self._fetcher.stop()

    def serve(self, request: FetchSnapshotRequest, version: int, listener: str) -> Completion[Message]:
        """Answer a follower. Only the leader has snapshots for others; a part that it gives counts as a fetch.

        :param version: the request's, which the answer has, too
        :param listener: the one by which the request came
        Fails with BrokerError: INCONSISTENT_CLUSTER_ID, KAFKA_STORAGE_ERROR.
        """
        if request.cluster_id not in (None, self._composition.cluster_id):
            raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID)
        served: Completion[Message] = Completion()
        self._composition.runtime.spawn(
            self._serve(request, version, listener, served), "serve a metadata snapshot"
        )
        return served

    async def _serve(
        self, request: FetchSnapshotRequest, version: int, listener: str, served: Completion[Message]
    ) -> None:
        raft = self._driver.raft
        nodes = self._driver.leader_node(raft.leader_id, listener)
        known = KnownLeader(raft.leader_id, raft.epoch, raft.leadership is not None, nodes)
        try:
            answer = await serve_snapshot(request, self._source, known)
        except OSError as error:
            self._events.error("a metadata snapshot can't be read", error=str(error))
            served.fail(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR))
            return
        if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            directory_id = request.topics[0].partitions[0].replica_directory_id
            self._driver.took_snapshot(ReplicaKey(request.replica_id, directory_id))
        leave_out(answer, version)
        served.complete(answer)

    def _ask(self, leader_id: int, request: Message) -> Completion[Message]:
        channel = self._composition.peers.channel(
            leader_id, self._listener, "quorum-snapshot", self._driver.endpoints
        )
        return channel.send(request, self._timeout_ms)

    def _fetched(self, epoch: int, snapshot: CheckpointId, loaded: Loaded) -> None:
        change = partial(self._log.truncate_fully_to, *snapshot)
        done = partial(self._goes_on, snapshot, loaded)
        try:
            change()
        except ValueError as error:
            self._failed(epoch, error)
        except OSError as error:
            self._reopener.broken_off(error, done, again=change)
        else:
            done()

    def _goes_on(self, snapshot: CheckpointId, loaded: Loaded) -> None:
        self._events.info("the metadata log goes on behind a fetched snapshot", snapshot=snapshot.name)
        self._driver.replaced_by_snapshot(loaded)
        self._taken_over(loaded)
        self._driver.log_changed()

    def _failed(self, epoch: int, error: Exception) -> None:
        self._events.warning("a metadata snapshot can't be had", error=str(error) or type(error).__name__)
        self._composition.runtime.call_later(DOWNLOAD_RETRY_MS, partial(self._driver.download_failed, epoch))
