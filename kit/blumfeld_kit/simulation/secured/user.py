"""A user: logs in under one name or another, tries what it may do and what it may not, and outstays its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from blumfeld.client.metadata import ClusterView
from blumfeld.client.produce import one_batch, only_outcome
from blumfeld.spi.runtime import Random
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.messages.metadata import MetadataResponse
from blumfeld.wire.messages.produce import ProduceResponse
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import EPOCH_MS, FakeRuntime
from blumfeld_kit.simulation.clients.client import ClientConnection, Reach, connect
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.clients.reads import BYTES_MAX, FETCH_VERSION, shown
from blumfeld_kit.simulation.clients.routes import (
    CONNECT_S_MAX,
    FIND_COORDINATOR_VERSION,
    METADATA_VERSION,
    RETRY_S,
)
from blumfeld_kit.simulation.machine.host import ADDRESS, Machine
from blumfeld_kit.simulation.secured.administrator import ACL_VERSION, ANY_ACL
from blumfeld_kit.simulation.secured.logins import AGAIN_AT, LoginRefusedError, log_in
from blumfeld_kit.simulation.secured.passwords import USERS, Passwords
from blumfeld_kit.simulation.secured.rights import (
    ALTER,
    CLUSTER,
    CLUSTER_NAME,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    WRITE,
    State,
    Wanted,
)
from blumfeld_kit.simulation.secured.verdicts import Moment, SecuredOracle, Verdicts
from blumfeld_security.sasl.peer_login import PeerLogin

R = TypeVar("R", bound=Message)
T = TypeVar("T")

PAUSE_S = 0.1
REQUESTS_MAX = 60
"""Requests of one session at most."""
TOKEN_CHANCE, OLD_CHANCE = 0.25, 0.15
"""Probability that a login is by a delegation token, and by any password of the user. The others are by the newest."""
IMPOSTOR_CHANCE = 0.1
"""Probability that an impostor tries another name before its next request."""
LEADER_CHANCE = 0.75
"""Probability that a session is with the leader of the partition that it is about."""
WAIT_MS = (0, 300, 1_500)
CLOCK_RATE_MAX = 1.3
"""Beyond it a session has ended by any node's clock: the slowest one runs at 0.8."""
PRODUCE_VERSION = 9
LIST_OFFSETS_VERSION = 6
NOTHING = replace(ANY_ACL, resource_name_filter="no ACL has this name")


class Habit(Enum):
    """The way in which a user comes to the end of its sessions."""

    DILIGENT = auto()
    """It logs in again in time."""
    NEGLIGENT = auto()
    """It doesn't, and goes on."""
    IMPOSTOR = auto()
    """It logs in again as another user."""


class Proof(NamedTuple):
    """A proof of a user's identity."""

    name: str
    login: PeerLogin
    counts: Callable[[State], bool]
    """Whether it counts in a state."""


class Place(NamedTuple):
    """The machines and partitions of a cluster, as a user needs them."""

    brokers: Sequence[Machine]
    partitions: Sequence[TopicPartition]
    leader: Callable[[TopicPartition], Machine | None]


class Session:
    """A connection that is logged in."""

    def __init__(
        self,
        connection: ClientConnection,
        machine: Machine,
        user: str,
        lifetime_s: float | None,
        now_s: float,
    ) -> None:
        self.connection = connection
        self.machine = machine
        self.user = user
        self.lifetime_s = lifetime_s
        self.began_s = now_s

    def is_over(self, now_s: float, part: float) -> bool:
        """Whether this part of the session's length is over."""
        return self.lifetime_s is not None and now_s > self.began_s + part * self.lifetime_s


