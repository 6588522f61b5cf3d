"""The rules of one fetcher: the partitions that it copies from one leader, pure.

The driver tells where each partition's log ends and what the leader answered. The rules say what the next Fetch asks,
and what is to be done with a partition's answer. They read no clock, send nothing and touch no log.

A fetcher has one request under way at most. Its requests are a fetch session (KIP-227): the first one names every
partition, the later ones only those whose position has changed, and those that left. An idle fetcher's request is
empty, however many partitions it has.
"""

from __future__ import annotations

import heapq
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from blumfeld.wire.errors import ErrorCode

Key: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""

EPOCH_INITIAL = 0
EPOCH_MAX = 0x7FFFFFFF
SESSION_NONE = 0
FIRST_PAUSE_MS = 10


class Position(NamedTuple):
    """The next fetch of one partition."""

    leader_epoch: int
    """Epoch of the leader that is asked (KIP-320)."""
    offset: int
    """End of the follower's log."""
    last_fetched_epoch: int
    """Epoch of the log's last record; the leader compares it (KIP-595). -1: no record is known."""
    log_start_offset: int
    """The follower's own log start. The leader's low watermark follows it."""


class State(Enum):
    """The state of a partition in its fetcher."""

    FETCHING = auto()
    """The next request asks for it."""
    BUSY = auto()
    """Its log is being written or truncated, or the leader was asked where its log begins and ends."""
    DELAYED = auto()
    """It failed. It is fetched again after a pause."""
    WAITING = auto()
    """The leader says that a newer leader epoch exists, and the image will bring it. Or a remote store is asked how the
    log begins."""


class Verdict(Enum):
    """The work that a partition's answer makes."""

    APPEND = auto()
    """Append the records, which may be none, and take over high watermark and log start."""
    TRUNCATE = auto()
    """The log diverges: truncate to :func:`~blumfeld.log.leader_epochs.truncation_offset`, and fetch again."""
    LOOK_UP = auto()
    """The leader's log begins behind our end, or ends before it: ask where, then see :func:`out_of_range`."""
    BEGIN = auto()
    """The leader has the records behind our end in a remote store alone: begin at its local log start."""
    BACK_OFF = auto()
    """Fetch again after a pause."""
    WAIT = auto()
    """Wait for the image."""


def verdict(error_code: int, diverging_epoch: int) -> Verdict:
    """Returns the work for one partition of an answer.

    :param diverging_epoch: epoch of the answer's ``diverging_epoch``; -1 if the logs agree
    """
    if error_code == ErrorCode.NONE:
        return Verdict.APPEND if diverging_epoch < 0 else Verdict.TRUNCATE
    if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Verdict.LOOK_UP
    if error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
        return Verdict.BEGIN
    if error_code == ErrorCode.FENCED_LEADER_EPOCH:
        return Verdict.WAIT
    # The other errors pass by themselves (PASSING), or need an operator, and the log says so.
    return Verdict.BACK_OFF


PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Errors that end when the leader and we have the same image, or when a new leader knows its high watermark."""


def passes(error_code: int) -> bool:
    """Whether an error of one partition passes by itself, so that a log line about it would help nobody."""
    return error_code in PASSING


def pause_after(refusals: int) -> float:
    """Returns the pause in ms after an error that passes by itself, with so many in a row before it.

    Short at first: a new leader may learn of its leadership after its followers do, and acks=all waits for the first
    fetch of each.
    """
    return FIRST_PAUSE_MS * 2.0 ** min(refusals, 16)


class OutOfRange(NamedTuple):
    """The mend of a log whose end the leader doesn't have."""

    truncate_to: int | None
    """The leader's log ends here, before ours: it was elected uncleanly."""
    restart_at: int | None
    """The leader's log begins here, behind our end. With both ``None`` the leader's log holds our end by now."""


def out_of_range(log_end_offset: int, leader_start_offset: int, leader_end_offset: int) -> OutOfRange:
    """Returns the mend after OFFSET_OUT_OF_RANGE (Kafka's ``fetchOffsetAndTruncate``)."""
    if leader_end_offset < log_end_offset:
        return OutOfRange(leader_end_offset, None)
    if leader_start_offset > log_end_offset:
        return OutOfRange(None, leader_start_offset)
    return OutOfRange(None, None)


class SessionRequest(NamedTuple):
    """The session's part of the next Fetch request."""

    session_id: int
    session_epoch: int
    positions: list[tuple[Key, Position]]
    """New and changed partitions."""
    forgotten: list[Key]
    """Partitions that leave the session."""


