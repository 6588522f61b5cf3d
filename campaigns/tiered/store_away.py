"""A store that is away for minutes: producers, readers of the disk and readers of the remote part feel what they may.

The store is moto behind a door (:mod:`campaigns.door`). It refuses connections for the first half of the time,
and takes them without a word for the second.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, pairwise
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, TopicPartition

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import FetchResponse
from campaigns.clients.load.acknowledged_records import Account
from campaigns.clients.load.load import Load
from campaigns.clients.load.producers import CUT_SHORT_S
from campaigns.door import Door, Way
from campaigns.raw_connection import ConnectionEnded, RawConnection
from campaigns.raw_requests import FETCH_VERSION, fetch_request
from campaigns.tiered.kills import BigRecords
from campaigns.tiered.nodes import TieredNodes
from campaigns.tiered.s3 import s3_behind_a_door
from campaigns.waits import await_true

BUCKET = "away"
TOPIC = "load"
RATE_PER_S = 150.0
CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "500",
}
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret"}
HISTORY_S = 15.0
"""Seconds under load before the store goes away."""
FETCH_WAIT_MS = 500
BOUND_S = 5.0
"""Longest time of one answer to a fetch of the remote part: 500 ms, and what a busy machine adds."""
TAIL_S = 5.0
"""Longest time between two records of a consumer at the end, where no node dies."""
CATCH_UP_S = 600.0
KILL_EVERY_S = 20.0
RETRIABLE = {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}


class AwayReport(msgspec.Struct, kw_only=True):
    """One run."""

    nodes: int
    away_s: float
    kills: int
    account: Account
    pause_s: float
    """Longest time between two acknowledgements while the store was away."""
    tail_pause_s: float
    """The same for the records of a consumer at the end of the log."""
    remote_answers: dict[str, int]
    """Answers to fetches of the remote part while the store was away, by error."""
    remote_answer_s: float
    """The slowest of these."""
    pending_mb: float
    """Not copied when the store came back."""
    caught_up_s: float
    verified: str
    wrong: list[str]


class Tail(threading.Thread):
    """A consumer at the end of the log, and the instants at which records came."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="tail", daemon=True)
        self.times: list[float] = []
        self._servers = bootstrap
        self._done = threading.Event()

    def run(self) -> None:
        """Read until told to end."""
        settings = {"bootstrap.servers": self._servers, "group.id": "tail", "enable.auto.commit": False}
        consumer = Consumer({**settings, "auto.offset.reset": "latest", "log_level": 0})
        consumer.assign([TopicPartition(TOPIC, 0)])
        while not self._done.is_set():
            if any(message.error() is None for message in consumer.consume(500, timeout=0.2)):
                self.times.append(time.monotonic())
        consumer.close()

    def finish(self) -> None:
        """End."""
        self._done.set()
        if self.is_alive():
            self.join(30)


