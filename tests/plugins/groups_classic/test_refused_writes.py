"""A classic group when the log refuses its record: too few replicas are in sync, and nothing is loaded anew."""

from __future__ import annotations

from tests.plugins.groups_classic.classic_trace import Script


def group(*lines: str) -> Script:
    """A stable group of the static member ``a``, after these lines."""
    script = Script()
    for line in (
        "config group.initial.rebalance.delay.ms=0",
        "join a instance=i",
        "sync a assign=a:x",
        *lines,
    ):
        script.run(line)
    return script


def test_a_static_member_that_was_not_replaced_stays() -> None:
    """The log knows the former id alone, so the next coordinator would fence the new id for good."""
    script = group()
    was = script.run("describe")
    script.run("starve")
    assert "COORDINATOR_NOT_AVAILABLE" in script.run("join b instance=i")[-1]
    assert script.run("describe") == was
    assert "NONE" in script.run("beat a")[-1]
    assert "NONE" in script.run("join b instance=i")[-1]
    assert "FENCED_INSTANCE_ID" in script.run("beat a")[-1]


def test_a_group_that_nobody_is_in_is_empty_without_its_record() -> None:
    """A later coordinator finds the members in the log, and their sessions expire."""
    script = group("starve")
    assert "NONE" in script.run("leave a")[-1]
    assert script.groups.coordinator.counts.shards_dropped == 0
    assert "Empty" in script.run("describe")[-1]
    script.run("reload")
    assert "Stable" in script.run("describe")[-1]
    script.run("wait 60000")
    assert "Empty" in script.run("describe")[-1]
