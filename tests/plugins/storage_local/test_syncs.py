"""Promises about a power cut, held against the system calls of a real broker on a real disk.

The simulated disk shows that the syncs that we ask for are enough. Only the kernel can tell whether the process
really asked for them, in time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from blumfeld.testing.process import BrokerProcess
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.produce import ProduceResponse
from campaigns.raw_connection import RawConnection
from tests.broker.batches import batch, produce

TRACED = "fsync,fdatasync,rename,renameat,renameat2,pwrite64,pwritev,pwritev2,write,ftruncate,sendto,sendmsg"
WRITES = frozenset({"pwrite64", "pwritev", "pwritev2", "write"})
SYNCS = frozenset({"fsync", "fdatasync"})
SEE_TIMEOUT_S = 30.0

_LINE = re.compile(r"(?P<pid>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<name>\w+)\()(?P<rest>.*)")
_DESCRIPTOR = re.compile(r"\d+<(?P<path>.*?)>(?:,|\)| <unfinished)")
_NAMES = re.compile(r'"([^"]*)"')
_UNFINISHED = "<unfinished ...>"


class Call(msgspec.Struct):
    """One system call."""

    pid: int
    """Id of the thread that made it."""
    name: str
    path: str
    """Path of the file, or the address of the socket; the old name of a rename."""
    new_path: str
    """The new name of a rename, otherwise empty."""
    begun: int
    """Line of the trace in which the call begins."""
    ended: int
    """Line in which it returns: a call that ended before another began has the smaller number."""
    failed: bool

    @property
    def is_answer(self) -> bool:
        """Whether it sends bytes to a client."""
        return self.name in ("sendto", "sendmsg") and self.path.startswith("TCP")


class Trace:
    """What ``strace`` writes while a broker runs below its :attr:`prefix`."""

    def __init__(self, path: Path) -> None:
        """Nothing is traced yet; skips the test if this machine has no strace, or forbids it."""
        strace = shutil.which("strace")
        if strace is None:
            pytest.skip("strace is not installed")
        probe = subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True, check=False)
        if probe.returncode:
            pytest.skip(f"strace is forbidden here: {probe.stderr.decode(errors='replace').strip()}")
        self.path = path
        options = ["-D", "-f", "--seccomp-bpf", "-yy", "-qq", "-s", "0", "-e", f"trace={TRACED}"]
        self.prefix = [strace, *options, "-o", str(path)]

    def calls(self) -> list[Call]:
        """The calls that have ended so far, in the order of their ends."""
        lines = self.path.read_text(errors="replace").splitlines() if self.path.exists() else []
        return sorted(_parsed(lines), key=lambda call: call.ended)

    def wait_for(self, seen: Callable[[list[Call]], bool]) -> list[Call]:
        """The calls, as soon as ``seen`` says that enough have ended.

        :raises AssertionError: they did not within ``SEE_TIMEOUT_S``; the message has the last calls
        """
        deadline = time.monotonic() + SEE_TIMEOUT_S
        while not seen(calls := self.calls()):
            assert time.monotonic() < deadline, calls[-20:]
            time.sleep(0.02)
        return calls


def _parsed(lines: list[str]) -> Iterator[Call]:
    unfinished: dict[int, Call] = {}
    for number, line in enumerate(lines):
        match = _LINE.match(line)
        if match is None:
            continue
        pid, rest = int(match["pid"]), match["rest"]
        if match["resumed"]:
            call = unfinished.pop(pid)
            call.ended, call.failed = number, " = -1 " in rest
            yield call
            continue
        descriptor = _DESCRIPTOR.match(rest)
        names = _NAMES.findall(rest) if descriptor is None else []
        path = descriptor["path"] if descriptor else names[0] if names else ""
        new_path = names[1] if len(names) > 1 else ""
        call = Call(pid, match["name"], path, new_path, number, number, " = -1 " in rest)
        if rest.endswith(_UNFINISHED):
            unfinished[pid] = call
        else:
            yield call


NO_CONFIGS: dict[str, str] = {}
SEGMENT_BYTES = 1 << 20
METADATA = "__cluster_metadata-0/"


class TracedBroker:
    """A broker under strace with one client, which sends a request only when it has the answer to the one before."""

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        self.folder = folder
        self.trace = Trace(folder / "calls.txt")
        self._process = BrokerProcess(folder, settings=settings, prefix=self.trace.prefix)
        self._process.start()
        self._client = RawConnection(self._process.address, timeout_s=60.0)
        self.requests = 0

    def create(self, topic: str, configs: dict[str, str] = NO_CONFIGS) -> int:
        """Make a topic of one partition; the number of the request."""
        rows = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        new = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=rows)
        answer = self._client.ask(
            CreateTopicsRequest(topics=[new], timeout_ms=30_000), 5, CreateTopicsResponse
        )
        assert answer.topics[0].error_code == 0
        return self._answered()

    def produce(self, topic: str, value: bytes = b"v", acks: int = 1) -> int:
        """Produce one batch; the number of the request."""
        request = produce(batch(value), topic=topic, acks=acks, timeout_ms=30_000)
        answer = self._client.ask(request, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
        return self._answered()

    def calls_of(self, request: int) -> tuple[list[Call], Call]:
        """What ended between the answers before and to this request; and the call that sent its answer."""
        calls = self.trace.wait_for(lambda calls: sum(call.is_answer for call in calls) > request)
        answers = [call for call in calls if call.is_answer]
        since = answers[request - 1].begun if request else -1
        return [call for call in calls if since < call.begun < answers[request].begun], answers[request]

    def stop(self) -> list[Call]:
        """End it cleanly; all its calls on files of its data directory."""
        self._client.close()
        assert self._process.stop() == 0
        data = str(self.folder / "data")
        cleanly = self.trace.wait_for(
            lambda calls: any(call.name == "fsync" and _is_clean_mark(calls, call, data) for call in calls)
        )
        return [call for call in cleanly if call.path.startswith(data)]

    def kill(self) -> None:
        """Leave no process behind."""
        self._client.close()
        self._process.kill()

    def _answered(self) -> int:
        self.requests += 1
        return self.requests - 1


def _is_clean_mark(calls: list[Call], sync: Call, data: str) -> bool:
    """Whether this sync makes the name of the clean-shutdown file last."""
    mark = [call for call in calls if call.new_path.endswith(".kafka_cleanshutdown")]
    return bool(mark) and sync.path == data and sync.begun > mark[-1].ended


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., TracedBroker]]:
    started: list[TracedBroker] = []

    def begin(*settings: str) -> TracedBroker:
        started.append(TracedBroker(tmp_path, settings))
        return started[-1]

    yield begin
    for broker in started:
        broker.kill()
    shutil.rmtree(tmp_path / "data", ignore_errors=True)


def of_file(calls: Sequence[Call], part: str, names: frozenset[str]) -> list[Call]:
    """Calls of these names that succeeded, on files whose path contains this text."""
    return [call for call in calls if call.name in names and part in call.path and not call.failed]


def assert_synced_before_the_answer(broker: TracedBroker, request: int, log: str) -> None:
    """The request's last batch in this log is followed by a sync of its segment that ends before the answer.

    Not the log's other files: recovery makes the leader epochs again from the batches, so their file may come later.
    """
    calls, answer = broker.calls_of(request)
    writes = [call for call in of_file(calls, log, WRITES) if call.path.endswith(".log")]
    assert writes, f"request {request} wrote nothing into {log}"
    last = writes[-1]
    syncs = [c for c in of_file(calls, log, SYNCS) if c.path == last.path and c.begun > last.ended]
    assert syncs, f"request {request} was answered without a sync of {last.path}"
    assert syncs[0].ended < answer.begun


def log_syncs(broker: TracedBroker, request: int, topic: str) -> list[Call]:
    """Syncs of the topic's segments while the request was served."""
    calls, _ = broker.calls_of(request)
    return [call for call in of_file(calls, f"/{topic}-0/", SYNCS) if call.path.endswith(".log")]