class User:
    """A user. Run :meth:`run` as a task.

    :param address: its machine
    """

    def __init__(
        self,
        name: str,
        address: str,
        network: Reach,
        random: Random,
        place: Place,
        oracle: SecuredOracle,
        verdicts: Verdicts,
        passwords: Passwords,
        runtime: FakeRuntime,
    ) -> None:
        self._name = name
        self._address = address
        self._network = network
        self._random = random
        self._place = place
        self._oracle = oracle
        self._verdicts = verdicts
        self._passwords = passwords
        self._runtime = runtime
        self._positions = dict.fromkeys(place.partitions, 0)
        self._number = 0

    # Sessions

    async def run(self, until_s: float) -> None:
        """Visit one broker after the other until then."""
        loop = self._network.loop
        while loop.time() < until_s:
            try:
                await self._visit(until_s)
            except OSError:
                await asyncio.sleep(RETRY_S)

    async def _visit(self, until_s: float) -> None:
        """Have one session. :raises OSError: it ended, or there was none"""
        random = self._random
        partition = self._any(self._place.partitions)
        leader = self._place.leader(partition)
        machine = self._any(self._place.brokers)
        if leader is not None and random.random() < LEADER_CHANCE:
            machine = leader
        user = self._any(USERS)
        session = await self.enter(machine, user, self._any_proof(user))
        habit = self._any(tuple(Habit))
        try:
            for _ in range(1 + random.randrange(REQUESTS_MAX)):
                if self._network.loop.time() >= until_s:
                    break
                if habit is Habit.DILIGENT and session.is_over(self._network.loop.time(), AGAIN_AT):
                    await self._enter_again(session)
                if habit is Habit.IMPOSTOR and random.random() < IMPOSTOR_CHANCE:
                    await self._enter_as_another(session)
                await self._any(self._requests())(session, partition)
                await asyncio.sleep(random.random() * 2 * PAUSE_S)
        finally:
            if session.connection.is_open:
                session.connection.close()

    async def enter(self, machine: Machine, user: str, proof: Proof | None = None) -> Session:
        """Connect and log in, by the newest password if not otherwise. :raises OSError: there is no way, or the login
        is refused"""
        try:
            at = (machine.address, ADDRESS[1])
            connection = await asyncio.wait_for(connect(self._network, at, self._name), CONNECT_S_MAX)
        except TimeoutError:
            raise ConnectionError(f"no connection to {machine.address}") from None
        try:
            lifetime_s = await self._log_in(connection, machine, user, proof or self._by_password(user))
        except OSError:
            if connection.is_open:
                connection.close()
            raise
        return Session(connection, machine, user, lifetime_s, self._network.loop.time())

    async def _log_in(
        self, connection: ClientConnection, machine: Machine, user: str, proof: Proof
    ) -> float | None:
        since = self._verdicts.now(machine)
        try:
            lifetime_s = await log_in(connection, proof.login)
        except LoginRefusedError:
            self._oracle.counts["logins refused"] += 1
            self._verdicts.expect(
                since, lambda state: not proof.counts(state), f"a wrong {proof.name} of {user}"
            )
            raise
        self._oracle.counts[f"logins by {proof.name}"] += 1
        self._verdicts.expect(since, proof.counts, f"a {proof.name} of {user}")
        return lifetime_s

    def _by_password(self, user: str, *, newest: bool = True) -> Proof:
        number = self._passwords.newest[user]
        if not newest:
            number = self._random.randrange(number + 1)
        key = self._passwords.key(user, number)
        login = self._passwords.login(self._runtime, user, number)
        return Proof("password", login, lambda state: state.keys.get(user) == key)

    def _any_proof(self, user: str) -> Proof:
        """Return the newest password, an older one, or a delegation token, if the user has had one."""
        drawn = self._random.random()
        tokens = [token for token in self._passwords.tokens.values() if token.owner == user]
        if tokens and drawn < TOKEN_CHANCE:
            token = self._any(tokens)
            return Proof("token", token.login(self._runtime), lambda state: token.token_id in state.tokens)
        return self._by_password(user, newest=drawn < 1 - OLD_CHANCE)

    async def _enter_as_another(self, session: Session) -> None:
        """Log in again as another user. :raises OSError: it is refused, or the connection is lost"""
        other = self._any([each for each in USERS if each != session.user])
        login = self._passwords.login(self._runtime, other, self._passwords.newest[other])
        try:
            await log_in(session.connection, login)
        except LoginRefusedError:
            await self._is_shut(session)
            raise
        raise ViolationError(f"{session.machine.address} let {session.user} log in again as {other}")

    async def _enter_again(self, session: Session) -> None:
        """Log in again. :raises OSError: it is refused, or the connection is lost"""
        try:
            proof = self._by_password(session.user)
            lifetime_s = await self._log_in(session.connection, session.machine, session.user, proof)
        except LoginRefusedError:
            await self._is_shut(session)
            raise
        self._oracle.counts["logins again"] += 1
        session.lifetime_s, session.began_s = lifetime_s, self._network.loop.time()

    async def _is_shut(self, session: Session) -> None:
        """Check that nothing is served behind a refused login."""
        counts = self._oracle.counts
        counts["logins again refused"] += 1
        try:
            await session.connection.ask(ClusterView.request([]), METADATA_VERSION, MetadataResponse)
        except OSError:
            return
        raise ViolationError(f"{session.machine.address} serves {session.user} behind a refused login")

    async def _ask(
        self, session: Session, request: Message, version: int, expected: type[R]
    ) -> tuple[Moment, R]:
        """Send a request. Return the moment and the answer. :raises OSError: the connection is lost"""
        late = session.is_over(self._network.loop.time(), CLOCK_RATE_MAX)
        since = self._verdicts.now(session.machine)
        try:
            answer = await session.connection.ask(request, version, expected)
        except OSError:
            is_over = session.is_over(self._network.loop.time(), 1 / CLOCK_RATE_MAX)
            self._oracle.counts["sessions that ended"] += is_over
            raise
        if late:
            raise ViolationError(
                f"{session.machine.address} serves {session.user}, whose session of {session.lifetime_s} s ended"
            )
        return since, answer

    # Requests

    def _requests(self) -> Sequence[Callable[[Session, TopicPartition], Awaitable[bool]]]:
        return (
            self.produce,
            self.produce,
            self.produce,
            self.fetch,
            self.fetch,
            self.fetch,
            self.list_offsets,
            self.metadata,
            self.coordinator,
            self.delete_nothing,
        )

    async def produce(self, session: Session, partition: TopicPartition) -> bool:
        """Append records. Return whether it was allowed. A refusal must leave no record."""
        now_s = self._network.loop.time()
        self._number += 1
        values = [
            f"{self._name}.{self._number}.{nth}#0".encode() for nth in range(1 + self._random.randrange(3))
        ]
        self._oracle.sent(partition, values)
        timestamp = EPOCH_MS + int(now_s * 1_000)
        data = build_batch([Record(value=value, timestamp=timestamp) for value in values])
        request = one_batch(partition.topic, partition.partition, data, timeout_ms=5_000)
        since, answer = await self._ask(session, request, PRODUCE_VERSION, ProduceResponse)
        outcome = only_outcome(answer)
        allowed = self._judge(since, session, "Produce", WRITE, partition.topic, outcome.error_code)
        if not outcome.error_code:
            self._oracle.acked(partition, outcome.base_offset, values, now_s)
        elif not allowed:
            self._oracle.refused(partition, values)
        return allowed

    async def fetch(self, session: Session, partition: TopicPartition, wait_ms: int | None = None) -> bool:
        """Fetch, or wait for records that aren't there yet. Return whether it was allowed."""
        it = self._oracle.partitions[partition]
        position = self._positions[partition]
        fetched = FetchPartition(
            partition=partition.partition, fetch_offset=position, partition_max_bytes=BYTES_MAX
        )
        request = FetchRequest(
            max_wait_ms=self._any(WAIT_MS) if wait_ms is None else wait_ms,
            min_bytes=1,
            max_bytes=BYTES_MAX,
            topics=[FetchTopic(topic=partition.topic, partitions=[fetched])],
        )
        since, answer = await self._ask(session, request, FETCH_VERSION, FetchResponse)
        data = answer.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions[partition] = 0
        elif not data.error_code:
            reading = shown(it, data, position)
            self._positions[partition] = reading.position
            for _, value in reading.values:
                if value is None or value not in it.sent:
                    raise ViolationError(f"{partition}: {value!r} is shown, and nobody may have produced it")
                sent = self._oracle.moments[value][session.machine.address]
                if sent.process == since.process and sent.offset > since.offset:
                    self._oracle.counts["fetches that waited while metadata changed"] += 1
                    since = sent
        return self._judge(since, session, "Fetch", READ, partition.topic, data.error_code)

    async def list_offsets(self, session: Session, partition: TopicPartition) -> bool:
        """Ask where a log ends. Return whether it was allowed."""
        query = ListOffsetsPartition(partition_index=partition.partition, timestamp=-1)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=partition.topic, partitions=[query])])
        since, answer = await self._ask(session, request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        code = answer.topics[0].partitions[0].error_code
        return self._judge(since, session, "ListOffsets", DESCRIBE, partition.topic, code)

    async def metadata(self, session: Session, partition: TopicPartition) -> bool:
        """Ask for all topics. Return whether this one was shown."""
        since, answer = await self._ask(
            session, ClusterView.request(None), METADATA_VERSION, MetadataResponse
        )
        there = {topic.name for topic in answer.topics}
        for topic in {each.topic: None for each in self._place.partitions}:
            wanted = Wanted(f"User:{session.user}", self._address, DESCRIBE, TOPIC, topic)
            self._verdicts.judge(since, wanted, "Metadata", allowed=topic in there)
        return partition.topic in there

    async def coordinator(self, session: Session, _: TopicPartition) -> bool:
        """Ask for a group's coordinator. Return whether it was allowed."""
        request = FindCoordinatorRequest(key="users", key_type=0)
        since, answer = await self._ask(session, request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse)
        refused = answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        wanted = Wanted(f"User:{session.user}", self._address, DESCRIBE, GROUP, "users")
        self._verdicts.judge(since, wanted, "FindCoordinator", allowed=not refused)
        return not refused

    async def delete_nothing(self, session: Session, _: TopicPartition) -> bool:
        """Ask for a deletion of ACLs that takes none: it goes to the controller. Return whether it was allowed."""
        request = DeleteAclsRequest(filters=[NOTHING])
        since, answer = await self._ask(session, request, ACL_VERSION, DeleteAclsResponse)
        code = ErrorCode(answer.filter_results[0].error_code)
        refused = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if code and not refused and not is_retriable(code):
            raise ViolationError(f"DeleteAcls of {session.user}: {code.name}")
        wanted = Wanted(f"User:{session.user}", self._address, ALTER, CLUSTER, CLUSTER_NAME)
        if refused:  # by this node or by the controller, whose image may be older
            since = since._replace(offset=-1)
        self._verdicts.judge(since, wanted, "DeleteAcls", allowed=not refused)
        return not refused

    def _judge(
        self, since: Moment, session: Session, request: str, operation: int, topic: str, code: int
    ) -> bool:
        allowed = code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if code and allowed and not is_retriable(code) and code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise ViolationError(f"{request} of {session.user}: {ErrorCode(code).name}")
        wanted = Wanted(f"User:{session.user}", self._address, operation, TOPIC, topic)
        self._verdicts.judge(since, wanted, request, allowed=allowed)
        return allowed

    def _any(self, values: Sequence[T]) -> T:
        return values[self._random.randrange(len(values))]
