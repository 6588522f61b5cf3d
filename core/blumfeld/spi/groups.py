"""Group protocols: shards on the coordinator runtime (docs/design.md, rule 3).

A command reads state and gives records and a reply; only ``replay`` writes state. The runtime appends the
records, replays them when they are placed, and holds the reply until the high watermark has passed them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from blumfeld.moved import old_names
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.schema import Message, Struct

SINCE_COMMIT = -1
"""Stands in place of a time, so that each offset ages from its own commit."""


class CoordinatorRecord(msgspec.Struct, frozen=True):
    """One record of a coordinator's log, encoded: Kafka's key (int16 type, body) and value (int16 version, body;
    ``None`` deletes).
    """

    key: bytes
    value: bytes | None


class Producer(msgspec.Struct, frozen=True):
    """The producer that writes in a transaction."""

    producer_id: int
    producer_epoch: int


class TimerOrder(msgspec.Struct, frozen=True):
    """An order to the runtime: come back with ``command`` in ``delay_ms`` (replacing the timer of that key), or
    cancel it (``None``). With 0 ms it is one step of long work: it comes when the coordinators' lane has time.
    """

    key: tuple[str, ...]
    delay_ms: int | None
    command: Any = None
    group_type: str = ""
    """Group type that the timer belongs to. It is empty for the type that decides, and names another type when a group
    is handed over.
    """


class Decision(msgspec.Struct):
    """The outcome of a command. The runtime appends ``records``, replays them and sets ``timers`` at once. When
    everything that was placed so far is committed, it performs the effects and sends the replies.

    ``reply`` is the response message, or ``None`` with ``deferred`` set: the shard answers later, by the
    ``answers`` of another decision.

    The log may refuse ``records`` before any of them is placed: one is too large, or too few replicas are in sync. Then
    the requests of the decision get an error, nothing is replayed, no timer is set, no effect is performed, and a
    timer's command comes again, unless a timer of its key was set meanwhile. So a decision changes nothing but by its
    records, or it says with ``if_refused`` or ``stands_without_records`` how its other changes are mended.
    """

    records: Sequence[CoordinatorRecord] = ()
    reply: Any = None
    timers: Sequence[TimerOrder] = ()
    deferred: Any = None
    """A token of the shard's own under which this request waits."""
    answers: Sequence[tuple[Any, Any]] = ()
    """(token, reply) of requests that waited until now."""
    producer: Producer | None = None
    """The records are this producer's transactional batch: replayed as pending, until a marker ends its transaction."""
    after_commit: Sequence[Any] = ()
    """Effects beyond the shard, for example "send the markers of this transaction". The runtime hands each to the
    coordinator's ``perform`` once everything that was placed so far is committed, in the order of the decisions, before
    the replies of this decision. A shard that is dropped first performs none: ``loaded`` orders them anew, from the
    state that the log tells."""
    if_refused: Any = None
    """A command that is decided at once if the log refuses the records: it takes back what the decision changed in
    memory."""
    if_too_large: Any = None
    """A command that is decided at once, in place of ``if_refused``, if a record is larger than the log takes.
    The log would refuse the same decision again, so this command makes another one."""
    stands_without_records: bool = False
    """Whether the decision holds although the log refuses its records. The log tells an older state then, which a
    later leader can mend (an empty group that the log shows with members: their sessions expire)."""


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A group for ListGroups and DescribeGroups, whatever its type."""

    group_id: str
    group_type: str
    """``classic``, ``consumer``, …"""
    state: str
    protocol_type: str


class MemberExport(msgspec.Struct, frozen=True, kw_only=True):
    """One member as a neutral value: for the migration between group types (KIP-848)."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class GroupExport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole group as a neutral value."""

    group_id: str
    protocol_type: str
    protocol_name: str | None
    generation: int
    leader_id: str | None
    """``None`` if the type that imports the group is to choose the leader; likewise ``protocol_name``."""
    members: tuple[MemberExport, ...]
    rebalances: bool = True
    """Whether the members are joining again (in an export), or are to join again at once (in an import)."""


class CommitCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The member and the offsets of an OffsetCommit, or with ``transactional`` of a TxnOffsetCommit."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    """The classic generation, or the KIP-848 member epoch; -1 for a consumer outside of any group."""
    version: int
    """Version of the request. Some errors depend on it."""
    partitions: Sequence[tuple[str, int]]
    """The (topic, index) pairs that exist. A KIP-848 member with an older epoch may commit those that it was assigned
    then and is assigned still.
    """
    transactional: bool = False


class Surroundings(Protocol):
    """The arguments that every group type's shard is made with."""

    config: Any
    """``BrokerConfig``."""

    def image(self) -> ClusterImage:
        """The cluster, as of now: a type that assigns on the broker needs topics, partitions and racks."""
        ...

    def new_member_id(self, prefix: str) -> str:
        """A unique member id: a shard's only source of chance."""
        ...

    def owner(self, group_id: str) -> GroupShard | None:
        """The shard, maybe of another type, that has the group: to take it over (``export_group``, ``delete``)."""
        ...

    def shard_of(self, group_type: str) -> GroupShard | None:
        """The shard of that type here, if this build has it: to hand a group over (``import_group``)."""
        ...


class GroupShard(Protocol):
    """One group type's state for one partition of ``__consumer_offsets``. Pure: the time is an argument."""

    def replay(self, record_type: int, key: Message, value: Message | None) -> None:
        """Apply one record. Never fails, never decides."""
        ...

    def command(self, request: Any, context: RequestContext | None, now_ms: int) -> Decision:
        """Decide on a request of one of the type's APIs, or on a timer's command (``context`` is ``None``).

        :raises BrokerError: the request's error
        """
        ...

    def loaded(self, now_ms: int) -> Decision:
        """Replay has ended and this node leads: set timers."""
        ...

    def owns(self, group_id: str) -> bool:
        """Whether the group is of this type here."""
        ...

    def summaries(self) -> Sequence[GroupSummary]:
        """All groups of this type here."""
        ...

    def describe(self, group_id: str) -> Struct | None:
        """A ``DescribedGroup`` of DescribeGroups, or ``None``."""
        ...

    def check_commit(self, commit: CommitCheck, now_ms: int) -> Decision:
        """May this member commit these offsets now? The decision may restart a session timer.

        :raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS,
            STALE_MEMBER_EPOCH: of the request as a whole
        """
        ...

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Check that this member may read the group's offsets. ``None`` and -1 stand for a request without a member
        (before v9), which may.

        :raises BrokerError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH
        """
        ...

    def check_delete_offsets(self, group_id: str) -> None:
        """Check that offsets of this group may be deleted, apart from those of subscribed topics.

        :raises BrokerError: NON_EMPTY_GROUP: it has members, and their subscriptions are unknown
        """
        ...

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether a member reads the topic, or may: its offsets don't expire and can't be deleted."""
        ...

    def offsets_idle_since(self, group_id: str) -> int | None:
        """Returns the time, in ms, since which offsets of topics without a reading member are of no use: the group
        became empty then.

        ``SINCE_COMMIT``: each since it was committed. ``None``: none expires now, because a rebalance is in flight or
        the members' subscriptions are unknown.
        """
        ...

    def is_empty(self, group_id: str) -> bool:
        """Whether the group has no members."""
        ...

    def delete(self, group_id: str) -> Decision:
        """Returns the tombstones that end a group, in Kafka's order, and for members that wait the answer to join
        again. Timers may go on: their commands find no group then.
        """
        ...

    def export_group(self, group_id: str) -> GroupExport:
        """The group as a neutral value."""
        ...

    def import_group(self, group: GroupExport, now_ms: int) -> Decision:
        """Records that make this group one of this type, and the timers that it needs from then on."""
        ...


Submit: TypeAlias = Callable[[str, Any, RequestContext], Completion[Any]]
"""(group id, command of the type's own, context) → the reply, from the group's shard."""


class GroupProtocol(Protocol):
    """A group *type*. Made by ``blumfeld_make_group_protocol``; a build may have one or several."""

    name: str
    """``classic``, ``consumer``."""
    record_types: Mapping[int, tuple[type[Message], type[Message]]]
    """Key type → (key message, value message) of the records that its shard replays."""
    apis: Mapping[int, tuple[int, int]]
    """API key → versions whose requests go to :meth:`GroupShard.command` of the group's shard."""
    guest_apis: frozenset[int]
    """API keys of other types that this one answers for its own groups (classic members of a KIP-848 group). It doesn't
    bring them into a build: they are served where another type has them in its ``apis``.
    """

    def new_shard(self, surroundings: Surroundings) -> GroupShard:
        """A fresh shard, without groups."""
        ...

    def handlers(self, submit: Submit) -> Sequence[ApiHandler]:
        """Handlers of its own for requests that name several groups (ConsumerGroupDescribe): they submit one command
        for each, and merge.
        """
        ...

    def error_response(self, request: Message, code: int, message: str | None) -> Message:
        """The response that says so, for any of ``apis``."""
        ...


if not TYPE_CHECKING:
    __getattr__ = old_names(__name__)