class FetcherRules:
    """The partitions of one fetcher and its fetch session."""

    def __init__(self) -> None:
        self._positions: dict[Key, Position] = {}
        self._states: dict[Key, State] = {}
        self._session_id = SESSION_NONE
        self._session_epoch = EPOCH_INITIAL
        self._sent: dict[Key, Position] = {}
        """The partitions of the session, as the leader has them once it has our last request."""
        self._changed: dict[Key, None] = {}
        """Partitions whose state or position may differ from ``_sent``, in the order of the changes. It keeps the work
        for a request as small as the request."""
        self._missed = False
        self._fetching = self._busy = 0
        self._due: list[tuple[float, int, Key]] = []
        """(time, number, partition) of each pause, as a heap. An entry counts if ``_delays`` has its number."""
        self._delays: dict[Key, int] = {}
        self._delayed = 0

    def __len__(self) -> int:
        """Number of partitions."""
        return len(self._positions)

    # Partitions

    def add(self, key: Key, position: Position) -> None:
        """Fetch a partition from now on, in a new leader epoch."""
        self._positions[key] = position
        self._enter(key, State.FETCHING)

    def remove(self, key: Key) -> None:
        """Fetch a partition no more."""
        if key in self._states:
            self._leave(key)
            del self._positions[key]
            self._changed[key] = None

    def state(self, key: Key) -> State | None:
        """Returns the state of a partition; ``None`` if this fetcher doesn't have it."""
        return self._states.get(key)

    def moved(self, key: Key, position: Position) -> None:
        """Fetch a partition from this position next."""
        self._positions[key] = position
        self._enter(key, State.FETCHING)

    @property
    def is_busy(self) -> bool:
        """Whether a partition can't be asked for now, and soon can: its log is being truncated, or the leader was asked
        where its own begins and ends."""
        return self._busy > 0

    def busy(self, key: Key) -> None:
        """Ask for a partition again only after :meth:`moved`."""
        self._enter(key, State.BUSY)

    def wait(self, key: Key) -> None:
        """Ask for a partition again only after :meth:`moved`. Nothing says how long that takes."""
        self._enter(key, State.WAITING)

    def delay(self, key: Key, position: Position, until_ms: float) -> None:
        """Fetch a partition again once it is ``until_ms``."""
        self._positions[key] = position
        self._enter(key, State.DELAYED)
        self._delayed += 1
        self._delays[key] = self._delayed
        heapq.heappush(self._due, (until_ms, self._delayed, key))

    def wake(self, now_ms: float) -> float | None:
        """End the pauses that are over. Returns when the next one ends; ``None`` if there is none."""
        due, delays = self._due, self._delays
        while due and (due[0][0] <= now_ms or delays.get(due[0][2]) != due[0][1]):
            _, number, key = heapq.heappop(due)
            if delays.get(key) == number:
                self._enter(key, State.FETCHING)
        return due[0][0] if due else None

    def _enter(self, key: Key, state: State) -> None:
        self._leave(key)
        self._states[key] = state
        if state is State.FETCHING:
            self._fetching += 1
        elif state is State.BUSY:
            self._busy += 1
        self._changed[key] = None

    def _leave(self, key: Key) -> None:
        before = self._states.pop(key, None)
        if before is State.FETCHING:
            self._fetching -= 1
        elif before is State.BUSY:
            self._busy -= 1
        elif before is State.DELAYED:
            del self._delays[key]

    # Requests and answers

    def next_request(self) -> SessionRequest | None:
        """Returns the next request; ``None`` if no partition can be fetched. Call it once the last one has its answer.

        The caller must tell its outcome: :meth:`answered`, :meth:`refused` or :meth:`failed`.
        """
        if not self._fetching:
            return None
        sent, states = self._sent, self._states
        full = self._session_epoch == EPOCH_INITIAL
        if full:
            sent.clear()
            self._changed = dict.fromkeys(self._positions)
        positions: list[tuple[Key, Position]] = []
        forgotten: list[Key] = []
        for key in self._changed:
            if states.get(key) is State.FETCHING:
                position = self._positions[key]
                if sent.get(key) != position:
                    sent[key] = position
                    positions.append((key, position))
            elif sent.pop(key, None) is not None:
                forgotten.append(key)
        self._changed = {}
        return SessionRequest(self._session_id, self._session_epoch, positions, forgotten)

    def counts(self, key: Key) -> bool:
        """Whether the answer's part for this partition is for the position where it still is. A partition that left,
        or that follows in another epoch by now, has nothing to do with it.
        """
        return key in self._sent and key not in self._changed and self._states.get(key) is State.FETCHING

    def missed(self) -> None:
        """A part of the present answer was not taken: it told the leader's high watermark and log start to nobody.

        The leader tells them once and not again before they change. So the next request is a full one, after which it
        tells all of them anew.
        """
        self._missed = True

    def answered(self, session_id: int) -> None:
        """The leader has answered without an error at the top.

        :param session_id: the answer's; 0: the leader keeps no session, so that the next request is a full one
        """
        missed, self._missed = self._missed, False
        self._session_id = session_id
        if missed or session_id == SESSION_NONE:
            self._session_epoch = EPOCH_INITIAL
            return
        self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1

    def refused(self, code: int) -> bool:
        """The answer is an error at the top, without partitions. Returns whether a full request may follow at once."""
        self._session_epoch = EPOCH_INITIAL
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = SESSION_NONE
            return True
        # The id stays: a full request that names it makes the leader close that session.
        return code in (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)

    def failed(self) -> None:
        """No answer came. Whether the leader has seen the request isn't known, so the session begins anew."""
        self._session_epoch = EPOCH_INITIAL
