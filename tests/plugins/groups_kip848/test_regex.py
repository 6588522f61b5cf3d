"""Subscriptions by regular expression, and what of topics an assignment depends on."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from blumfeld.spi.cluster import BrokerImage, TopicImage
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, Member
from blumfeld_groups_kip848.targets import regex
from blumfeld_groups_kip848.targets.subscriptions import (
    NEW_TOPICS_INTERVAL_MS,
    TopicHashes,
    image_version,
    metadata_hash,
    resolve,
    subscribed_topics,
    topics_of,
)
from tests.coordinator.fakes import FakeImage, topic

REFRESH_MS = 600_000
KNOWN_HASH = -9211828562414698024
"""The metadata hash of a topic with three partitions."""
NOW_MS = 1_000_000


def group(*members: Member) -> ConsumerGroup:
    edit = Edit(ConsumerGroup("g", epoch=1), NOW_MS)
    for member in members:
        edit.put_member(member)
    return edit.group


def resolved(group: ConsumerGroup, image: FakeImage, now_ms: int = NOW_MS) -> tuple[ConsumerGroup, bool, int]:
    """The group after it, whether topics changed, and how many records it took."""
    edit = Edit(group, now_ms)
    changed = resolve(edit, image, REFRESH_MS, may_see=lambda _: True)
    return edit.group, changed, len(edit.records)


class TestExpressions:
    @pytest.mark.parametrize("expression", ["t.*", "a|b", "(?i)x", r"\d+", "[[:alpha:]]*", r"\pL{2,3}"])
    def test_re2_can_be_used(self, expression: str) -> None:
        regex.check(expression)

    @pytest.mark.parametrize("expression", ["(", "*", "a{1001}", "(?=a)", r"\1", "(?P<n>a", "[b-a]"])
    def test_what_re2_has_not_is_refused_with_a_reason(self, expression: str) -> None:
        with pytest.raises(BrokerError) as refused:
            regex.check(expression)
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert refused.value.message is not None
        assert refused.value.message.startswith(f"SubscribedTopicRegex `{expression}` is not a valid")

    def test_the_whole_name_has_to_match(self) -> None:
        names = ["orders", "orders-v2", "reorders"]
        assert regex.matching(["orders", "orders.*", ".*"], names) == {
            "orders": ("orders",),
            "orders.*": ("orders", "orders-v2"),
            ".*": ("orders", "orders-v2", "reorders"),
        }

    def test_one_that_cannot_be_read_stands_for_nothing(self) -> None:
        """It came with another broker's log: its group must load all the same."""
        assert regex.matching(["(", "a"], ["a"]) == {"(": (), "a": ("a",)}
        assert regex.matching(["("], ["a"]) == {"(": ()}

    def test_the_engine_is_loaded_when_it_is_needed(self) -> None:
        code = "import sys, blumfeld_groups_kip848.protocol; sys.exit('re2' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False, timeout=90).returncode == 0


class TestResolution:
    def test_a_topic_that_nobody_means_changes_nothing(self) -> None:
        image = FakeImage({"t1": 1})
        after, _, _ = resolved(group(Member("a", subscribed_regex="t.")), image)
        image.topics["x"] = topic("x", 1)
        assert resolved(after, image, NOW_MS + NEW_TOPICS_INTERVAL_MS)[1:] == (False, 1)

    def test_internal_topics_are_topics(self) -> None:
        """As Kafka's coordinator has it: a client that wants none of them says so in its expression."""
        after, _, _ = resolved(
            group(Member("a", subscribed_regex=".*")), FakeImage({"__consumer_offsets": 1, "t": 1})
        )
        assert after.regexes[".*"].topics == ("__consumer_offsets", "t")

    def test_what_is_known_costs_nothing(self) -> None:
        image = FakeImage({"t1": 1})
        after, _, _ = resolved(group(Member("a", subscribed_regex="t.")), image)
        assert resolved(after, image, NOW_MS + REFRESH_MS - 1)[1:] == (False, 0)

    def test_names_and_an_expression_add_up(self) -> None:
        member = Member("a", subscribed_topics=("t1", "x"), subscribed_regex="t.")
        after, _, _ = resolved(group(member), FakeImage({"t1": 1, "t2": 1}))
        assert topics_of(after, member) == ("t1", "t2", "x")
        assert subscribed_topics(after) == ("t1", "t2", "x")


