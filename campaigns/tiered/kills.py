"""kill -9 of nodes at random moments of copies, deletions and cache writes, and the account afterwards."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from campaigns.clients.load.acknowledged_records import Account, AcknowledgedRecords
from campaigns.clients.load.load import Load
from campaigns.clients.load.log_contents import UnreadableError, read_partition
from campaigns.clients.load.producers import CUT_SHORT_S, Librdkafka
from campaigns.tiered.nodes import TieredNodes
from campaigns.waits import await_true

KEPT, SHORT = "kept", "short"
"""A topic of which nothing expires, and one whose remote segments are deleted all the time."""
PARTITIONS = 2
RECORD = b"%d %02000d"
TOPIC_CONFIG = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "1"}
SHORT_RETENTION_BYTES = 3 << 20
SERVE_S = (0.2, 2.5)
"""All nodes serve so long before a kill, at least and at most."""
SWEPT_S = 90.0
"""Longest time until no object is left that no record speaks of."""


class BigRecords(Librdkafka):
    """Records of 2 KB, so that segments of the smallest size fill in a second."""

    def record(self, nth: int, number: int) -> tuple[bytes | None, bytes]:
        """As :meth:`Librdkafka.record`."""
        return None, RECORD % (number, number)


class KillReport(msgspec.Struct, kw_only=True):
    """One run."""

    nodes: int
    kills: int
    in_pieces: int
    """Kills after which the store held a segment without its manifest."""
    account: Account
    kept_from: dict[str, int]
    """First offset of each partition that lost records to its retention."""
    remote_segments: int
    reads: int
    """Records that the reader beside the load was served."""
    verified: str
    seconds: float
    wrong: list[str]


class Reader:
    """Reads a topic from offset 0 again and again, through all kills: the cache is written all the time."""

    def __init__(self, bootstrap: str) -> None:
        self.reads = 0
        self.wrong: list[str] = []
        self._bootstrap = bootstrap
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """Read no more."""
        self._done.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._done.is_set():
            for partition in range(PARTITIONS):
                self._read(partition)

    def _read(self, partition: int) -> None:
        next_offset = 0
        try:
            for message in read_partition(self._bootstrap, KEPT, partition, limit_s=30):
                if message.offset() != next_offset:
                    self.wrong.append(
                        f"reader: {KEPT}-{partition}: {message.offset()} after {next_offset - 1}"
                    )
                next_offset = (message.offset() or 0) + 1
                self.reads += 1
                if self._done.is_set():
                    return
        except UnreadableError:
            return  # nodes were dead; the account reads all of it


class Kills:
    """One run in a new folder. Moments and nodes are drawn from the seed."""

    def __init__(
        self,
        folder: Path,
        nodes: int,
        kills: int,
        seed: int,
        rate_per_s: float,
        settings: Sequence[str] = (),
    ) -> None:
        """:param settings: ``section.key=value``, laid over the nodes' manifest"""
        self._nodes = TieredNodes(folder, nodes, settings=settings)
        self._kills = kills
        self._fate = random.Random(f"tiered/{nodes}/{seed}")
        bootstrap = self._nodes.cluster.addresses
        self._kept = Load(bootstrap, PARTITIONS, rate_per_s, KEPT, BigRecords)
        self._short = Load(bootstrap, PARTITIONS, rate_per_s / 2, SHORT, BigRecords)
        self._reader = Reader(bootstrap)
        self._bootstrap = bootstrap
        self._in_pieces = 0

    def run(self) -> KillReport:
        """All kills and the account. Nodes and clients are gone when this returns.

        :raises NodeError: a node does not come back
        :raises NoLoadError: it takes no records
        """
        began = time.monotonic()
        cluster = self._nodes.cluster
        loads = (self._kept, self._short)
        try:
            cluster.start()
            replicas = len(cluster.nodes)
            self._kept.make_topic(replicas, TOPIC_CONFIG)
            self._short.make_topic(replicas, TOPIC_CONFIG | {"retention.bytes": str(SHORT_RETENTION_BYTES)})
            for load in loads:
                load.start()
            self._reader.start()
            for _ in range(self._kills):
                self._kill()
            for load in loads:
                load.finish()
            self._reader.finish()
            return self._report(began)
        finally:
            for load in loads:
                load.finish(CUT_SHORT_S)
            cluster.stop()

    def _kill(self) -> None:
        time.sleep(self._fate.uniform(*SERVE_S))
        node = self._fate.choice(self._nodes.cluster.nodes)
        node.kill()
        self._in_pieces += self._nodes.segments_in_pieces() > 0
        node.start()
        # The producer gets on before the next kill, or the run would be one long pause.
        self._kept.await_acks(time.monotonic(), 30)

    def _report(self, began: float) -> KillReport:
        verified = ""

        def is_swept() -> bool:
            nonlocal verified
            done, verified = self._nodes.verify()
            return done

        swept = await_true(is_swept, SWEPT_S, 1.0)
        account = self._kept.account()
        kept_from = self._check_short(account)
        wrong = [*self._kept.wrong, *self._short.wrong, *self._reader.wrong]
        if not swept:
            wrong.append(f"after {SWEPT_S:.0f} s the store isn't clean: {verified}")
        for load in (self._kept, self._short):
            wrong += [f"{count} records were given up: {error}" for error, count in load.given_up.items()]
        wrong += [said for node in self._nodes.cluster.nodes if (said := node.traceback())]
        return KillReport(
            nodes=len(self._nodes.cluster.nodes),
            kills=self._kills,
            in_pieces=self._in_pieces,
            account=account,
            kept_from=kept_from,
            remote_segments=len(list(self._nodes.store.glob("*/*.manifest"))),
            reads=self._reader.reads,
            verified=verified.splitlines()[-1] if verified else "",
            seconds=time.monotonic() - began,
            wrong=wrong,
        )

    def _check_short(self, account: Account) -> dict[str, int]:
        """Hold what retention has left against what was acknowledged from there on."""
        starts: dict[str, int] = {}
        for partition, offsets in enumerate(self._short.acknowledged_records.offsets):
            try:
                log = [
                    (message.offset() or 0, int((message.value() or b"").split()[0]))
                    for message in read_partition(self._bootstrap, SHORT, partition)
                ]
            except UnreadableError as error:
                self._short.wrong.append(str(error))
                continue
            start, first = log[0]
            starts[f"{SHORT}-{partition}"] = start
            left = AcknowledgedRecords(PARTITIONS)
            left.offsets[partition] = {number: at for number, at in offsets.items() if number >= first}
            left.check(partition, log, account)
            self._short.wrong += left.wrong
        return starts
