"""Subscriptions of a group's members: topic names, regular expressions, and the metadata of the topics behind
them.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from blumfeld.spi.cluster import ClusterImage, TopicImage
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, Member

_HASH_BYTES = 8


def topics_of(group: ConsumerGroup, member: Member) -> tuple[str, ...]:
    """Sorted names of the topics that a member subscribes to, including topics that do not exist."""
    return _names(group, *member.subscription)


def _names(group: ConsumerGroup, topics: tuple[str, ...], regex: str) -> tuple[str, ...]:
    resolved = group.regexes.get(regex) if regex else None
    if resolved is None:
        return topics
    return tuple(sorted({*topics, *resolved.topics})) if topics else resolved.topics


def subscribed_topics(group: ConsumerGroup) -> tuple[str, ...]:
    """Sorted names of all topics that any member subscribes to."""
    subscriptions = group.subscriptions
    if len(subscriptions) == 1:
        ((topics, regex),) = subscriptions
        return _names(group, topics, regex)
    return tuple(sorted({name for topics, regex in subscriptions for name in _names(group, topics, regex)}))


def used_regexes(group: ConsumerGroup) -> Collection[str]:
    """The expressions that members subscribe by, each once, in a fixed order."""
    return dict.fromkeys(regex for _, regex in group.subscriptions if regex)


def is_resolved(group: ConsumerGroup, member: Member) -> bool:
    """Whether the topics of the member's expression are known. A member without one has nothing to wait for."""
    return not member.subscribed_regex or member.subscribed_regex in group.regexes


def awaits_resolution(group: ConsumerGroup) -> bool:
    """Whether no member has a topic yet, because all subscribe by expressions whose topics are still to come."""
    return bool(group.subscriptions) and all(
        regex and not topics and regex not in group.regexes for topics, regex in group.subscriptions
    )


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


def forget_unused(edit: Edit) -> None:
    """Remove the topics of expressions that no member subscribes by any more."""
    used = used_regexes(edit.group)
    for regex in [regex for regex in edit.group.regexes if regex not in used]:
        edit.put_regex(regex, None)