class TestImageVersion:
    def test_it_moves_with_the_topics_there_are(self) -> None:
        image = FakeImage({"a": 1})
        seen = [image_version(image)]
        image.topics["b"] = topic("b", 1)
        seen.append(image_version(image))
        del image.topics["a"]
        seen.append(image_version(image))
        image.topics["a"] = topic("a", 1)
        seen.append(image_version(image))
        assert len(set(seen)) == 4
        assert all(0 <= version < 2**63 for version in seen)

    def test_a_leader_is_not_a_topic(self) -> None:
        image = FakeImage({"a": 1})
        before = image_version(image)
        image.topics["a"] = topic("a", 2)
        assert image_version(image) == before


class TestMetadataHash:
    def test_nothing_to_read_is_0(self) -> None:
        assert metadata_hash(group(Member("a", subscribed_topics=("no",))), FakeImage({"t": 1})) == 0

    def test_it_moves_with_topics_that_are_read(self) -> None:
        readers = group(Member("a", subscribed_topics=("t", "u")))
        image = FakeImage({"t": 1})
        seen = [metadata_hash(readers, image)]
        for name, count in (("u", 1), ("u", 2), ("t", 3)):
            image.topics[name] = topic(name, count)
            seen.append(metadata_hash(readers, image))
        image.topics["t"] = TopicImage(
            name="t", topic_id=b"again".ljust(16), partitions=topic("t", 3).partitions
        )
        seen.append(metadata_hash(readers, image))
        assert len(set(seen)) == 5

    def test_others_and_leaders_leave_it_alone(self) -> None:
        readers = group(Member("a", subscribed_topics=("t",)))
        image = FakeImage({"t": 1})
        before = metadata_hash(readers, image)
        image.topics["x"] = topic("x", 1)
        moved = with_other_leaders(image.topics["t"])
        image.topics["t"] = moved
        assert metadata_hash(readers, image) == before

    def test_it_moves_with_racks(self) -> None:
        readers = group(Member("a", subscribed_topics=("t",)))
        image = FakeImage({"t": 1})
        seen = set()
        for rack in (None, "north", "south"):
            image.brokers[1] = broker(rack)
            seen.add(metadata_hash(readers, image))
        assert len(seen) == 3

    def test_what_was_seen_before_is_not_looked_at_again_unless_it_changed(self) -> None:
        readers = group(Member("a", subscribed_topics=("t", "u")))
        image = FakeImage({"t": 1, "u": 1})
        hashes = TopicHashes()
        for change in (
            lambda: None,
            lambda: image.topics.update(t=topic("t", 2)),
            lambda: image.brokers.update({1: broker("north")}),
            lambda: image.brokers.update({1: broker("south")}),
            lambda: image.topics.pop("u"),
        ):
            change()
            assert metadata_hash(readers, image, hashes) == metadata_hash(readers, image)
        seen = image.topics["t"]
        assert hashes.of(seen, {1: "south"}) is hashes.of(seen, {1: "south"})

    def test_it_is_the_same_in_every_process(self) -> None:
        readers = group(Member("a", subscribed_topics=("t",)))
        assert metadata_hash(readers, FakeImage({"t": 3})) == KNOWN_HASH


def broker(rack: str | None) -> BrokerImage:
    return BrokerImage(broker_id=1, epoch=1, incarnation_id=b"", endpoints=(), rack=rack)


def with_other_leaders(image: TopicImage) -> TopicImage:
    """The same topic with another leader epoch."""
    partitions = {n: msgspec.structs.replace(p, leader_epoch=7) for n, p in image.partitions.items()}
    return msgspec.structs.replace(image, partitions=partitions)


@pytest.mark.parametrize("expression", [r"\PL?" * 9, "b?" * 2_049])
def test_one_out_of_bounds_stands_for_nothing(expression: str) -> None:
    """Another broker has accepted it. To read a larger one of them would hold the loop for a second."""
    assert regex.matching([expression, "a?"], ["", "ab"]) == {expression: (), "a?": ("",)}


def test_expressions_that_do_not_fit_into_memory_together_are_matched_one_by_one() -> None:
    """``check`` takes each of them. Their set failed, and with it every heartbeat that matched them."""
    large = [rf"(?:\pL{{1,20}}){{1,2}}-{number}" for number in range(20)]
    for expression in large:
        regex.check(expression)
    matches = regex.matching([*large, "a.*", "("], ["a-1", "ab", "b-1"])
    assert (matches[large[0]], matches[large[1]]) == ((), ("a-1", "b-1"))
    assert (matches["a.*"], matches["("]) == (("a-1", "ab"), ())