class ColdReader(threading.Thread):
    """Asks for records that only the store has, and notes each answer and how long it took."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(name="cold", daemon=True)
        self.answers: Counter[str] = Counter()
        self.slowest_s = 0.0
        self.wrong: list[str] = []
        self._addresses = addresses
        self._done = threading.Event()

    def run(self) -> None:
        """Ask each node in turn until told to end."""
        while not self._done.wait(0.2):
            for address in self._addresses:
                self._ask(address)

    def _ask(self, address: str) -> None:
        request = fetch_request(TOPIC, 0, max_wait_ms=FETCH_WAIT_MS)
        try:
            with RawConnection(address) as connection:
                began = time.monotonic()
                answer = connection.ask(request, FETCH_VERSION, FetchResponse)
        except TimeoutError:
            self.wrong.append(f"{address}: no answer to a fetch of the remote part in 15 s")
            return
        except (OSError, ConnectionEnded):
            return  # the node is dead
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        [data] = answer.responses[0].partitions
        code = ErrorCode(data.error_code)
        self.answers[code.name + (", with records" if data.records else "")] += 1
        if code not in RETRIABLE:
            self.wrong.append(f"{address}: a fetch of the remote part was answered with {code.name}")

    def finish(self) -> None:
        """End."""
        self._done.set()
        if self.is_alive():
            self.join(30)


class StoreAway:
    """One run in a new folder."""

    def __init__(self, folder: Path, nodes: int, away_s: float, door: Door, seed: int) -> None:
        """:param folder: of the nodes"""
        store = f"s3://{BUCKET}/nodes{nodes}"
        more = f'[storage.options.s3]\nendpoint = "http://127.0.0.1:{door.port}"\nregion = "us-east-1"\n'
        self._nodes = TieredNodes(folder, nodes, store, more)
        self._away_s, self._door = away_s, door
        self._fate = random.Random(f"away/{nodes}/{seed}")
        self._load = Load(self._nodes.cluster.addresses, 1, RATE_PER_S, TOPIC, BigRecords)
        self._kills = 0

    def run(self) -> AwayReport:
        """Take the store away, and bring it back.

        :raises NodeError: a node doesn't start, or doesn't come back
        :raises NoLoadError: the nodes take no records at first
        """
        nodes, load = self._nodes.cluster.nodes, self._load
        addresses = self._nodes.cluster.addresses
        tail, cold = Tail(addresses), ColdReader(addresses.split(","))
        try:
            self._nodes.cluster.start()
            load.make_topic(len(nodes), CONFIG)
            load.start()
            time.sleep(HISTORY_S)
            began = time.monotonic()
            tail.start()
            time.sleep(3)
            self._door.set(Way.SHUT)
            cold.start()
            self._hurt(self._away_s / 2)
            self._door.set(Way.MUTE)
            self._hurt(self._away_s / 2)
            back = time.monotonic()
            cold.finish()
            pauses = [longest_pause(times, began, back) for times in (chain(*load.ack_times), tail.times)]
            self._door.set(Way.OPEN)
            pending_mb = self._pending_bytes() / 1e6
            caught_up = await_true(lambda: self._pending_bytes() < 2 << 20, CATCH_UP_S, 0.5)
            caught_up_s = time.monotonic() - back
            load.finish()
            tail.finish()
            wrong = [*cold.wrong]
            if not caught_up:
                wrong.append(f"{self._pending_bytes() / 1e6:.1f} MB aren't copied {CATCH_UP_S:.0f} s later")
            return self._report(cold, pauses, pending_mb, caught_up_s, wrong)
        finally:
            self._door.set(Way.OPEN)
            load.finish(CUT_SHORT_S)
            tail.finish()
            self._nodes.cluster.stop()

    def _hurt(self, seconds: float) -> None:
        """Let the time pass. In a cluster a node is killed and started again, now and then."""
        ends = time.monotonic() + seconds
        nodes = self._nodes.cluster.nodes
        while len(nodes) > 1 and time.monotonic() + KILL_EVERY_S < ends:
            time.sleep(KILL_EVERY_S / 2)
            leader = self._leader()
            node = self._nodes.cluster.node(leader) if leader > 0 else self._fate.choice(nodes)
            node.kill()
            self._kills += 1
            time.sleep(KILL_EVERY_S / 4)
            node.start()
            time.sleep(KILL_EVERY_S / 4)
        time.sleep(max(0.0, ends - time.monotonic()))

    def _leader(self) -> int:
        """Return the node that leads the partition; -1 if nobody says."""
        return leader_of(self._nodes.cluster.addresses)

    def _pending_bytes(self) -> int:
        """Return what isn't copied, as ``blumfeld tiered status`` tells it."""
        command = [sys.executable, "-m", "blumfeld.cli.main", "tiered", "status", str(self._nodes.manifest)]
        command += ["--json", "--bootstrap", self._nodes.cluster.brokers[0].place.address]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        topics = [json.loads(line) for line in ended.stdout.splitlines()]
        return next((topic["pending_bytes"] for topic in topics if topic["topic"] == TOPIC), 1 << 40)

    def _report(
        self,
        cold: ColdReader,
        pauses: list[float],
        pending_mb: float,
        caught_up_s: float,
        wrong: list[str],
    ) -> AwayReport:
        load, nodes = self._load, self._nodes.cluster.nodes
        pause_s, tail_pause_s = pauses
        if len(nodes) == 1 and max(pauses) > TAIL_S:
            wrong.append(f"{pause_s:.1f} s without an acknowledgement, {tail_pause_s:.1f} s without a record")
        if cold.slowest_s > BOUND_S:
            wrong.append(f"a fetch of the remote part took {cold.slowest_s:.1f} s")
        if not cold.answers:
            wrong.append("no fetch of the remote part was answered")
        account = load.account()
        verified = ""

        def is_clean() -> bool:
            nonlocal verified
            done, verified = self._nodes.verify()
            return done

        if not await_true(is_clean, 180, 1.0):
            wrong.append(f"the store isn't clean: {verified}")
        wrong += [*load.wrong, *(f"{count} records were given up: {e}" for e, count in load.given_up.items())]
        wrong += [traceback for node in nodes if (traceback := node.traceback())]
        return AwayReport(
            nodes=len(nodes),
            away_s=self._away_s,
            kills=self._kills,
            account=account,
            pause_s=round(pause_s, 2),
            tail_pause_s=round(tail_pause_s, 2),
            remote_answers=dict(cold.answers),
            remote_answer_s=round(cold.slowest_s, 2),
            pending_mb=round(pending_mb, 1),
            caught_up_s=round(caught_up_s, 1),
            verified=verified.splitlines()[-1] if verified else "",
            wrong=wrong,
        )


def longest_pause(times: Iterable[float], began: float, ended: float) -> float:
    """Return the longest time between two instants of a period, its begin and its end included."""
    within = sorted(at for at in times if began < at < ended)
    return max(later - earlier for earlier, later in pairwise([began, *within, ended]))


def leader_of(bootstrap: str) -> int:
    """Return the leader of the topic's partition; -1 if nobody says in time."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return int(admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0].leader)
    except Exception:
        return -1


def take_away(folder: Path, nodes: int, away_s: float, seed: int) -> AwayReport:
    """Run it with a store of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    before: Mapping[str, str | None] = {name: os.environ.get(name) for name in KEYS}
    os.environ.update(KEYS)
    try:
        with s3_behind_a_door(folder, BUCKET) as door:
            return StoreAway(folder / "nodes", nodes, away_s, door, seed).run()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
