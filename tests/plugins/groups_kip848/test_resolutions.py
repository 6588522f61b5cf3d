"""When expressions are resolved, in which slices, and what comes into the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.coordinator.groups.records import decode_record
from blumfeld.spi.groups import Decision
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, Member
from blumfeld_groups_kip848.record_types import RECORD_TYPES
from blumfeld_groups_kip848.replay import replay
from blumfeld_groups_kip848.settings import GroupSettings
from blumfeld_groups_kip848.targets.resolutions import (
    BEGUN_ANEW_MAX,
    LOOKED_AT_PER_SLICE,
    NEW_TOPICS_INTERVAL_MS,
    NO_VERSION,
    PAUSE_MS,
    TOPICS_PER_DECISION,
    Resolutions,
    ResolveSlice,
)
from blumfeld_groups_kip848.targets.subscriptions import TopicHashes, image_version, metadata_hash
from tests.coordinator.fakes import FakeContext, FakeImage, topic

pytest.importorskip("re2")

REFRESH_MS = 600_000
MANY = 5_000
"""Topics for some slices."""


class Asker(FakeContext):
    """A client whose rights change."""

    def __init__(self) -> None:
        super().__init__(68, 1)
        self.hidden: set[str] = set()
        self.generation = 0
        self.asked = 0

    @property
    def rights_generation(self) -> int:
        return self.generation

    def authorize(self, operation: str, resource_type: str, name: str, *, quiet: bool = False) -> bool:
        assert (operation, resource_type, quiet) == ("Describe", "Topic", True)
        self.asked += 1
        return name not in self.hidden

    def hide(self, *names: str) -> None:
        """ACLs are changed."""
        self.hidden = set(names)
        self.generation += 1


class Scene:
    """The groups of a shard, their resolutions, and the decisions that a host would carry out."""

    def __init__(self, topics: Sequence[str] = (), **config: int) -> None:
        self.image = FakeImage(dict.fromkeys(topics, 1))
        self.groups: dict[str, ConsumerGroup] = {}
        settings = GroupSettings(
            BrokerConfig({key.replace("_", "."): value for key, value in config.items()}), lambda: self.image
        )
        self.hashes = TopicHashes()
        self.resolutions = Resolutions(
            self.groups, settings, lambda: self.image, self.hashes, self._topics_changed
        )
        self.asker = Asker()
        self.now_ms = 1_000_000
        self.timer: tuple[int, Any] | None = None
        self.bumped: list[str] = []
        self.record_bytes_max = 1 << 20
        self.refuses = False
        self.slices = 0

    def _topics_changed(self, edit: Edit) -> None:
        edit.put_epoch(edit.group.epoch + 1, 0)
        self.bumped.append(edit.group_id)

    def beat(self, group_id: str = "g", *regexes: str, lost: bool = False) -> None:
        """A heartbeat of the member ``m0``; one member subscribes by each expression from now on.

        :param lost: the log refuses the decision
        """
        edit = Edit(self.groups.get(group_id) or ConsumerGroup(group_id, epoch=1), self.now_ms)
        for number, regex in enumerate(regexes):
            edit.put_member(Member(f"m{number}", subscribed_regex=regex))
        self.resolutions.update(edit, edit.group.members["m0"], self.asker)
        if lost:
            return
        self.groups[group_id] = edit.group
        self._order(edit.decision())

    def _order(self, decision: Decision) -> None:
        for order in decision.timers:
            assert order.key == ("regex",), "a shard has one timer"
            assert order.delay_ms is not None
            self.timer = (self.now_ms + order.delay_ms, order.command)

    def slice(self) -> Decision:
        """Fire the timer. Returns the decision that was carried out, or that the log refused."""
        assert self.timer is not None
        (at_ms, command), self.timer = self.timer, None
        self.now_ms = max(self.now_ms, at_ms)
        self.slices += 1
        decision = self.resolutions.command(command, self.now_ms)
        too_large = any(len(item.value or b"") > self.record_bytes_max for item in decision.records)
        if decision.records and (too_large or self.refuses):
            then = decision.if_too_large if too_large else decision.if_refused
            self._order(self.resolutions.command(then, self.now_ms))
            return decision
        for item in decision.records:
            decoded = decode_record(RECORD_TYPES, item)
            assert decoded is not None
            _, key, value = decoded
            replay(self.groups[key.group_id], key, value)  # type: ignore[attr-defined]
        self._order(decision)
        return decision

    def settle(self) -> list[str]:
        """Fire until nothing is left to do. Returns the groups that were bumped."""
        before = len(self.bumped)
        while self.timer is not None:
            assert self.slices < 10_000
            self.slice()
        return self.bumped[before:]

    def topics(self, group_id: str = "g") -> dict[str, tuple[str, ...]]:
        return {regex: known.topics for regex, known in self.groups[group_id].regexes.items()}


def names(count: int, prefix: str = "t") -> list[str]:
    return [f"{prefix}{number:05}" for number in range(count)]


class TestSlices:
    def test_a_heartbeat_looks_at_no_topic(self) -> None:
        scene = Scene(names(MANY))
        scene.beat("g", "t.*")
        assert (scene.asker.asked, scene.topics()) == (0, {})

    def test_no_slice_looks_at_more_than_its_share(self) -> None:
        scene = Scene(names(MANY))
        scene.beat("g", "t.*", ".*1", "[^7]*")
        most = 0
        while scene.timer is not None:
            before = scene.asker.asked
            scene.slice()
            most = max(most, scene.asker.asked - before)
        assert 0 < most <= LOOKED_AT_PER_SLICE
        assert scene.topics()["t.*"] == tuple(names(MANY))
        assert scene.topics()["[^7]*"] == tuple(name for name in names(MANY) if "7" not in name)

    def test_the_topics_of_the_result_are_hashed_before_it_is_written(self) -> None:
        """The decision that writes it has to hash them all. The slices before have done most of that."""
        scene = Scene(names(MANY))
        scene.beat("g", "t.*")
        scene.settle()
        group = scene.groups["g"]
        known = scene.hashes.of(scene.image.topics["t00007"], {})
        metadata_hash(group, scene.image, scene.hashes)
        assert scene.hashes.of(scene.image.topics["t00007"], {}) is known

    def test_many_topics_are_written_in_decisions_of_some(self) -> None:
        scene = Scene(names(MANY))
        scene.beat("g", *(f".*{digit}" for digit in range(10)))
        sizes = []
        while scene.timer is not None:
            before = {regex: len(topics) for regex, topics in scene.topics().items()}
            scene.slice()
            sizes.append(sum(map(len, scene.topics().values())) - sum(before.values()))
        assert max(sizes) <= TOPICS_PER_DECISION
        assert sum(sizes) == MANY
        assert scene.bumped == ["g"] * sum(size > 0 for size in sizes), (
            "a failover may come between two of them"
        )

    def test_one_job_at_a_time(self) -> None:
        """A change of the metadata makes the expressions of all groups due. The shard orders one slice, not many."""
        scene = Scene(names(MANY))
        for number in range(50):
            scene.beat(f"g{number}", f"t.*{number % 10}")
        done = []
        while scene.timer is not None:
            scene.slice()
            done += [group_id for group_id in scene.groups if group_id not in done and scene.topics(group_id)]
        assert done == [f"g{number}" for number in range(50)]


class TestRhythm:
    def test_what_is_known_costs_nothing(self) -> None:
        scene = Scene(["t1"])
        scene.beat("g", "t.")
        assert scene.settle() == ["g"]
        scene.now_ms += REFRESH_MS - 1
        scene.beat()
        assert scene.timer is None
        scene.now_ms += 1
        scene.beat()
        assert scene.settle() == []
        assert scene.groups["g"].regexes["t."].resolved_at_ms == scene.now_ms

    def test_a_new_topic_is_looked_for_after_ten_seconds(self) -> None:
        scene = Scene(["t1"])
        scene.beat("g", "t.")
        scene.settle()
        scene.image.topics["t2"] = topic("t2", 1)
        scene.now_ms += NEW_TOPICS_INTERVAL_MS - 1
        scene.beat()
        assert scene.timer is None
        scene.now_ms += 1
        scene.beat()
        assert scene.settle() == ["g"]
        assert scene.topics() == {"t.": ("t1", "t2")}

    def test_a_topic_that_nobody_means_bumps_nothing(self) -> None:
        scene = Scene(["t1"])
        scene.beat("g", "t.")
        scene.settle()
        scene.image.topics["x"] = topic("x", 1)
        scene.now_ms += NEW_TOPICS_INTERVAL_MS
        scene.beat()
        assert scene.settle() == []
        assert scene.groups["g"].regexes["t."].image_version == image_version(scene.image)

    def test_a_new_expression_is_resolved_at_once_and_alone(self) -> None:
        scene = Scene(["t1", "u1"])
        scene.beat("g", "t.")
        scene.settle()
        first_ms = scene.now_ms
        scene.now_ms += 1
        scene.beat("g", "t.", "u.")
        scene.settle()
        assert scene.topics() == {"t.": ("t1",), "u.": ("u1",)}
        assert scene.groups["g"].regexes["t."].resolved_at_ms == first_ms

    def test_a_clock_that_was_set_back_keeps_nobody_waiting(self) -> None:
        scene = Scene(["t1"])
        scene.beat("g", "t.")
        scene.settle()
        scene.now_ms -= 50_000
        scene.beat()
        scene.settle()
        assert scene.groups["g"].regexes["t."].resolved_at_ms == scene.now_ms

    def test_a_new_expression_waits_for_one_refresh_at_most(self) -> None:
        """And a refresh for one new expression at most: neither starves the other."""
        scene = Scene(["t1"])
        old = [f"old{number}" for number in range(10)]
        for group_id in old:
            scene.beat(group_id, "t.")
        scene.settle()
        scene.now_ms += REFRESH_MS
        for group_id in old:
            scene.beat(group_id)
        for number in range(10):
            scene.beat(f"new{number}", "t.")
        order: list[str] = []
        while scene.timer is not None:
            keys = [item.key for item in scene.slice().records if b"t." in item.key]
            order += ["new" if b"new" in key else "old" for key in keys]
        assert order in (["old", "new"] * 10, ["new", "old"] * 10)

    def test_internal_topics_are_topics(self) -> None:
        """As Kafka's coordinator has it: a client that wants none of them says so in its expression."""
        scene = Scene(["__consumer_offsets", "t"])
        scene.beat("g", ".*")
        scene.settle()
        assert scene.topics() == {".*": ("__consumer_offsets", "t")}


