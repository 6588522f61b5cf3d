"""Steps that several decisions share: the epoch and the target of a group, a member's next assignment, its timers.

The shard, heartbeats, classic members and departures all take them, so they stand below these four.
"""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.groups import Surroundings
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, Member, MemberState
from blumfeld_groups_kip848.members.settings import GroupSettings
from blumfeld_groups_kip848.members.timers import start_rebalance, start_session, stop_all
from blumfeld_groups_kip848.targets import subscriptions
from blumfeld_groups_kip848.targets.computing import Targets
from blumfeld_groups_kip848.targets.reconciliation import Reported, reconcile

NO_TARGET_EPOCH = 1
"""Epoch of the members of a new group, which hold nothing until the group has its first target."""


class GroupSteps:
    """The groups of one shard, and what a decision does to one of them. Only ``replay`` changes a group."""

    def __init__(self, surroundings: Surroundings, assignors: Sequence[ConsumerAssignor]) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.surroundings = surroundings
        self.settings = GroupSettings(surroundings.config, surroundings.image)
        self.targets = Targets(assignors, self.settings, surroundings.image)
        self.hashes = subscriptions.TopicHashes()
        self._seen: dict[str, tuple[int, int]] = {}
        """Group id → (its epoch, the image's) at which its topics were as its metadata hash says."""

    def image(self) -> ClusterImage:
        """The cluster, as of now."""
        return self.surroundings.image()

    def forget(self, group_id: str) -> None:
        """The log says that this group has ended; harmless for one that isn't here."""
        self.groups.pop(group_id, None)
        self._seen.pop(group_id, None)

    def refresh(self, edit: Edit, changed: bool) -> None:
        """Bring the group's epoch and its target up to date: with its members (``changed``: one of them, or a
        subscription) and with what is known of the topics that they read.
        """
        image = self.image()
        group = edit.group
        stamp = (group.epoch, image.features_epoch)
        stale = changed or group.epoch == 0 or image.features_epoch < 0
        if stale or group.regexes:
            refresh_interval_ms = self.settings.regex_refresh_interval_ms
            changed |= subscriptions.resolve(edit, image, refresh_interval_ms, members_changed=stale)
        if stale or changed or self._seen.get(group.group_id) != stamp:
            metadata_hash = subscriptions.metadata_hash(edit.group, image, self.hashes)
            if changed or group.epoch == 0 or metadata_hash != group.metadata_hash:
                edit.put_epoch(_next_epoch(group.epoch, changed), metadata_hash)
            self._seen[group.group_id] = (edit.group.epoch, image.features_epoch)
        if edit.group.epoch > edit.group.target_epoch:
            self.targets.update(edit)

    def reconcile(
        self, edit: Edit, member_id: str, owned: Reported | None, *, subscription_changed: bool = False
    ) -> Member:
        """Bring a member a step nearer to its target, and have it watched while it gives up partitions."""
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
            subscribed=self._subscribed(group, member),
            subscription_changed=subscription_changed,
        )
        if now is member:
            return member
        edit.put_assignment(now)
        if now.classic is None and MemberState.UNREVOKED_PARTITIONS in (member.state, now.state):
            start_rebalance(edit, now)
        return edit.group.members[member_id]

    def _subscribed(self, group: ConsumerGroup, member: Member) -> frozenset[bytes]:
        topics = self.image().topics
        names = subscriptions.topics_of(group, member)
        return frozenset(topics[name].topic_id for name in names if name in topics)

    def start_session(self, edit: Edit, member: Member) -> None:
        """(Re)start the time in which a member must be heard of."""
        timeout_ms = (
            self.settings.session_timeout_ms(edit.group_id)
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        start_session(edit, member.member_id, timeout_ms)

    def start_sessions(self, edit: Edit) -> None:
        """That of every member."""
        for member in edit.group.members.values():
            self.start_session(edit, member)

    def stop_timers(self, edit: Edit) -> None:
        """Stop every member's timers: the group ends here."""
        for member_id in edit.group.members:
            stop_all(edit, member_id)


def _next_epoch(epoch: int, changed: bool) -> int:
    """A new group begins in epoch 1, and its first subscription is its first change."""
    return epoch + 1 if epoch or not changed else NO_TARGET_EPOCH + 1
