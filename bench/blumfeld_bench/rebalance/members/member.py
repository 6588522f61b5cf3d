"""The common part of virtual members of both protocols. Pure: bytes in, bytes and wake-up times out.

A member has one connection and one open request at a time. The driver calls :meth:`Member.begin` once,
:meth:`Member.answered` with each answer, and :meth:`Member.due` when :attr:`Member.wake_ns` has come. It sends the
bytes that they return. The correlation id of a request is its API key, which suffices with one open request.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from typing import TypeVar

import attrs

from blumfeld.client.connection import read_answer
from blumfeld.client.errors import WrongCorrelationIdError, error_name
from blumfeld.client.frames import api_key_of, request_frame
from blumfeld.wire.schema import Message
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.frames import CLIENT_ID
from blumfeld_bench.rebalance.members.ownership import Ownership

R = TypeVar("R", bound=Message)

FAR_NS = 2**62
RETRY_NS = 50_000_000
"""Pause after an answer that asks for a retry."""


@attrs.define
class Group:
    """The shared state of a group's members."""

    group_id: str
    topic: str
    topic_id: bytes
    partitions: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    """Heartbeat interval of classic members. KIP-848 members use the interval that the server returns."""
    draw: random.Random
    ownership: Ownership
    leader: str = ""
    """The leader's member id, in classic groups."""
    faults: Counter[str] = attrs.field(factory=Counter)
    """Error names and counts that don't occur in a group whose members are all in time."""
    told_ns: int = 0
    """Time at which a member last changed its epoch or generation, or entered a rebalance."""


class Member(ABC):
    """One virtual member."""

    def __init__(self, group: Group, index: int) -> None:
        self.group = group
        self.index = index
        self.wake_ns = FAR_NS
        """Time at which :meth:`due` is to be called; :data:`FAR_NS` while an answer is awaited."""
        self.epoch = -1
        """Member epoch or generation; -1 before the first."""
        self.idle = False
        """Whether the member is in the group and knows of no rebalance."""
        self.slow = False
        """Whether the member has much work, as a leader has. :meth:`due` is then called when no other member has work.

        In use, members run on machines of their own, and the leader sends its SyncGroup last. This driver serves
        members one after the other. Without this flag the leader could come first and delay the other members'
        requests.
        """
        self.heard_ns = 0
        """Time at which the last heartbeat, or a request that counts as one, was sent. The session ends one session
        timeout later.
        """

    @abstractmethod
    def begin(self, now_ns: int) -> bytes:
        """Return the first request."""

    @abstractmethod
    def answered(self, frame: bytes, now_ns: int) -> bytes | None:
        """Take an answer (without its length); return bytes to send at once, or None."""

    @abstractmethod
    def due(self, now_ns: int) -> bytes:
        """Return the bytes to send, now that :attr:`wake_ns` has come."""

    @abstractmethod
    def leave(self) -> bytes:
        """Return the request to leave the group; its answer needs no handling."""

    @property
    def is_leader(self) -> bool:
        """Whether this member computes the assignment."""
        return False

    def stop_owning(self, now_ns: int) -> None:
        """Drop all partitions: the member is gone, or is about to rejoin without any."""
        self.group.ownership.change(now_ns, self.index, ())

    def fault(self, code: int) -> None:
        """Count an error that a healthy group doesn't see."""
        self.group.faults[error_name(code)] += 1

    def first_beat_ns(self, now_ns: int, interval_ms: int) -> int:
        """Return the time of a member's first heartbeat at rest: a share of the interval, drawn by the seed.

        Members that were all answered in one moment would send heartbeats together ever after, unlike a group that
        has run for hours.
        """
        return now_ns + int(interval_ms * 1_000_000 * (1 - self.group.draw.random()))


def request(message: Message, version: int) -> bytes:
    """Return a request as a whole frame."""
    return request_frame(message, version, api_key_of(message), CLIENT_ID)


def answer(expected: type[R], frame: bytes, version: int) -> R:
    """Decode an answer.

    :raises DriverError: the answer belongs to another request
    """
    key = expected.meta.key
    assert key is not None
    try:
        message, _ = read_answer(frame, key, version, key)
    except WrongCorrelationIdError as error:
        raise DriverError(f"{expected.__name__} was expected: {error}") from None
    assert isinstance(message, expected)
    return message
