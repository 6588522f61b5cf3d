"""Random lives of a tiered partition on a few nodes: the store fails, leaders change, nodes die, logs are cut.

The model is a list of the batches that every node in sync has. After each step what a consumer reads must be a part of
it, each batch once and in order. At the end everything heals: then all of it can be read from the log start on, and the
store holds no object that no record speaks of.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_kit.storage_driver.node import make_batch
from blumfeld_storage_tiered.catalog.segment import SegmentState
from blumfeld_storage_tiered.objects.names import parse_key
from tests.plugins.storage_tiered.tiered_cluster import INTERVAL_MS, PARTITION, TieredCluster

HOUR_MS = 3_600_000


class Violation(AssertionError):  # noqa: N818 - what a simulation finds
    """The log isn't what it must be."""


class Life:
    """One seed."""

    def __init__(self, seed: int, steps: int = 40) -> None:
        self.random = Random(seed)
        self.steps = steps
        retention_bytes = self.random.randrange(1_500, 6_000) if self.random.random() < 0.3 else -1
        self.retains = retention_bytes >= 0
        """Old records expire."""
        self.cluster = TieredCluster(1 + self.random.randrange(3), seed=seed, retention_bytes=retention_bytes)
        self.batches: dict[int, bytes] = {}
        """Base offset → committed batch."""
        self.start_offset = 0
        self.did: list[str] = []

    def run(self) -> None:
        """Live, then heal and look.

        :raises Violation: at a step that :attr:`did` ends with
        """
        acts: list[Callable[[], None]] = [
            self._write, self._write, self._write, self._wait, self._wait, self._round, self._round,
            self._drop_local, self._drop_local, self._elect, self._kill, self._delete_records,
            self._write_alone, self._store_fails, self._store_heals, self._metadata_away, self._read,
            self._open_transaction,
        ]  # fmt: skip
        for _ in range(self.steps):
            act = self.random.choice(acts)
            self.did.append(act.__name__)
            act()
        self._heal()

    # Steps

    def _write(self) -> None:
        cluster = self.cluster
        for _ in range(self.random.randrange(1, 8)):
            cluster.write()
            for batch in cluster.leader.log.batches(max(self.batches, default=0)):
                self.batches[batch.base_offset] = bytes(batch.data)

    def _write_alone(self) -> None:
        """The leader writes what no other node gets before it loses its leadership."""
        cluster = self.cluster
        if len(cluster.nodes) == 1:
            return
        leader, before = cluster.leader, cluster.leader.log.written_end_offset
        for _ in range(self.random.randrange(1, 10)):
            leader.append(make_batch(2, seed=self.random.randrange(250)), cluster.leader_epoch)
        cluster.advance(self.random.randrange(INTERVAL_MS * 2))
        others = [node for node in cluster.nodes if node is not leader]
        cluster.elect(self.random.choice(others))
        leader.truncate_to(before)

    def _wait(self) -> None:
        self.cluster.advance(self.random.choice([10, 100, 1_000, 10_000]) * self.random.random())

    def _round(self) -> None:
        self.cluster.rounds()

    def _drop_local(self) -> None:
        for node in self.cluster.nodes:
            if self.random.random() < 0.7:
                self.cluster.drop_local(node, keep_segments=1 + self.random.randrange(3))

    def _elect(self) -> None:
        self.cluster.elect(self.random.choice(self.cluster.nodes))

    def _kill(self) -> None:
        cluster = self.cluster
        node = self.random.choice(cluster.nodes)
        power_cut = len(cluster.nodes) == 1 and self.random.random() < 0.3
        if power_cut:
            node.flush()
        if node is cluster.leader and len(cluster.nodes) > 1:
            cluster.elect(self.random.choice([other for other in cluster.nodes if other is not node]))
        cluster.bucket.faults.denied_until_ms = 0  # a node doesn't start with credentials that are refused
        cluster.restart(node, power_cut=power_cut)

    def _delete_records(self) -> None:
        if self.random.random() < 0.3:
            log = self.cluster.leader.log
            self.start_offset = self.random.randint(log.log_start_offset, log.written_end_offset)
            self.cluster.delete_records(self.start_offset)

    def _store_fails(self) -> None:
        faults, random = self.cluster.bucket.faults, self.random
        faults.unavailable, faults.throttled = random.random() * 0.2, random.random() * 0.2
        faults.slow, faults.lost_answer = random.random() * 0.1, random.random() * 0.2
        faults.cut_upload = random.random() * 0.3
        faults.stale_list_ms = random.choice([0, 1_000, 60_000])
        faults.clock_skew_ms = random.choice([0, -600_000, 600_000])
        if random.random() < 0.3:
            faults.away_until_ms = self.cluster.leader.runtime.monotonic_ms() + random.randrange(HOUR_MS)
        if random.random() < 0.2:
            faults.denied_until_ms = self.cluster.leader.runtime.monotonic_ms() + random.randrange(600_000)

    def _store_heals(self) -> None:
        self.cluster.bucket.faults.heal()

    def _metadata_away(self) -> None:
        self.cluster.metadata.away = self.random.random() < 0.5

    def _open_transaction(self) -> None:
        """A transaction is open from somewhere on, or none is."""
        cluster = self.cluster
        end = cluster.leader.log.written_end_offset
        stable = max(cluster.last_stable_offset or 0, end - self.random.randrange(40))
        cluster.last_stable_offset = stable if self.random.random() < 0.5 else None

    def _read(self) -> None:
        """Read from anywhere: what comes is right, if the store answers."""
        log = self.cluster.leader.log
        if log.written_end_offset > log.log_start_offset:
            offset = self.random.randrange(log.log_start_offset, log.written_end_offset)
            self._check(self.cluster.read_some(offset), offset)

    # What must hold

    def _check(self, batches: list[RecordBatch], offset: int) -> None:
        for batch in batches:
            if not batch.base_offset <= offset < batch.next_offset:
                raise Violation(f"at {offset} a read gives {batch.base_offset}..{batch.next_offset}")
            if self.batches.get(batch.base_offset) != bytes(batch.data):
                raise Violation(f"the batch at {batch.base_offset} isn't the one that was written")
            offset = batch.next_offset

    def _heal(self) -> None:
        cluster = self.cluster
        cluster.bucket.faults.heal()
        cluster.metadata.away, cluster.last_stable_offset = False, None
        cluster.rounds(3)
        for _ in range(8):
            cluster.advance(HOUR_MS / 2)
        for node in cluster.nodes:
            cluster.drop_local(node)
        log = cluster.leader.log
        if log.log_start_offset < self.start_offset or (
            log.log_start_offset > self.start_offset and not self.retains
        ):
            raise Violation(f"the log starts at {log.log_start_offset}, not {self.start_offset}")
        base = log.segments()[-1].base_offset
        if log.copied_end_offset < base and base > log.log_start_offset:
            raise Violation(f"copied up to {log.copied_end_offset}, not {base}")
        for node in cluster.nodes:
            cluster.elect(node)
            cluster.advance(1_000)
            batches = cluster.read_all(node)
            self._check(batches, log.log_start_offset)
            end = batches[-1].next_offset if batches else log.written_end_offset
            if end != log.written_end_offset:
                raise Violation(f"node {node.node_id} reads up to {end}, not {log.written_end_offset}")
        self._check_orphans()

    def _check_orphans(self) -> None:
        cluster = self.cluster
        catalog = cluster.leader.metadata.catalog(PARTITION)
        assert catalog is not None
        for segment in catalog:
            if segment.state is not SegmentState.COPY_FINISHED:
                raise Violation(f"segment {segment.start_offset} is left in {segment.state.name}")
        for key in cluster.segment_keys():
            name = parse_key(key)
            if name is None or catalog.get(name[0].segment_id) is None:
                raise Violation(f"orphan {key}")
        # Two nodes may delete the same segment: the second one finds it gone.
        refused = [told for told in cluster.metadata.refused if "DELETE_" not in told]
        if refused:
            raise Violation(f"refused records: {refused[0]}")


def live(seed: int) -> None:
    """Live one life.

    :raises AssertionError: with the seed and the steps
    """
    life = Life(seed)
    try:
        life.run()
    except Exception as error:
        raise AssertionError(f"seed {seed}, after {' '.join(life.did)}: {error}") from error