class TestOvertaken:
    def test_a_topic_that_comes_meanwhile_is_in_the_result(self) -> None:
        scene = Scene(names(MANY))
        scene.beat("g", "t.*[59]")
        for _ in range(4):
            scene.slice()
        scene.image.topics["t-new-5"] = topic("t-new-5", 1)
        scene.settle()
        assert "t-new-5" in scene.topics()["t.*[59]"]
        assert scene.groups["g"].regexes["t.*[59]"].image_version == image_version(scene.image)

    def test_rights_that_go_meanwhile_count(self) -> None:
        """Also those on topics that were looked at before they went."""
        scene = Scene(names(MANY))
        scene.beat("g", "t.*")
        for _ in range(3):
            scene.slice()
        assert scene.asker.asked
        scene.asker.hide("t00000")
        scene.settle()
        assert scene.topics()["t.*"] == tuple(names(MANY)[1:])

    @pytest.mark.parametrize("what", ["topics", "rights"])
    def test_changes_that_never_end_keep_nobody_waiting(self, what: str) -> None:
        scene = Scene(names(MANY))
        scene.beat("g", "t.*0")
        while scene.timer is not None and not scene.topics():
            assert scene.slices < (BEGUN_ANEW_MAX + 2) * MANY
            scene.slice()
            if what == "rights":
                scene.asker.hide(f"{scene.slices}")
            else:
                scene.image.topics[f"x{scene.slices}"] = topic(f"x{scene.slices}", 1)
        known = scene.groups["g"].regexes["t.*0"]
        assert known.image_version == NO_VERSION
        scene.now_ms += NEW_TOPICS_INTERVAL_MS
        scene.beat()
        scene.settle()
        assert scene.groups["g"].regexes["t.*0"].image_version == image_version(scene.image), (
            "it was due again"
        )

    def test_a_member_that_comes_meanwhile_is_served_next(self) -> None:
        scene = Scene(names(MANY))
        scene.beat("g", "t.*1")
        scene.slice()
        scene.beat("g", "t.*1", "t.*2")
        scene.settle()
        assert list(scene.topics()) == ["t.*1", "t.*2"]

    def test_an_expression_that_is_left_meanwhile_is_not_written(self) -> None:
        scene = Scene(names(MANY))
        scene.beat("g", "t.*1", "t.*2")
        scene.slice()
        edit = Edit(scene.groups["g"], scene.now_ms)
        edit.remove_member("m0")
        scene.groups["g"] = edit.group
        scene.settle()
        assert list(scene.topics()) == ["t.*2"]

    def test_a_group_that_ends_meanwhile_is_forgotten(self) -> None:
        scene = Scene(names(MANY))
        scene.beat("g", "t.*")
        scene.beat("h", "t.*")
        scene.slice()
        del scene.groups["g"]
        scene.resolutions.forget("g")
        scene.settle()
        assert scene.topics("h") == {"t.*": tuple(names(MANY))}


