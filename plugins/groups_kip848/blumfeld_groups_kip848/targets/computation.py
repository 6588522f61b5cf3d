"""Computation of target assignments.

A small group gets its target in the decision that requires it. A large group gets it from a *job* in slices,
so that other requests have their turn in between. First the assignor runs, then changed targets are written
for a few members at a time, and last the target's epoch. Targets without their epoch do no harm: a member
takes only free partitions, and after a failover the group's epoch is ahead of its target's, so the target is
computed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence

import attrs

from blumfeld.spi.assignors import (
    Assigned,
    Assignment,
    AssignmentSpec,
    AssignorError,
    ConsumerAssignor,
)
from blumfeld.spi.cluster import ClusterImage
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup
from blumfeld_groups_kip848.settings import GroupSettings
from blumfeld_groups_kip848.targets.assignment_spec import assignment_spec, check, is_larger
from blumfeld_groups_kip848.targets.subscriptions import awaits_resolution

SMALL = 400
"""Largest size (members and partitions) that is computed within one decision."""
LOOKED_AT_PER_SLICE = 1000
"""Partitions that an assignor may look at before other requests get their turn."""
MEMBERS_PER_DECISION = 40
BYTES_PER_DECISION = 64 * 1024
"""Approximate bytes of target records that one decision writes."""
BEGUN_ANEW_MAX = 2
"""Number of times that a job restarts for a newer epoch of its group. After that it finishes, so that members
that come and go faster than a target is computed cannot keep the others waiting.
"""
RETRY_MS = 1000
"""Shortest pause before a job is tried again after its assignor failed, or the log refused its records."""

_NOTHING: Assigned = {}


@attrs.frozen
class AssignmentDue:
    """A timer's command: the assignment interval is over."""

    group_id: str


@attrs.frozen
class AssignSlice:
    """A timer's command: run the next slice of the job."""

    group_id: str


@attrs.frozen
class AssignRefused:
    """A command: the log refused the records of a job, because too few replicas are in sync."""

    group_id: str


@attrs.frozen
class AssignTooLarge:
    """A command: a record of a job is larger than the log takes."""

    group_id: str


@attrs.define
class _Job:
    epoch: int
    """The group's epoch when the job started."""
    dealing: Generator[int, None, tuple[AssignmentSpec, Assignment]]
    writes: Iterator[tuple[str, str | None]] | None = None
    """(member id, instance id) of the members still to be written; ``None`` while the assignor runs."""
    dealt: Assignment = attrs.field(factory=dict)
    begun_anew: int = 0


