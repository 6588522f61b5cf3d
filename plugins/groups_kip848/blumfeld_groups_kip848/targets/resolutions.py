"""Resolution of subscribed regular expressions to topics (KIP-848), in slices.

An expression is matched with the name of every topic of the cluster. Each name that it matches counts only if the
client whose heartbeat ordered the resolution may describe the topic. With many topics that takes longer than others may
be kept waiting. So a heartbeat only orders a resolution, and is answered with what the member has. A *job* does the
resolution, one slice at a time. It writes the result when it is there: the topics of each expression, and a new epoch
of the group if they have changed.

A shard has one job at a time, however many groups wait: a change of the metadata makes the expressions of all groups
due at once, and the work of other groups takes turns with that one job. Groups with an expression that has no topics
yet go before groups that refresh theirs, but not always: one of each kind is taken in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import attrs

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import Decision
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, Member, ResolvedRegex
from blumfeld_groups_kip848.settings import GroupSettings
from blumfeld_groups_kip848.targets.regex import matching
from blumfeld_groups_kip848.targets.subscriptions import (
    TopicHashes,
    image_version,
    rack_of_brokers,
    used_regexes,
)

NEW_TOPICS_INTERVAL_MS = 10_000
"""Shortest time between two resolutions of an expression that new or deleted topics cause (Kafka's
``REGEX_BATCH_REFRESH_MIN_INTERVAL_MS``). A thousand topics may be created in a row.
"""
LOOKED_AT_PER_SLICE = 500
"""Cost of a slice: half a millisecond, and more on a busy machine."""
HASHES_AT_ONCE = 100
HASH_COST = 2
"""Cost of a topic's hash."""
TOPICS_PER_DECISION = 2_000
"""Topics that one decision writes. One expression with more has a decision of its own."""
BEGUN_ANEW_MAX = 2
"""Number of times that a job restarts because topics or rights changed. After that it finishes, so that topics that
are created one after the other cannot keep the members waiting. Its result is due again.
"""
NO_VERSION = 0
"""Version of a result that topics or rights have overtaken. No image has it, so the result is due again."""
PAUSE_MS = 1_000
"""Pause after records that the log refused, and the time after which a timer counts as lost."""
_TIMER = ("regex",)


@attrs.frozen
class ResolveSlice:
    """A timer's command: run the next slice of the job, or begin the next job."""


@attrs.frozen
class ResolveRefused:
    """A command: the log refused the records of a group's job. They are written again after a pause."""

    group_id: str


@attrs.frozen
class ResolveTooLarge:
    """A command: a record of a group's job is larger than the log takes."""

    group_id: str


@attrs.define
class _Job:
    group_id: str
    regexes: frozenset[str]
    asker: RequestContext
    """The request whose client's rights count."""
    version: int
    """Version of the image whose topics are matched."""
    rights: int
    """The generation of rights that the topics are asked for in."""
    steps: Generator[int, None, Mapping[str, tuple[str, ...]]]
    begun_anew: int
    unwritten: list[tuple[str, tuple[str, ...]]] | None = None
    """(expression, topics) that are still to be written, the next one last; ``None`` while the topics are matched."""
    written: list[tuple[str, tuple[str, ...]]] = attrs.field(factory=list)
    """Those of the last decision, which the log may refuse yet."""
    one_by_one: bool = False
    """Whether each expression has a decision of its own, to find the one whose record is too large."""

    @property
    def is_done(self) -> bool:
        """Whether all is written, unless the log refuses it yet."""
        return self.unwritten == []