class TestRefused:
    def test_it_is_written_after_a_pause(self) -> None:
        scene = Scene(["t1", "u1"])
        scene.beat("g", "t.", "u.")
        scene.beat("h", "t.")
        scene.refuses = True
        for _ in range(4):
            scene.slice()
            assert scene.timer is not None
        assert scene.timer == (scene.now_ms + PAUSE_MS, ResolveSlice())
        assert scene.topics() == {}
        asked, scene.refuses = scene.asker.asked, False
        scene.slice()
        assert scene.topics() == {"t.": ("t1",), "u.": ("u1",)}
        assert scene.asker.asked == asked, "what was resolved is not resolved again"
        scene.settle()
        assert scene.topics("h") == {"t.": ("t1",)}

    def test_topics_that_fit_into_no_record_are_told_to_their_members(self) -> None:
        scene = Scene(names(300))
        scene.record_bytes_max = 1_000
        scene.beat("g", "t.*", "t.*99", "t.*7")
        scene.settle()
        assert list(scene.topics()) == ["t.*99", "t.*7"], "the others have theirs"
        with pytest.raises(BrokerError, match="don't fit into one record") as refused:
            scene.beat()
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        asked = scene.asker.asked
        scene.now_ms += NEW_TOPICS_INTERVAL_MS
        with pytest.raises(BrokerError):
            scene.beat()
        assert scene.asker.asked == asked, "the same topics are not looked at again"
        for name in names(300)[10:]:
            del scene.image.topics[name]
        scene.beat()
        scene.settle()
        assert len(scene.topics()["t.*"]) == 10

    def test_a_refresh_that_fits_into_no_record_leaves_what_is_known(self) -> None:
        scene = Scene(names(5))
        scene.beat("g", "t.*")
        scene.settle()
        scene.record_bytes_max = 20
        scene.now_ms += REFRESH_MS
        scene.beat()
        scene.settle()
        scene.beat()
        assert scene.topics() == {"t.*": tuple(names(5))}

    def test_a_timer_that_was_lost_is_ordered_again(self) -> None:
        """The decision that ordered it was given up."""
        scene = Scene(["t1"])
        scene.groups["g"] = Edit(ConsumerGroup("g"), 0).group
        scene.beat("g", "t.", lost=True)
        assert scene.timer is None
        scene.beat("g", "t.")
        assert scene.timer is None
        scene.now_ms += PAUSE_MS + 1
        scene.beat()
        scene.settle()
        assert scene.topics() == {"t.": ("t1",)}


def test_a_defect_in_a_slice_ends_the_job_of_its_group_alone() -> None:
    """The shard has one job at a time: one that failed again and again would keep all other groups waiting."""
    scene = Scene(["t1"])

    class Broken(Asker):
        def authorize(self, operation: str, resource_type: str, name: str, *, quiet: bool = False) -> bool:
            raise RuntimeError("a defect of the authorizer")

    scene.asker, whole = Broken(), scene.asker
    scene.beat("g", "t.")
    scene.asker = whole
    scene.beat("h", "t.")
    with pytest.raises(RuntimeError, match="a defect"):
        scene.slice()
    # The host tries a command again that met a defect.
    scene.timer = (scene.now_ms + PAUSE_MS, ResolveSlice())
    scene.settle()
    assert scene.topics("h") == {"t.": ("t1",)}
    scene.beat("g")
    scene.settle()
    assert scene.topics("g") == {"t.": ("t1",)}, "and is begun anew with the group's next heartbeat"
