"""The contract of group types as tests: subclass :class:`GroupProtocolContract` in your own test suite.

Say how your type is made, and what a group of it lives through; each test takes a group through that life, and looks
at every step of it::

    class TestMine(GroupProtocolContract):
        def make_protocol(self):
            return MyGroupProtocol()

        def life(self, group):
            group.ask(MyJoinRequest(group_id=GROUP, …))
            group.wait(3_000)
            …
            group.ask(MyLeaveRequest(group_id=GROUP, …))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from blumfeld.coordinator.groups.offsets import OFFSET_RECORD_TYPES
from blumfeld.coordinator.groups.records import decode_record
from blumfeld.spi.groups import CommitCheck, CoordinatorRecord, Decision, GroupProtocol, GroupShard
from blumfeld.wire.api import API_BY_KEY, ApiKey, request_class
from blumfeld.wire.codec import encode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.offset_commit import OffsetCommitRequest
from blumfeld_kit.groups.driven_group import GroupUnderTest
from blumfeld_kit.groups.model import ModelContext, compacted
from blumfeld_kit.groups.states import difference, state_of

GROUP = "g"
"""The group of :meth:`GroupProtocolContract.life`."""
HOUR_MS = 3_600_000
COMMIT_ERRORS = frozenset(
    (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
FETCH_ERRORS = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH))


class GroupProtocolContract:
    """The behaviour that the coordinator and the other group types rely on. These tests look at the SPI, not at
    Kafka's wire protocol.
    """

    config: Mapping[str, str | int | float | bool] = {"group.initial.rebalance.delay.ms": 0}
    """Broker configuration, in Kafka's keys."""
    volatile: frozenset[str] = frozenset()
    """Names of attributes that no record restores, of a group or of an object in it. Say why in your docs."""

    def make_protocol(self) -> GroupProtocol:
        """Return a new instance of your group type."""
        raise NotImplementedError("override make_protocol")

    def life(self, group: GroupUnderTest) -> None:
        """Take the group ``GROUP`` through everything that can happen to it, by ``group.ask`` and ``group.wait``. It
        must have members at some time and none at the end.
        """
        raise NotImplementedError("override life")

    def groups_of(self, shard: GroupShard) -> Mapping[str, Any]:
        """Return the whole state of the shard, by group id."""
        groups: Mapping[str, Any] = shard.groups  # type: ignore[attr-defined]
        return groups

    def in_flight(self, shard: GroupShard) -> Collection[str]:
        """Return the ids of groups whose records don't tell everything at the moment, because something volatile is
        going on.
        """
        return ()

    # Tools of the tests

    def _live(self, **watchers: Any) -> GroupUnderTest:
        group = GroupUnderTest(self.make_protocol(), self.config, **watchers)
        self.life(group)
        return group

    def _state(self, shard: GroupShard, skip: Collection[str], *, ordered: bool = True) -> Any:
        groups = {name: group for name, group in self.groups_of(shard).items() if name not in skip}
        return state_of(groups, self.volatile, ordered=ordered)

    def _same(self, what: str, first: GroupShard, other: GroupShard, *, ordered: bool = True) -> None:
        skip = {*self.in_flight(first), *self.in_flight(other)}
        mismatch = difference(
            self._state(first, skip, ordered=ordered), self._state(other, skip, ordered=ordered)
        )
        assert not mismatch, f"{what}: {mismatch}"

    # Facts

    def test_its_facts_are_in_order(self) -> None:
        """The type has a name, record types that no other part uses, and APIs that exist."""
        protocol = self.make_protocol()
        assert protocol.name, "the type has no name"
        for number, (key, value) in protocol.record_types.items():
            assert number not in OFFSET_RECORD_TYPES, (
                f"record type {number} is for offsets, which the groups shard writes; allowed: types of your own"
            )
            assert key.meta.key == number, f"{key.__name__} is not the key of record type {number}"
            assert value.meta.valid, f"{value.__name__} is no message of the protocol's records"
        for api, (low, high) in protocol.apis.items():
            assert low <= high, f"API {api}: the lowest version {low} is above the highest, {high}"
            assert api in API_BY_KEY, f"API {api} doesn't exist in the Kafka protocol"
        assert not protocol.guest_apis & set(protocol.apis), (
            "an API stands in apis and in guest_apis; allowed: one of them"
        )

    def test_the_life_has_members_and_ends_without(self) -> None:
        """``life()`` of this subclass has members, writes records and ends without members: otherwise the other tests
        prove nothing.
        """
        sizes = []

        def done(group: GroupUnderTest) -> None:
            sizes.append(group.shard.owns(GROUP) and not group.shard.is_empty(GROUP))

        group = self._live(done=done)
        assert any(sizes), "life() never has a member: override it so that members join"
        assert group.log, "life() writes no record"
        assert not sizes[-1], "life() ends with members: let all of them leave"

    # Commands decide, records change

    def test_commands_write_no_state(self) -> None:
        """A command, also a refused one, changes no state. Only the replay of its records does."""
        before: list[tuple[Any, Collection[str]]] = []

        def look(group: GroupUnderTest) -> None:
            before.append((self._state(group.shard, ()), self.in_flight(group.shard)))

        def decided(group: GroupUnderTest, command: Any, decision: Decision | None) -> None:
            known, skip = before.pop()
            if GROUP in skip or GROUP in self.in_flight(group.shard):
                return
            mismatch = difference(known, self._state(group.shard, ()))
            assert not mismatch, (
                f"the command {type(command).__name__} changed the state before replay: {mismatch}"
            )

        self._live(before=look, decided=decided)

    def test_the_log_tells_all(self) -> None:
        """At every step, a fresh shard that replays the log has the state of the live shard."""

        def done(group: GroupUnderTest) -> None:
            self._same("replayed and live differ", group.reloaded(), group.shard)

        self._live(done=done)

    def test_a_compacted_log_tells_all(self) -> None:
        """The last record of each key restores the state, in any order, with or without tombstones."""

        def done(group: GroupUnderTest) -> None:
            short = group.reloaded(left(group.log))
            self._same("replayed of a compacted log, and live, differ", short, group.shard, ordered=False)

        self._live(done=done)

    def test_a_record_twice_is_a_record_once(self) -> None:
        """Replay is idempotent: a record that is replayed twice has the effect of one."""
        group = self._live()
        for end in range(1, len(group.log) + 1):
            records = group.log[:end]
            once, twice = group.reloaded(records), group.reloaded([*records, records[-1]])
            self._same(f"record {end} twice differs from once", twice, once, ordered=False)

    def test_tombstones_of_nothing_do_nothing(self) -> None:
        """A tombstone for a key without a record changes nothing: compaction may have removed the record."""
        group = self._live()
        shard = group.reloaded([CoordinatorRecord(item.key, None) for item in group.log])
        assert not shard.summaries()
        assert not self.groups_of(shard), "a tombstone for an unknown key made a group"

    def test_the_same_requests_give_the_same_log(self) -> None:
        """The log depends on the requests alone: not on the clock, on chance or on the order of a hash."""
        assert self._live().log == self._live().log

    def test_records_are_of_its_own_types(self) -> None:
        """The type writes only its own record types. Another type would replay a foreign record, or none would."""

        def decided(group: GroupUnderTest, command: Any, decision: Decision | None) -> None:
            if decision is not None:
                self._check_records(group.protocol, decision)

        self._live(decided=decided)

    def _check_records(self, protocol: GroupProtocol, decision: Decision) -> None:
        for item in decision.records:
            number = int.from_bytes(item.key[:2])
            assert number in protocol.record_types, (
                f"a record of type {number} is not one of {protocol.name}'s"
            )
            assert decode_record(protocol.record_types, item) is not None

    # Questions

    def test_owns_summaries_and_describe_agree(self) -> None:
        """``owns``, ``summaries`` and ``describe`` agree whether the group exists."""

        def done(group: GroupUnderTest) -> None:
            shard = group.shard
            listed = {summary.group_id: summary for summary in shard.summaries()}
            assert shard.owns(GROUP) == (GROUP in listed)
            assert not shard.owns("nobody's")
            assert shard.describe("nobody's") is None
            if GROUP not in listed:
                assert shard.describe(GROUP) is None
                return
            assert listed[GROUP].group_type == group.protocol.name
            assert shard.is_empty(GROUP) == (listed[GROUP].state == "Empty")
            described = shard.describe(GROUP)
            assert described is None or getattr(described, "group_id", None) == GROUP

        self._live(done=done)

    def test_asking_after_offsets_changes_nothing_and_fails_as_it_may(self) -> None:
        """Questions about offsets change nothing and raise only the errors that the protocol has: commit, fetch and
        delete checks, ``is_subscribed``, and the time since the group is empty.
        """

        def done(group: GroupUnderTest) -> None:
            if not group.shard.owns(GROUP):
                return
            before = self._state(group.shard, ())
            self._ask_after_offsets(group)
            mismatch = difference(before, self._state(group.shard, ()))
            assert not mismatch, f"a question about offsets changed the state: {mismatch}"

        self._live(done=done)

    def _ask_after_offsets(self, group: GroupUnderTest) -> None:
        shard = group.shard
        for member_id in ("", "nobody"):
            for generation in (-1, 0, 1, 1_000):
                for version in (2, 7, 9, 10):
                    self._check_commit(group, member_id, generation, version)
                code = refusal(shard.check_fetch, GROUP, member_id or None, generation)
                assert code is None or code in FETCH_ERRORS, (
                    f"check_fetch raises {code.name}; allowed: {_names(FETCH_ERRORS)}"
                )
        code = refusal(shard.check_delete_offsets, GROUP)
        assert code in (None, ErrorCode.NON_EMPTY_GROUP), (
            f"check_delete_offsets raises {code!r}; allowed: NON_EMPTY_GROUP"
        )
        assert code is None or not shard.is_empty(GROUP), "check_delete_offsets refuses for an empty group"
        assert shard.is_subscribed(GROUP, "no such topic") in (True, False)
        assert not (shard.is_empty(GROUP) and shard.is_subscribed(GROUP, "t")), (
            "is_subscribed is true for an empty group"
        )
        since_ms = shard.offsets_idle_since(GROUP)
        assert since_ms is None or since_ms <= group.now_ms

    def _check_commit(self, group: GroupUnderTest, member_id: str, generation: int, version: int) -> None:
        for transactional in (False, True):
            commit = CommitCheck(
                group_id=GROUP,
                member_id=member_id,
                instance_id=None,
                generation=generation,
                version=version,
                partitions=[("t", 0)],
                transactional=transactional,
            )
            decisions: list[Decision] = []
            code = refusal(
                lambda commit, into: into.append(group.shard.check_commit(commit, group.now_ms)),
                commit,
                decisions,
            )
            if code is not None:
                assert code in COMMIT_ERRORS, (
                    f"check_commit raises {code.name}; allowed: {_names(COMMIT_ERRORS)}"
                )
                continue
            assert not decisions[0].records, "check_commit decides on records; a check writes none"
            stranger = member_id == "nobody" and not group.shard.is_empty(GROUP)
            assert not stranger, "check_commit lets an unknown member id commit to a group with members"

    # The end

    def test_delete_leaves_tombstones_and_nothing_else(self) -> None:
        """``delete`` writes a tombstone for every key that the group has in the log, and nothing else. Afterwards the
        group is gone, also after a reload.
        """

        def done(group: GroupUnderTest) -> None:
            shard = group.reloaded()
            if not shard.owns(GROUP):
                return
            decision = shard.delete(GROUP)
            assert all(item.value is None for item in decision.records), (
                "delete writes a record with a value; allowed: tombstones"
            )
            self._check_records(group.protocol, decision)
            group.replay(shard, decision.records)
            assert not shard.owns(GROUP), "owns() is true for a deleted group"
            remains = left([*group.log, *decision.records])
            assert not remains, (
                f"delete leaves {len(remains)} keys without a tombstone, the first is {remains[0].key!r}"
            )

        self._live(done=done)

    def test_timers_of_a_group_that_is_gone_are_harmless(self) -> None:
        """Timers may fire after a group is deleted or handed to another type. They then write nothing."""
        group = self._live()
        for shard in (group.protocol.new_shard(group), group.shard):
            if shard.owns(GROUP):
                group.replay(shard, shard.delete(GROUP).records)
            for command in group.ordered:
                try:
                    decision = shard.command(command, None, group.now_ms)
                except BrokerError:
                    continue
                assert not decision.records, (
                    f"the timer's command {type(command).__name__} wrote records to a deleted group"
                )
                assert not shard.owns(GROUP), (
                    f"the timer's command {type(command).__name__} brought a deleted group back"
                )

    def test_silent_members_are_gone_in_the_end(self) -> None:
        """A silent member is removed in the end. After a reload ``loaded`` sets the timers for that."""
        whole = self._live()
        lives = range(1, len(whole.log) + 1)
        for end in lives:
            group = GroupUnderTest(self.make_protocol(), self.config)
            group.log = whole.log[:end]
            group.reload()
            group.wait(2 * HOUR_MS)
            for name in self.groups_of(group.shard):
                assert group.shard.is_empty(name), (
                    f"reloaded from {end} records, the group still has members after two silent hours"
                )

    # Strangers

    def test_unknown_requests_are_refused(self) -> None:
        """An unknown request raises ``BrokerError``; any other error drops the shard. Requests for offsets never reach
        a type.
        """
        group = self._live()
        with pytest.raises(BrokerError):
            group.shard.command(
                OffsetCommitRequest(group_id=GROUP), ModelContext(ApiKey.OFFSET_COMMIT, 9), group.now_ms
            )

    def test_empty_requests_of_every_version_are_answered_or_refused(self) -> None:
        """A request with default fields is answered or refused, in every version."""
        group = self._live()
        for api, (low, high) in sorted(group.protocol.apis.items()):
            for version in range(low, high + 1):
                group.ask(request_class(api)(), version)

    def test_errors_are_answered_in_every_version(self) -> None:
        """``error_response`` makes a response that can be encoded and carries the error, for each request and
        version.
        """
        protocol = self.make_protocol()
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for api, (low, high) in sorted(protocol.apis.items()):
            response = protocol.error_response(request_class(api)(), code, None)
            assert response.meta.key == api, (
                f"{type(response).__name__} doesn't answer {API_BY_KEY[api].name}"
            )
            assert getattr(response, "error_code", code) == code, (
                f"{type(response).__name__} doesn't carry {code.name}"
            )
            for version in range(low, high + 1):
                encode(response, version)

    # Migration

    def test_what_is_exported_can_be_imported(self) -> None:
        """An exported group can be imported: it has the same members and no lower generation. (For types that
        export.)
        """

        def done(group: GroupUnderTest) -> None:
            if not group.shard.owns(GROUP) or group.shard.is_empty(GROUP):
                return
            try:
                export = group.shard.export_group(GROUP)
                other = GroupUnderTest(self.make_protocol(), self.config)
                decision = other.shard.import_group(export, group.now_ms)
            except (NotImplementedError, BrokerError):
                return
            assert export.group_id == GROUP
            self._check_records(group.protocol, decision)
            other.append(decision.records)
            assert other.shard.owns(GROUP), "owns() is false for an imported group"
            again = other.shard.export_group(GROUP)
            assert [m.member_id for m in again.members] == [m.member_id for m in export.members]
            assert [m.instance_id for m in again.members] == [m.instance_id for m in export.members]
            assert again.generation >= export.generation, "the imported group has a lower generation"

        self._live(done=done)


def _names(codes: Collection[ErrorCode]) -> str:
    return ", ".join(sorted(code.name for code in codes))


def refusal(check: Callable[..., Any], *arguments: Any) -> ErrorCode | None:
    """Return the code of the ``BrokerError`` that the call raises, or ``None``. No other error may escape."""
    try:
        check(*arguments)
    except BrokerError as error:
        return error.code
    return None


def left(log: list[CoordinatorRecord]) -> list[CoordinatorRecord]:
    """Return the records that compaction leaves."""
    return [item for item in compacted(log) if isinstance(item, CoordinatorRecord)]
