"""Steps that several decisions share: a group's epoch and target, a member's next assignment, its timers.

The shard, heartbeats, classic members and departures all use them, so this module stands below those four.
"""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import Surroundings
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, Member, MemberState
from blumfeld_groups_kip848.settings import GroupSettings
from blumfeld_groups_kip848.targets import subscriptions
from blumfeld_groups_kip848.targets.computation import Targets
from blumfeld_groups_kip848.targets.reconciliation import Reported, reconcile
from blumfeld_groups_kip848.targets.resolutions import Resolutions
from blumfeld_groups_kip848.timers import start_rebalance, start_session, stop_all

NO_TARGET_EPOCH = 1
"""Epoch of the members of a new group. They hold nothing until the group has its first target."""


class GroupSteps:
    """The groups of one shard and the steps that a decision takes on one of them. Only ``replay`` changes a
    group.
    """

    def __init__(self, surroundings: Surroundings, assignors: Sequence[ConsumerAssignor]) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.surroundings = surroundings
        self.settings = GroupSettings(surroundings.config, surroundings.image)
        self.targets = Targets(assignors, self.settings, surroundings.image)
        self.hashes = subscriptions.TopicHashes()
        self.resolutions = Resolutions(
            self.groups, self.settings, surroundings.image, self.hashes, self._topics_changed
        )
        self._seen: dict[str, tuple[int, int]] = {}
        """Group id → (group epoch, image epoch) at which the group's metadata hash was last found up to date.
        """

    def image(self) -> ClusterImage:
        """The current cluster image."""
        return self.surroundings.image()

    def forget(self, group_id: str) -> None:
        """Drop a group that the log has ended. Does nothing for an unknown group."""
        self.groups.pop(group_id, None)
        self._seen.pop(group_id, None)
        self.resolutions.forget(group_id)

    def refresh(self, edit: Edit, changed: bool) -> None:
        """Bring the group's epoch and target up to date with its members and the metadata of their topics.
        ``changed``: whether a member or the topics of a subscription changed.
        """
        image = self.image()
        group = edit.group
        stamp = (group.epoch, image.features_epoch)
        stale = changed or group.epoch == 0 or image.features_epoch < 0
        if stale or changed or self._seen.get(group.group_id) != stamp:
            metadata_hash = subscriptions.metadata_hash(edit.group, image, self.hashes)
            if changed or group.epoch == 0 or metadata_hash != group.metadata_hash:
                edit.put_epoch(_next_epoch(group.epoch, changed), metadata_hash)
            self._seen[group.group_id] = (edit.group.epoch, image.features_epoch)
        self.targets.update(edit)

    def order_resolution(self, edit: Edit, member_id: str, asker: RequestContext) -> None:
        """Order the resolution of expressions that are due: :meth:`Resolutions.update`.

        :raises BrokerError: as there
        """
        self.resolutions.update(edit, edit.group.members[member_id], asker)

    def bump_epoch(self, edit: Edit) -> None:
        """Raise the group's epoch because its members or their subscriptions changed."""
        metadata_hash = subscriptions.metadata_hash(edit.group, self.image(), self.hashes)
        edit.put_epoch(edit.group.epoch + 1, metadata_hash)

    def _topics_changed(self, edit: Edit) -> None:
        self.bump_epoch(edit)
        self.targets.update_later(edit)

    def reconcile(
        self,
        edit: Edit,
        member_id: str,
        owned: Reported | None,
        *,
        subscription_changed: bool = False,
        joins: bool = False,
    ) -> Member:
        """Move a member one step nearer to its target. A timer runs while it has partitions to give up.

        :param joins: whether it begins to read. It doesn't begin with topics that its subscription doesn't name, which
            a static member may have read before by another expression
        """
        group = edit.group
        member = group.members[member_id]
        target_epoch = max(group.target_epoch, NO_TARGET_EPOCH)
        if member.is_reconciled(target_epoch) and not subscription_changed:
            return member
        now = reconcile(
            member,
            target_epoch,
            group.targets.get(member_id, {}),
            owned,
            group.owners,
            subscribed=self._subscribed(group, member, joins=joins),
            subscription_changed=subscription_changed,
        )
        if now is member:
            return member
        edit.put_assignment(now)
        if now.classic is None and MemberState.UNREVOKED_PARTITIONS in (member.state, now.state):
            start_rebalance(edit, now)
        return edit.group.members[member_id]

    def _subscribed(self, group: ConsumerGroup, member: Member, *, joins: bool) -> frozenset[bytes] | None:
        """Ids of the topics that the member subscribes to. ``None`` while the topics of its expression are still to
        come: until then it keeps what it has, unless it joins.
        """
        if not joins and not subscriptions.is_resolved(group, member):
            return None
        topics = self.image().topics
        names = subscriptions.topics_of(group, member)
        return frozenset(topics[name].topic_id for name in names if name in topics)

    def start_session(self, edit: Edit, member: Member) -> None:
        """Start or restart the member's session timer."""
        timeout_ms = (
            self.settings.session_timeout_ms(edit.group_id)
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        start_session(edit, member.member_id, timeout_ms)

    def start_sessions(self, edit: Edit) -> None:
        """Start the session timer of every member."""
        for member in edit.group.members.values():
            self.start_session(edit, member)

    def stop_timers(self, edit: Edit) -> None:
        """Stop the timers of every member, when the group ends on this shard."""
        for member_id in edit.group.members:
            stop_all(edit, member_id)


def _next_epoch(epoch: int, changed: bool) -> int:
    """The next group epoch. A new group begins in epoch 1, and its first subscription counts as its first
    change.
    """
    return epoch + 1 if epoch or not changed else NO_TARGET_EPOCH + 1
