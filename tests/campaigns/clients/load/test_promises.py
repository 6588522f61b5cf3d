"""Promises to groups, of commits, records, members and owners: each way to break one is told."""

from __future__ import annotations

import pytest

from campaigns.clients.load.promises import Epochs, GroupPromises, longest_unowned_ms

AT = ("t", 0)


def test_a_commit_that_goes_back_or_beyond_the_log_is_told() -> None:
    """Also one that is gone altogether; of two promises the higher counts, however late the lower one was heard."""
    promises = GroupPromises()
    promises.commit("g", AT, 7)
    promises.commit("g", AT, 5)
    promises.commit("g", ("t", 1), 3)
    promises.commit("other", AT, 9)
    promised = promises.promised("g")
    assert promised == {AT: 7, ("t", 1): 3}
    promises.check_committed("g", promised, {AT: 7, ("t", 1): 4}, {AT: 7, ("t", 1): 4})
    assert (promises.went_back, promises.wrong, promises.commits) == (0, [], 4)
    promises.check_committed("g", promised, {AT: 6})
    assert promises.went_back == 2
    assert promises.wrong == ["g: t-0 went back from 7 to 6", "g: t-1 went back from 3 to -1"]
    promises.check_committed("g", {AT: 7}, {AT: 9}, {AT: 8})
    assert promises.wrong[2:] == ["g: t-0 has committed 9, the log ends at 8"]


def test_records_that_nobody_consumed_are_told() -> None:
    """At the beginning, between two runs, within one, at the end; twice is allowed."""
    promises = GroupPromises()
    promises.check_consumed("g", {AT: [(5, 9, 5), (0, 4, 5), (3, 6, 4)]}, {AT: 10})
    assert (promises.skipped, promises.doubled, promises.wrong) == (0, 4, [])
    promises.check_consumed("g", {AT: [(1, 3, 3), (5, 6, 2)]}, {AT: 8})
    assert promises.skipped == 3
    assert len(promises.wrong) == 3
    promises.check_consumed("g", {AT: [(0, 7, 7)]}, {AT: 8, ("t", 1): 2})
    assert promises.skipped == 3 + 8 + 2


@pytest.mark.parametrize(
    ("after", "complaint"),
    [
        (Epochs("Stable", 4, {"a": 4, "b": 4}), None),
        (Epochs("Stable", 5, {"a": 5, "b": 4}), None),
        (Epochs("Stable", 3, {"a": 4, "b": 4}), "epoch went back from 4 to 3"),
        (Epochs("Stable", 4, {"a": 3, "b": 4}), "member a went back from epoch 4 to 3"),
        (Epochs("Stable", 4, {"a": 4}), "member b is not there any more"),
        (Epochs("Stable", 4, {"a": 4, "b": 4, "c": 4}), "member c was not there before"),
    ],
)
def test_a_group_that_did_not_come_back_as_it_was_is_told(after: Epochs, complaint: str | None) -> None:
    """KIP-848: its members needn't join again."""
    promises = GroupPromises()
    promises.check_epochs("g", Epochs("Stable", 4, {"a": 4, "b": 4}), after)
    assert promises.wrong == ([] if complaint is None else [f"g: {complaint}"])


@pytest.mark.parametrize(
    ("changes", "unowned_ms"),
    [
        ([(100, True), (500, False), (800, True)], 300),
        ([(100, True), (500, False)], 1500),
        ([(100, True), (400, True), (500, False)], 0),
        ([(100, True), (500, False), (500, True)], 0),
        ([], 2000),
    ],
)
def test_a_partition_is_unowned_between_its_owners_and_after_the_last_one(
    changes: list[tuple[int, bool]], unowned_ms: int
) -> None:
    """Two owners at once, or a change within a millisecond, leave no gap."""
    assert longest_unowned_ms(changes, 2000) == unowned_ms
