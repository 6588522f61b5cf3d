"""What virtual members of both protocols have in common. Pure: bytes in, bytes and wake-up times out.

A member has one connection and one request on it at a time. The driver calls :meth:`Member.begin` once,
:meth:`Member.answered` with each answer, :meth:`Member.due` when its :attr:`Member.wake_ns` has come, and sends what
they return. The correlation id of a request is its API key: with one request in flight it tells no less.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from typing import TypeVar

import attrs

from blumfeld.bench.drivers.contract import DriverError
from blumfeld.bench.drivers.frames import CLIENT_ID
from blumfeld.bench.rebalance.members.ownership import Ownership
from blumfeld.client.connection import read_answer
from blumfeld.client.errors import WrongCorrelationIdError, error_name
from blumfeld.client.frames import api_key_of, request_frame
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.schema import Message

R = TypeVar("R", bound=Message)

FAR_NS = 2**62
RETRY_NS = 50_000_000
"""After an answer that asks for patience."""
PATIENCE = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


@attrs.define
class Group:
    """What the members of one group share."""

    group_id: str
    topic: str
    topic_id: bytes
    partitions: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    """Of classic members. Members of KIP-848 go by what they are told."""
    draw: random.Random
    ownership: Ownership
    leader: str = ""
    """Member id, of classic groups."""
    faults: Counter[str] = attrs.field(factory=Counter)
    """What went otherwise than in a group in which nobody is late: error names and how often."""
    told_ns: int = 0
    """When a member last came to another epoch or generation, or went into a rebalance."""


class Member(ABC):
    """One virtual member."""

    def __init__(self, group: Group, index: int) -> None:
        self.group = group
        self.index = index
        self.wake_ns = FAR_NS
        """When :meth:`due` is to be called; :data:`FAR_NS` while an answer is waited for."""
        self.epoch = -1
        """Member epoch or generation; -1 before the first."""
        self.idle = False
        """In the group, and in no rebalance that it knows of."""
        self.slow = False
        """It has much to do, as a leader has: :meth:`due` is to be called when no other member has anything to do.

        Members are on machines of their own, and the leader sends its SyncGroup last. In a driver that takes members
        one after the other it could be the first, and the others would be late for what they were never late for.
        """
        self.heard_ns = 0
        """When its last heartbeat, or what counts as one, was sent: its session ends one session timeout later."""

    @abstractmethod
    def begin(self, now_ns: int) -> bytes:
        """The first request."""

    @abstractmethod
    def answered(self, frame: bytes, now_ns: int) -> bytes | None:
        """Take an answer (without its length): what to send at once, if anything."""

    @abstractmethod
    def due(self, now_ns: int) -> bytes:
        """What to send, now that :attr:`wake_ns` has come."""

    @abstractmethod
    def leave(self) -> bytes:
        """Say goodbye; the answer is nobody's."""

    @property
    def is_leader(self) -> bool:
        """It computes the assignment."""
        return False

    def stop_owning(self, now_ns: int) -> None:
        """It is gone, or is about to rejoin with nothing."""
        self.group.ownership.change(now_ns, self.index, ())

    def fault(self, code: int) -> None:
        """An error that a healthy group doesn't see."""
        self.group.faults[error_name(code)] += 1

    def first_beat_ns(self, now_ns: int, interval_ms: int) -> int:
        """When a member that just came to rest beats for the first time: a share of the interval, drawn by the seed.

        Members that were all answered in one moment would beat together ever after. Those of a group that has been
        running for hours do not.
        """
        return now_ns + int(interval_ms * 1_000_000 * (1 - self.group.draw.random()))


def request(message: Message, version: int) -> bytes:
    """A whole frame."""
    return request_frame(message, version, api_key_of(message), CLIENT_ID)


def answer(expected: type[R], frame: bytes, version: int) -> R:
    """What an answer says.

    :raises DriverError: it is to another request
    """
    key = expected.meta.key
    assert key is not None
    try:
        message, _ = read_answer(frame, key, version, key)
    except WrongCorrelationIdError as error:
        raise DriverError(f"{expected.__name__} was expected: {error}") from None
    assert isinstance(message, expected)
    return message
