"""The scripts of classic groups against Apache Kafka 4.3.1: the same requests, the same answers. Slow: starts Java."""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.wire.api import API_BY_KEY, response_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.headers import put_request_header, response_body_offset
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest
from blumfeld.wire.schema import Message
from tests.coordinator.fakes import FakeLog
from tests.kafka_peer import kafka_on, peer_script
from tests.plugins.groups_classic.classic_trace import Script
from tests.trace_files import text_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPTS = ("errors", "fenced_in_flight", "join", "leave", "same_answer", "static")
NOT_KAFKAS = ("config", "fail", "limit", "reload", "wait")
"""Commands that it can't be told, or that take as long as they say: a script ends there."""
ANSWERED_S_MAX = 0.3
"""What has no answer by then waits for something."""
READY_S_MAX = 60

OURS_ONLY = {
    "leave": ["d sync UNKNOWN_MEMBER_ID"],
    "same_answer": ["b sync REBALANCE_IN_PROGRESS", "a join REBALANCE_IN_PROGRESS id=a-1"],
}
"""Answers to requests that a later one of the same member made void: Kafka leaves them without one."""


class Live:
    """``Groups`` of a broker that runs somewhere: each request on a connection of its own, since some of them wait."""

    def __init__(self, address: str, group_id: str) -> None:
        host, port = address.rsplit(":", 1)
        self.address = (host, int(port))
        self.group_id = group_id
        self.log = FakeLog()
        self.open = selectors.DefaultSelector()

    def send(
        self, request: Message, version: int | None = None, *, client_id: str = "test"
    ) -> Completion[Any]:
        key = request.meta.key
        assert key is not None
        version = API_BY_KEY[key].max_version if version is None else version
        for name, value in (("group_id", self.group_id), ("groups", [self.group_id])):
            if hasattr(request, name) and not isinstance(request, OffsetFetchRequest):
                setattr(request, name, value)
        if hasattr(request, "groups_names"):
            request.groups_names = [self.group_id]
        frame = put_request_header(key, version, 1, client_id) + encode(request, version)
        connection = socket.create_connection(self.address, timeout=5)
        connection.sendall(len(frame).to_bytes(4) + frame)
        answered: Completion[Any] = Completion()
        self.open.register(connection, selectors.EVENT_READ, (key, version, answered))
        self.poll(answered)
        return answered

    def ask(self, request: Message, version: int | None = None, **options: Any) -> Any:
        answered = self.send(request, version, **options)
        self.poll(answered, 10)
        return answered.result()

    def poll(self, wanted: Completion[Any] | None = None, seconds: float = ANSWERED_S_MAX) -> None:
        """Take what was answered; until ``wanted`` is there, if it comes in time."""
        end = time.monotonic() + seconds
        while (wanted is None or not wanted.done) and (left := end - time.monotonic()) > 0:
            for ready, _ in self.open.select(left):
                connection, (key, version, answered) = ready.fileobj, ready.data
                assert isinstance(connection, socket.socket)
                self.open.unregister(connection)
                with connection:
                    body = _read(connection, int.from_bytes(_read(connection, 4)))
                _, start = response_body_offset(memoryview(body), key, version)
                answered.complete(decode(response_class(key), body, version, start))

    def wait_for_coordinator(self) -> None:
        """Until the group's shard is there: a member is unknown then, and not before."""
        end = time.monotonic() + READY_S_MAX
        while self.ask(HeartbeatRequest(member_id="m"), 4).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            assert time.monotonic() < end, "the coordinator does not come"
            time.sleep(0.2)

    def close(self) -> None:
        for waiting in list(self.open.get_map().values()):
            assert isinstance(waiting.fileobj, socket.socket)
            waiting.fileobj.close()
        self.open.close()


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return data


class LiveScript(Script):
    """A script against a live broker."""

    def __init__(self, live: Live) -> None:
        super().__init__()
        self._groups: Any = live

    def run(self, line: str) -> list[str]:
        """With what others are answered because of it."""
        said = super().run(line)
        self._groups.poll(seconds=0.1)
        said, self._said = said + self._said, []
        return said


def said_by(script: Script, text: str) -> Iterator[tuple[str, list[str]]]:
    """(command, answers in alphabetical order) up to the first command that Kafka can't be told."""
    for line in text.splitlines():
        if line.startswith("> "):
            if line.split()[1] in NOT_KAFKAS:
                return
            answers = [said for said in script.run(line[2:]) if not said.startswith("log ")]
            yield line, sorted(answers)


def alike(answers: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """Member ids by the order in which they appeared; members of a list in alphabetical order: Kafka's is a hash's."""
    names: dict[str, str] = {}
    counts: dict[str, int] = {}

    def name(match: re.Match[str]) -> str:
        if match[0] not in names:
            counts[match[1]] = counts.get(match[1], 0) + 1
            names[match[0]] = f"{match[1]}#{counts[match[1]]}"
        return names[match[0]]

    def plain(text: str) -> str:
        text = re.sub(
            r"\b([a-e][0-9]?|one|two|three)-(?:[0-9a-zA-Z_-]{22,36}|[0-9]{1,2})(?![0-9a-zA-Z_-])", name, text
        )
        return re.sub(r"\[([^]]*)\]", lambda members: f"[{' '.join(sorted(members[1].split()))}]", text)

    return [(command, [plain(answer) for answer in said]) for command, said in answers]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where Kafka listens, with the topics that scripts commit to, and the groups' topic on its way."""
    with kafka_on(peer_script(), tmp_path_factory.mktemp("kafka")) as address:
        live = Live(address, "warm-up")
        topics = [CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in ("t", "u")]
        live.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
        live.ask(FindCoordinatorRequest(key="warm-up"), 3)
        live.close()
        yield address


@pytest.mark.parametrize("name", SCRIPTS)
def test_kafka_answers_a_script_as_we_do(name: str, kafka: str) -> None:
    """Every answer to every client, whoever's request brought it about."""
    text = text_of(f"classic_{name}")
    ours = list(said_by(Script(), text))
    for extra in OURS_ONLY.get(name, []):
        answer = next(said for _, said in ours if extra in said)
        answer.remove(extra)
    live = Live(kafka, f"script-{name}-{time.monotonic_ns()}")
    try:
        live.wait_for_coordinator()
        theirs = list(said_by(LiveScript(live), text))
    finally:
        live.close()
    assert alike(theirs) == alike(ours)