class Targets:
    """The targets of a shard's groups. Jobs live in memory only and end with the shard."""

    def __init__(
        self,
        assignors: Sequence[ConsumerAssignor],
        settings: GroupSettings,
        image: Callable[[], ClusterImage],
    ) -> None:
        """``assignors``: all assignors of the build. The settings name those that the broker offers."""
        by_name = {assignor.name: assignor for assignor in assignors}
        self._offered = {name: by_name[name] for name in settings.assignors}
        self._settings = settings
        self._image = image
        self._jobs: dict[str, _Job] = {}
        self._failed: dict[str, tuple[int, str]] = {}
        """Group id → (group epoch, error message) of failed jobs. No request waits for a job, so the next
        heartbeat reports the error.
        """

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The assignor that most members prefer among those that the broker offers; otherwise the broker's
        default.
        """
        preferred = Counter(
            member.server_assignor
            for member in group.members.values()
            if member.server_assignor in self._offered
        )
        names = list(self._offered)
        return max(names, key=lambda name: preferred[name])

    def update(self, edit: Edit) -> None:
        """Bring the group's target up to its epoch: at once, by a job, or when the assignment interval is
        over.

        Costs nothing if the target is up to date. Call it at the end of a decision on a member's request.

        :raises BrokerError: UNKNOWN_SERVER_ERROR: the assignor failed; the whole decision is void, as in
            Kafka
        """
        group = edit.group
        if not _is_due(group):
            return
        if edit.group_id in self._jobs:
            # The timer is lost if the decision that ordered it was given up.
            edit.timer(_timer(edit), 0, AssignSlice(edit.group_id))
            return
        failed = self._failed.get(edit.group_id)
        if failed is not None and failed[0] == group.epoch:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, failed[1])
        wait_ms = self._wait_ms(edit)
        if wait_ms > 0:
            edit.timer(_timer(edit), wait_ms, AssignmentDue(edit.group_id))
            return
        try:
            self._begin(edit)
        except AssignorError as error:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    def update_later(self, edit: Edit) -> None:
        """Schedule :meth:`update` by a timer. For changes without a member's request (an expired session, a
        loaded shard), and for leaving, which must not fail because an assignor fails.
        """
        if _is_due(edit.group) and edit.group_id not in self._jobs:
            edit.timer(_timer(edit), self._wait_ms(edit), AssignmentDue(edit.group_id))

    def command(
        self, command: AssignmentDue | AssignSlice | AssignRefused | AssignTooLarge, edit: Edit
    ) -> None:
        """Handle a timer's command. Raises nothing: an assignor's error goes to the group's next heartbeat."""
        group = edit.group
        job = self._jobs.get(edit.group_id)
        if not _is_due(group):
            self._forget(edit.group_id)
            return
        if isinstance(command, AssignRefused):
            # Nobody's fault, and over soon: members don't hear of it. The job can't write again what it has written.
            self._forget(edit.group_id)
            edit.timer(_timer(edit), RETRY_MS, AssignmentDue(edit.group_id))
            return
        try:
            if isinstance(command, AssignTooLarge):
                raise AssignorError("the log refused the target assignment: a member's part is too large")
            if job is not None:
                self._go_on(edit, job)
            else:
                self._failed.pop(edit.group_id, None)
                self._begin(edit)
        except AssignorError as error:
            self._forget(edit.group_id)
            self._failed[edit.group_id] = (group.epoch, str(error))
            retry_ms = max(self._settings.assignment_interval_ms(edit.group_id), RETRY_MS)
            edit.timer(_timer(edit), retry_ms, AssignmentDue(edit.group_id))

    def _forget(self, group_id: str) -> None:
        self._jobs.pop(group_id, None)
        self._failed.pop(group_id, None)

    def _wait_ms(self, edit: Edit) -> int:
        interval_ms = self._settings.assignment_interval_ms(edit.group_id)
        since_ms = edit.now_ms - edit.group.target_time_ms
        # A clock that was set back must not keep a group waiting.
        return interval_ms - since_ms if 0 <= since_ms < interval_ms else 0

    def _begin(self, edit: Edit, begun_anew: int = 0) -> None:
        group, image = edit.group, self._image()
        job = _Job(group.epoch, self._deal(group.draft(), image), begun_anew=begun_anew)
        if is_larger(group, image, SMALL):
            self._jobs[edit.group_id] = job
            edit.timer(_timer(edit), 0, AssignSlice(edit.group_id))
            return
        while job.writes is None:
            _deal_slice(job)
        while not _write_slice(edit, job):
            pass

    def _go_on(self, edit: Edit, job: _Job) -> None:
        if job.writes is None:
            if job.epoch != edit.group.epoch and job.begun_anew < BEGUN_ANEW_MAX:
                self._forget(edit.group_id)
                self._begin(edit, job.begun_anew + 1)
                return
            _deal_slice(job)
        else:
            edit.if_refused, edit.if_too_large = AssignRefused(edit.group_id), AssignTooLarge(edit.group_id)
            if _write_slice(edit, job):
                self._forget(edit.group_id)
                self.update_later(edit)
                return
        edit.timer(_timer(edit), 0, AssignSlice(edit.group_id))

    def _deal(
        self, group: ConsumerGroup, image: ClusterImage
    ) -> Generator[int, None, tuple[AssignmentSpec, Assignment]]:
        assignor = self._offered[self.assignor_of(group)]
        spec = yield from assignment_spec(group, image)
        try:
            assignment = yield from assignor.assign(spec)
        except AssignorError as error:
            raise AssignorError(_failure(assignor, error)) from error
        except Exception as error:
            # The assignor may be a third party's and raise anything. Only groups that use it may suffer.
            raise AssignorError(_failure(assignor, error)) from error
        try:
            yield from check(spec, assignment)
        except AssignorError as error:
            raise AssignorError(_failure(assignor, error)) from error
        return spec, assignment


def _is_due(group: ConsumerGroup) -> bool:
    """Whether the group needs a new target. One whose topics are all still to come waits for them."""
    return group.epoch > group.target_epoch and bool(group.members) and not awaits_resolution(group)


def _failure(assignor: ConsumerAssignor, error: Exception) -> str:
    return f"Failed to compute a new target assignment with {assignor.name}: {str(error) or type(error).__name__}"


def _timer(edit: Edit) -> tuple[str, ...]:
    return ("target", edit.group_id)


def _deal_slice(job: _Job) -> None:
    looked_at = 0
    try:
        while looked_at < LOOKED_AT_PER_SLICE:
            looked_at += max(next(job.dealing), 1)
    except StopIteration as end:
        spec, job.dealt = end.value
        job.writes = iter([(member.member_id, member.instance_id) for member in spec.members.values()])


def _write_slice(edit: Edit, job: _Job) -> bool:
    """Write the targets that changed, for some members. Returns whether all are written."""
    assert job.writes is not None, "nothing is written before all is dealt"
    written = size_bytes = 0
    for dealt_to, instance_id in job.writes:
        assigned = job.dealt.get(dealt_to, _NOTHING)
        member_id = _now_called(edit.group, dealt_to, instance_id)
        if member_id is None or edit.group.targets.get(member_id) == assigned:
            continue
        edit.put_target(member_id, assigned)
        written, size_bytes = written + 1, size_bytes + len(edit.records[-1].value or b"")
        if written >= MEMBERS_PER_DECISION or size_bytes >= BYTES_PER_DECISION:
            return False
    edit.put_target_epoch(job.epoch)
    return True


def _now_called(group: ConsumerGroup, member_id: str, instance_id: str | None) -> str | None:
    """The member's id now. A static member may have returned with a new id; ``None`` if the member has left."""
    if member_id in group.members:
        return member_id
    return None if instance_id is None else group.instances.get(instance_id)