def test_an_ack_with_flush_every_comes_after_the_sync_that_covers_it(
    start: Callable[..., TracedBroker],
) -> None:
    """``flush = "every"``: for acks=1 and acks=all alike; the first sync also makes the log's own name last."""
    broker = start('storage.options.flush="every"')
    broker.create("t")
    requests = [broker.produce("t", acks=acks) for acks in (1, -1, 1, -1)]
    for request in requests:
        assert_synced_before_the_answer(broker, request, "/t-0/")
    calls, _ = broker.calls_of(requests[0])
    data = str(broker.folder / "data")
    for directory in (f"{data}/t-0", data):
        assert [call for call in calls if call.name == "fsync" and call.path == directory], directory


def test_an_ack_from_a_new_segment_comes_after_its_name_lasts(start: Callable[..., TracedBroker]) -> None:
    """A roll makes a file. Its bytes are worth nothing after a power cut if the directory doesn't know its name."""
    broker = start('storage.options.flush="every"')
    broker.create("t", {"segment.bytes": str(SEGMENT_BYTES)})
    for _ in range(2):
        request = broker.produce("t", os.urandom(SEGMENT_BYTES * 3 // 4))
    calls, answer = broker.calls_of(request)
    write = of_file(calls, "/t-0/00000000000000000001.log", WRITES)[-1]
    directory = write.path.rpartition("/")[0]
    names = [call for call in calls if call.name == "fsync" and call.path == directory]
    assert [call for call in names if write.ended < call.begun and call.ended < answer.begun]


def test_flush_messages_counts_records_and_other_topics_are_not_synced(
    start: Callable[..., TracedBroker],
) -> None:
    """``flush.messages=1`` syncs each ack, 3 each third. A topic that asks for nothing waits for a roll or the stop."""
    broker = start()
    broker.create("each", {"flush.messages": "1"})
    broker.create("third", {"flush.messages": "3"})
    broker.create("plain")
    for _ in range(3):
        assert_synced_before_the_answer(broker, broker.produce("each"), "/each-0/")
    first, second, third = (broker.produce("third") for _ in range(3))
    assert_synced_before_the_answer(broker, third, "/third-0/")
    plain = [broker.produce("plain", acks=acks) for acks in (1, -1)]
    assert not [call for request in (first, second) for call in log_syncs(broker, request, "third")]
    assert not [call for request in plain for call in log_syncs(broker, request, "plain")]


def test_a_change_of_metadata_is_answered_when_it_is_on_the_device(
    start: Callable[..., TracedBroker],
) -> None:
    """CreateTopics: the records are synced, whatever ``flush`` says of topics. Without the controller's empty records:
    one of them may be the last write before the answer, and is synced behind it.
    """
    broker = start('config."metadata.max.idle.interval.ms"=0')
    for topic in ("a", "b"):
        assert_synced_before_the_answer(broker, broker.create(topic), METADATA)


def test_flush_interval_syncs_what_no_topic_asks_for(start: Callable[..., TracedBroker]) -> None:
    """``flush = "interval"``: without a stop, a roll or a ``flush.ms``."""
    broker = start('storage.options.flush="interval"', "storage.options.flush_interval_ms=50")
    broker.create("plain")
    broker.produce("plain")
    broker.trace.wait_for(lambda calls: bool(of_file(calls, "/plain-0/00000000000000000000.log", SYNCS)))


def test_flush_ms_and_a_roll_sync_without_being_asked(start: Callable[..., TracedBroker]) -> None:
    """``flush.ms`` syncs the log, a roll the sealed segment with both of its indexes. Neither waits for a stop."""
    broker = start()
    broker.create("timed", {"flush.ms": "50"})
    broker.create("rolled", {"segment.bytes": str(SEGMENT_BYTES)})
    broker.produce("timed")
    for _ in range(2):
        broker.produce("rolled", os.urandom(SEGMENT_BYTES * 3 // 4))
    wanted = [f"/rolled-0/00000000000000000000.{suffix}" for suffix in ("log", "index", "timeindex")]
    wanted.append("/timed-0/00000000000000000000.log")
    broker.trace.wait_for(lambda calls: all(of_file(calls, ending, SYNCS) for ending in wanted))


def test_a_clean_stop_syncs_every_log_before_it_says_so(start: Callable[..., TracedBroker]) -> None:
    """The mark of a clean stop makes recovery skip all checks, so it may last only after what it vouches for."""
    broker = start()
    for topic in ("a", "b"):
        broker.create(topic)
        broker.produce(topic)
    calls = broker.stop()
    (mark,) = (call for call in calls if call.new_path.endswith(".kafka_cleanshutdown"))
    for log in ("/a-0/", "/b-0/", f"/{METADATA}"):
        writes = [call for call in of_file(calls, log, WRITES) if call.path.endswith(".log")]
        syncs = [call for call in of_file(calls, log, SYNCS) if call.path == writes[-1].path]
        assert writes[-1].ended < syncs[-1].begun
        assert syncs[-1].ended < mark.begun
    recovery_points = [call for call in calls if call.new_path.endswith("/recovery-point-offset-checkpoint")]
    assert recovery_points[-1].ended < mark.begun


def test_a_small_file_is_on_the_device_before_it_has_its_name_and_the_name_after(
    start: Callable[..., TracedBroker],
) -> None:
    """meta.properties, quorum-state, checkpoints, the mark of a clean stop: all replaced alike.

    A new log's topic id is written anew if it is lost, so its sync comes later, and at the latest with the stop.
    """
    broker = start()
    broker.create("t")
    broker.produce("t")
    calls = broker.stop()
    renames = [call for call in calls if call.path == f"{call.new_path}.tmp"]
    topic_ids = [call for call in renames if call.new_path.endswith("/partition.metadata")]
    assert len(topic_ids) == 2
    for rename in topic_ids:
        renames.remove(rename)
        synced = [call for call in of_file(calls, rename.new_path, SYNCS) if call.begun > rename.ended]
        directory = rename.new_path.rpartition("/")[0]
        named = [call for call in calls if call.name == "fsync" and call.path == directory]
        (mark,) = (call for call in calls if call.new_path.endswith(".kafka_cleanshutdown"))
        assert synced
        assert synced[0].ended < mark.begun
        assert any(synced[0].ended < call.begun and call.ended < mark.begun for call in named)
    names = {call.new_path.rpartition("/")[2] for call in renames}
    assert names >= {
        "meta.properties",
        "bootstrap.checkpoint",
        "quorum-state",
        "leader-epoch-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        ".kafka_cleanshutdown",
    }
    for rename in renames:
        own = [call for call in calls if call.pid == rename.pid]
        at = own.index(rename)
        assert [call.name for call in own[at - 2 : at]] == ["write", "fsync"], rename
        assert own[at - 1].path == rename.path
        after = own[at + 1]
        assert (after.name, after.path) == ("fsync", rename.new_path.rpartition("/")[0]), rename
