"""Subscriptions of a group's members: topic names, regular expressions, and the metadata of the topics behind
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from blumfeld.spi.cluster import ClusterImage, TopicImage
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, Member, ResolvedRegex
from blumfeld_groups_kip848.targets.regex import matching

NEW_TOPICS_INTERVAL_MS = 1000
"""Shortest time between two resolutions caused by new or deleted topics (Kafka: 10 s). Each resolution looks
at all topics, and a thousand topics may be created in a row.
"""
_HASH_BYTES = 8


def topics_of(group: ConsumerGroup, member: Member) -> tuple[str, ...]:
    """Sorted names of the topics that a member subscribes to, including topics that do not exist."""
    return _names(group, *member.subscription)


def _names(group: ConsumerGroup, topics: tuple[str, ...], regex: str) -> tuple[str, ...]:
    resolved = group.regexes.get(regex) if regex else None
    return topics if resolved is None else tuple(sorted({*topics, *resolved.topics}))


def subscribed_topics(group: ConsumerGroup) -> tuple[str, ...]:
    """Sorted names of all topics that any member subscribes to."""
    subscriptions = group.subscriptions
    return tuple(sorted({name for topics, regex in subscriptions for name in _names(group, topics, regex)}))


class TopicHashes:
    """Cache of topic hashes. An unchanged topic is not hashed again."""

    def __init__(self) -> None:
        self._racks: dict[int, str] = {}
        self._known: dict[str, tuple[TopicImage, bytes]] = {}

    def of(self, topic: TopicImage, racks: dict[int, str]) -> bytes:
        """The hash of the topic, as :func:`topic_hash` computes it."""
        if racks != self._racks:
            self._racks = racks
            self._known.clear()
        known = self._known.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        digest = topic_hash(topic, racks)
        self._known[topic.name] = (topic, digest)
        return digest


def metadata_hash(group: ConsumerGroup, image: ClusterImage, hashes: TopicHashes | None = None) -> int:
    """Hash of everything that an assignment depends on: ids, partition counts and racks of the subscribed
    topics.

    It is the same in every process; 0 if none of the topics exists. ``hashes`` is a cache that makes it
    cheap.
    """
    hashes = TopicHashes() if hashes is None else hashes
    digest = blake2b(digest_size=_HASH_BYTES)
    racks = rack_of_brokers(image)
    has_topics = False
    for name in subscribed_topics(group):
        topic = image.topics.get(name)
        if topic is not None:
            digest.update(hashes.of(topic, racks))
            has_topics = True
    return int.from_bytes(digest.digest(), "big", signed=True) if has_topics else 0


def topic_hash(topic: TopicImage, racks: dict[int, str]) -> bytes:
    """Hash of one topic, for brokers in these racks."""
    digest = blake2b(topic.topic_id, digest_size=_HASH_BYTES)
    digest.update(len(topic.partitions).to_bytes(4, "big"))
    digest.update(topic.name.encode())
    if racks:
        for _, partition in sorted(topic.partitions.items()):
            near = sorted({racks[broker] for broker in partition.replicas if broker in racks})
            digest.update("\0".join(near).encode() + b"\n")
    return digest.digest()


def rack_of_brokers(image: ClusterImage) -> dict[int, str]:
    """Racks of the brokers that have one, by broker id."""
    return {broker.broker_id: broker.rack for broker in image.brokers.values() if broker.rack}


def image_version(image: ClusterImage) -> int:
    """A value that changes whenever a topic is created or deleted; it has no other meaning."""
    last = next(reversed(image.topics.values()), None)  # type: ignore[call-overload]
    digest = blake2b(b"" if last is None else last.topic_id, digest_size=_HASH_BYTES - 1)
    digest.update(len(image.topics).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big")


def resolve(
    edit: Edit,
    image: ClusterImage,
    refresh_interval_ms: int,
    *,
    members_changed: bool = True,
    may_see: Callable[[str], bool] | None = None,
) -> bool:
    """Bring the group's resolved expressions up to date. New ones, old ones and those that new topics may
    match are resolved; unused ones are removed. All members with the same expression share one resolution.

    ``members_changed``: whether there may be new or unused expressions. ``may_see``: whether the client whose heartbeat
    asks may describe a topic; others match nothing, as in Kafka. ``None``: nobody asks, so unused ones are removed and
    all others stay until the next heartbeat.

    Returns whether the topics of any expression changed.
    """
    regexes = edit.group.regexes
    used: Iterable[str] = regexes
    if members_changed:
        used = dict.fromkeys(regex for _, regex in edit.group.subscriptions if regex)
        for regex in [regex for regex in regexes if regex not in used]:
            edit.put_regex(regex, None)
    if not used or may_see is None:
        return False
    version, now_ms = image_version(image), edit.now_ms
    due = [regex for regex in used if _is_due(regexes.get(regex), version, now_ms, refresh_interval_ms)]
    if not due:
        return False
    changed = False
    for regex, matched in matching(due, image.topics).items():
        topics = tuple(filter(may_see, matched))
        known = edit.group.regexes.get(regex)
        changed = changed or known is None or known.topics != topics
        edit.put_regex(regex, ResolvedRegex(topics, version, now_ms))
    return changed


def _is_due(resolved: ResolvedRegex | None, version: int, now_ms: int, refresh_interval_ms: int) -> bool:
    if resolved is None:
        return True
    age_ms = now_ms - resolved.resolved_at_ms
    stale = resolved.image_version != version and age_ms >= NEW_TOPICS_INTERVAL_MS
    return stale or age_ms >= refresh_interval_ms or age_ms < 0
