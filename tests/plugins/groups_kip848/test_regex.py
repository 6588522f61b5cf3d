"""Subscriptions by regular expression, and what of topics an assignment depends on."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest

from blumfeld.spi.cluster import BrokerImage, TopicImage
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, Member, ResolvedRegex
from blumfeld_groups_kip848.targets import regex
from blumfeld_groups_kip848.targets.subscriptions import (
    TopicHashes,
    image_version,
    metadata_hash,
    subscribed_topics,
    topics_of,
)
from tests.coordinator.fakes import FakeImage, topic

KNOWN_HASH = -9211828562414698024
"""The metadata hash of a topic with three partitions."""
NOW_MS = 1_000_000


def group(*members: Member, **topics: Sequence[str]) -> ConsumerGroup:
    """A group of these members, with the topics of their expressions (``_`` stands for ``.``)."""
    edit = Edit(ConsumerGroup("g", epoch=1), NOW_MS)
    for member in members:
        edit.put_member(member)
    for expression, names in topics.items():
        edit.put_regex(expression.replace("_", "."), ResolvedRegex(tuple(names), 1, NOW_MS))
    return edit.group


def matching(
    expressions: Sequence[str], names: Sequence[str], may_see: Callable[[str], bool] = lambda _: True
) -> Mapping[str, tuple[str, ...]]:
    """The topics of each expression, with all steps at once."""
    steps = regex.matching(expressions, names, may_see)
    try:
        while next(steps) >= 0:
            pass
    except StopIteration as end:
        matched: Mapping[str, tuple[str, ...]] = end.value
        return matched
    raise AssertionError("a step has a cost below 0")


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
        assert matching(["orders", "orders.*", ".*"], names) == {
            "orders": ("orders",),
            "orders.*": ("orders", "orders-v2"),
            ".*": ("orders", "orders-v2", "reorders"),
        }

    def test_one_that_cannot_be_read_stands_for_nothing(self) -> None:
        """It came with another broker's log: its group must load all the same."""
        assert matching(["(", "a"], ["a"]) == {"(": (), "a": ("a",)}
        assert matching(["("], ["a"]) == {"(": ()}

    def test_a_name_that_may_not_be_seen_matches_nothing(self) -> None:
        asked: list[str] = []

        def may_see(name: str) -> bool:
            asked.append(name)
            return name != "b"

        names = ["c", "b", "a", "other"]
        assert matching(["[abc]", "[bc]"], names, may_see) == {"[abc]": ("a", "c"), "[bc]": ("c",)}
        assert asked == ["c", "b", "a"], "each name that matches is asked for once"

    def test_many_names_come_in_order(self) -> None:
        names = [f"t{number:05}" for number in range(3_500)]
        mixed = random.Random(1).sample(names, len(names))
        assert matching(["t.*", r"t\d*7"], mixed) == {"t.*": tuple(names), r"t\d*7": tuple(names[7::10])}

    @pytest.mark.parametrize("expressions", [["t.*"], [f".*{number}?" for number in range(40)]])
    def test_a_step_asks_for_some_rights_at_most(self, expressions: list[str]) -> None:
        """However many expressions there are, and whatever they match: a slice ends between two steps."""
        names = [f"t{number}" for number in range(1_000)]
        looked_at = 0

        def may_see(name: str) -> bool:
            nonlocal looked_at
            looked_at += 1
            return True

        most = 0
        for _ in regex.matching(expressions, names, may_see):
            most, looked_at = max(most, looked_at), 0
        assert 0 < most <= regex.COST_OF_A_STEP // (1 + regex.RIGHT_COST)

    def test_a_step_looks_at_few_long_names_where_an_expression_is_large(self) -> None:
        """A wild one may take a millisecond for each."""
        looked_at = 0

        def may_see(name: str) -> bool:
            nonlocal looked_at
            looked_at += 1
            return True

        most = 0
        names = [f"{number:0249}" for number in range(50)]
        for _ in regex.matching([r"(?:\pL|\d){1,249}"], names, may_see):
            most, looked_at = max(most, looked_at), 0
        assert most == 1

    def test_the_engine_is_loaded_when_it_is_needed(self) -> None:
        code = "import sys, blumfeld_groups_kip848.protocol; sys.exit('re2' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False, timeout=90).returncode == 0


class TestSubscriptions:
    def test_names_and_an_expression_add_up(self) -> None:
        member = Member("a", subscribed_topics=("t1", "x"), subscribed_regex="t.")
        both = group(member, t_=("t1", "t2"))
        assert topics_of(both, member) == ("t1", "t2", "x")
        assert subscribed_topics(both) == ("t1", "t2", "x")


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
    assert matching([expression, "a?"], ["", "ab"]) == {expression: (), "a?": ("",)}


def test_expressions_that_do_not_fit_into_memory_together_are_matched_one_by_one() -> None:
    """``check`` takes each of them. Their set failed, and with it every heartbeat that matched them."""
    large = [rf"(?:\pL{{1,20}}){{1,2}}-{number}" for number in range(20)]
    for expression in large:
        regex.check(expression)
    matches = matching([*large, "a.*", "("], ["a-1", "ab", "b-1"])
    assert (matches[large[0]], matches[large[1]]) == ((), ("a-1", "b-1"))
    assert (matches["a.*"], matches["("]) == (("a-1", "ab"), ())