class Resolutions:
    """The resolutions of a shard's groups. Jobs live in memory only and end with the shard: expressions without
    topics, and those that are old, are due again in the next heartbeat.
    """

    def __init__(
        self,
        groups: Mapping[str, ConsumerGroup],
        settings: GroupSettings,
        image: Callable[[], ClusterImage],
        hashes: TopicHashes,
        topics_changed: Callable[[Edit], None],
    ) -> None:
        """:param hashes: filled for the matched topics, so that the decision that writes them is short
        :param topics_changed: raises the group's epoch; called when an expression has other topics than before
        """
        self._groups = groups
        self._settings = settings
        self._image = image
        self._hashes = hashes
        self._topics_changed = topics_changed
        self._job: _Job | None = None
        self._unresolved: dict[str, RequestContext] = {}
        """Groups that wait with an expression that has no topics yet → the newest request that orders it."""
        self._old: dict[str, RequestContext] = {}
        """Groups that wait to have their expressions refreshed."""
        self._old_is_next = False
        self._too_large: dict[tuple[str, str], ResolvedRegex] = {}
        """(group id, expression) whose topics don't fit into a record, without the topics."""
        self._ran_ms = 0

    def update(self, edit: Edit, member: Member, asker: RequestContext) -> None:
        """Order the resolution of the group's expressions that are due: new ones, old ones and those that other topics
        may match now. ``asker`` is the member's request.

        Costs little if none is due. Call it last in a decision: a decision that fails must not have ordered anything.

        :raises BrokerError: UNKNOWN_SERVER_ERROR: the topics of the member's expression don't fit into a record
        """
        group = edit.group
        used = used_regexes(group)
        if not used:
            return
        due = self._due(group, edit.now_ms)
        if due:
            self._order(edit, due, asker)
        elif (
            member.subscribed_regex not in group.regexes
            and (group.group_id, member.subscribed_regex) in self._too_large
        ):
            raise BrokerError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the topics of SubscribedTopicRegex `{member.subscribed_regex}` don't fit into one record; subscribe "
                "by an expression that matches fewer",
            )

    def _order(self, edit: Edit, due: list[str], asker: RequestContext) -> None:
        group_id, job = edit.group_id, self._job
        is_idle = job is None and not self._unresolved and not self._old
        if job is None or job.is_done or job.group_id != group_id or not job.regexes.issuperset(due):
            if all(regex in edit.group.regexes for regex in due):
                if group_id not in self._unresolved:
                    self._old[group_id] = asker
            else:
                self._old.pop(group_id, None)
                self._unresolved[group_id] = asker
        # The timer is lost if the decision that ordered it was given up, or met a defect.
        if is_idle or abs(edit.now_ms - self._ran_ms) > PAUSE_MS:
            self._ran_ms = edit.now_ms
            edit.timer(_TIMER, 0, ResolveSlice())

    def _due(self, group: ConsumerGroup, now_ms: int) -> list[str]:
        version, interval_ms = image_version(self._image()), self._settings.regex_refresh_interval_ms
        return [
            regex
            for regex in used_regexes(group)
            if _is_due(
                self._too_large.get((group.group_id, regex)) or group.regexes.get(regex),
                version,
                now_ms,
                interval_ms,
            )
        ]

    def forget(self, group_id: str) -> None:
        """Drop everything about a group that the log has ended."""
        self._unresolved.pop(group_id, None)
        self._old.pop(group_id, None)
        if self._job is not None and self._job.group_id == group_id:
            self._job = None
        for key in [key for key in self._too_large if key[0] == group_id]:
            del self._too_large[key]

    def command(self, command: ResolveSlice | ResolveRefused | ResolveTooLarge, now_ms: int) -> Decision:
        """Run a slice, or take note of what the log refused. Raises nothing."""
        self._ran_ms = now_ms
        edit, delay_ms = Edit(ConsumerGroup(""), now_ms), 0
        match command:
            case ResolveSlice():
                edit = self._slice(now_ms)
            case ResolveRefused(group_id):
                self._write_again(group_id)
                delay_ms = PAUSE_MS
            case ResolveTooLarge(group_id):
                self._too_large_for_the_log(group_id, now_ms)
        if self._job is not None or self._unresolved or self._old:
            edit.timer(_TIMER, delay_ms, ResolveSlice())
        return edit.decision()

    def _write_again(self, group_id: str) -> None:
        job = self._job
        if job is not None and job.group_id == group_id and job.unwritten is not None:
            job.unwritten += reversed(job.written)
            job.written = []

    def _too_large_for_the_log(self, group_id: str, now_ms: int) -> None:
        job, group = self._job, self._groups.get(group_id)
        if job is None or group is None or job.group_id != group_id:
            return
        if len(job.written) > 1:
            job.one_by_one = True
            self._write_again(group_id)
            return
        used = used_regexes(group)
        for key in [key for key in self._too_large if key[0] == group_id and key[1] not in used]:
            del self._too_large[key]
        for regex, _ in job.written:
            self._too_large[group_id, regex] = ResolvedRegex((), job.version, now_ms)

    def _slice(self, now_ms: int) -> Edit:
        # A defect in the slice ends this job alone: the host orders the next slice, which begins another one.
        job, self._job = self._job, None
        if job is None or job.is_done:
            job = self._next(now_ms)
        elif self._is_overtaken(job) and job.begun_anew < BEGUN_ANEW_MAX:
            job = self._begin(job.group_id, job.asker, now_ms, job.begun_anew + 1)
        group = None if job is None else self._groups.get(job.group_id)
        edit = Edit(group or ConsumerGroup(""), now_ms)
        if job is not None and job.unwritten is None:
            _match_slice(job)
        elif job is not None:
            self._write_slice(edit, job)
        self._job = job
        return edit

    def _next(self, now_ms: int) -> _Job | None:
        """Begin the job of a group that waits."""
        first, second = self._unresolved, self._old
        if self._old_is_next:
            first, second = second, first
        self._old_is_next = not self._old_is_next
        waiting = first or second
        if not waiting:
            return None
        group_id = next(iter(waiting))
        return self._begin(group_id, waiting.pop(group_id), now_ms)

    def _begin(self, group_id: str, asker: RequestContext, now_ms: int, begun_anew: int = 0) -> _Job | None:
        group, image = self._groups.get(group_id), self._image()
        due = [] if group is None else self._due(group, now_ms)
        if not due:
            return None
        return _Job(
            group_id=group_id,
            regexes=frozenset(due),
            asker=asker,
            version=image_version(image),
            rights=asker.rights_generation,
            steps=self._resolve(due, list(image.topics), asker),
            begun_anew=begun_anew,
        )

    def _resolve(
        self, regexes: list[str], names: list[str], asker: RequestContext
    ) -> Generator[int, None, Mapping[str, tuple[str, ...]]]:
        def may_see(topic: str) -> bool:
            return asker.authorize("Describe", "Topic", topic, quiet=True)

        matched = yield from matching(regexes, names, may_see)
        for topics in matched.values():
            for start in range(0, len(topics), HASHES_AT_ONCE):
                some = topics[start : start + HASHES_AT_ONCE]
                self._hash(some)
                yield HASH_COST * len(some)
        return matched

    def _hash(self, names: Sequence[str]) -> None:
        image = self._image()
        racks = rack_of_brokers(image)
        for name in names:
            topic = image.topics.get(name)
            if topic is not None:
                self._hashes.of(topic, racks)

    def _is_overtaken(self, job: _Job) -> bool:
        return job.version != image_version(self._image()) or job.rights != job.asker.rights_generation

    def _write_slice(self, edit: Edit, job: _Job) -> None:
        """Write the topics of some expressions."""
        assert job.unwritten is not None, "nothing is written before all is matched"
        version = NO_VERSION if self._is_overtaken(job) else job.version
        used = used_regexes(edit.group)
        size, changed, job.written = 0, False, []
        while job.unwritten and (not size or size + len(job.unwritten[-1][1]) <= TOPICS_PER_DECISION):
            regex, topics = job.unwritten.pop()
            if regex not in used:
                continue
            known = edit.group.regexes.get(regex)
            changed = changed or known is None or known.topics != topics
            edit.put_regex(regex, ResolvedRegex(topics, version, edit.now_ms))
            self._too_large.pop((edit.group_id, regex), None)
            job.written.append((regex, topics))
            size += 1 + len(topics)
            if job.one_by_one:
                break
        edit.if_refused, edit.if_too_large = ResolveRefused(edit.group_id), ResolveTooLarge(edit.group_id)
        if changed:
            # A bump with each decision: after a failover between two of them nothing else would tell of the change.
            self._topics_changed(edit)


def _match_slice(job: _Job) -> None:
    looked_at = 0
    try:
        while looked_at < LOOKED_AT_PER_SLICE:
            looked_at += next(job.steps) or 1
    except StopIteration as end:
        job.unwritten = list(reversed(end.value.items()))


def _is_due(resolved: ResolvedRegex | None, version: int, now_ms: int, refresh_interval_ms: int) -> bool:
    if resolved is None:
        return True
    age_ms = now_ms - resolved.resolved_at_ms
    stale = resolved.image_version != version and age_ms >= NEW_TOPICS_INTERVAL_MS
    return stale or age_ms >= refresh_interval_ms or age_ms < 0
