"""What a rolling migration is judged by sees each way in which it can go wrong."""

from __future__ import annotations

from campaigns.clients.live_members import Commitment, Consumption, Ownership, Story
from campaigns.clients.migration import account

P, Q = ("t", 0), ("t", 1)


def owned(*events: tuple[str, bool, int]) -> list[Ownership]:
    """Events of partition P; each member's name is only for the reader."""
    return [Ownership(P, has, at_ms) for _, has, at_ms in events]


def test_a_partition_that_changes_hands_is_without_an_owner_in_between() -> None:
    events = owned(("a", True, 100), ("a", False, 500), ("b", True, 800))
    assert account.longest_unowned_ms(events, [P], 2000) == {P: 300}


def test_a_partition_that_is_left_is_without_an_owner_until_the_end() -> None:
    events = owned(("a", True, 100), ("a", False, 500))
    assert account.longest_unowned_ms(events, [P], 2000) == {P: 1500}


def test_two_owners_at_once_leave_no_gap() -> None:
    events = owned(("a", True, 100), ("b", True, 400), ("a", False, 500))
    assert account.longest_unowned_ms(events, [P], 2000) == {P: 0}


def test_a_partition_handed_over_in_the_same_millisecond_leaves_no_gap() -> None:
    events = owned(("a", True, 100), ("a", False, 500), ("b", True, 500))
    assert account.longest_unowned_ms(events, [P], 2000) == {P: 0}


def test_a_partition_that_nobody_ever_had_counts_from_the_first_that_anyone_was_given() -> None:
    events = owned(("a", True, 100))
    assert account.longest_unowned_ms(events, [P, Q], 2000) == {P: 0, Q: 1900}


def test_what_happens_after_the_end_does_not_count() -> None:
    events = owned(("a", True, 100), ("a", False, 2500))
    assert account.longest_unowned_ms(events, [P], 2000) == {P: 0}


def test_the_longest_pause_is_between_polls_or_to_the_end() -> None:
    runs = [Consumption(P, 1, n, n, at_ms) for n, at_ms in enumerate((100, 200, 900))]
    assert account.longest_pause_ms(runs, [P], 1000) == {P: 700}
    assert account.longest_pause_ms(runs, [P], 5000) == {P: 4100}


def test_skipped_records_are_named_and_an_unread_end_is_one() -> None:
    runs = [Consumption(P, 3, 0, 2, 1), Consumption(P, 2, 4, 5, 2), Consumption(Q, 1, 0, 0, 3)]
    assert account.skipped(runs, {P: 8, Q: 1}) == {P: [3, 6, 7]}


def test_a_poll_with_a_hole_is_no_proof_that_all_came() -> None:
    whole, holed = Consumption(P, 3, 0, 2, 1), Consumption(P, 2, 3, 5, 1)
    assert account.with_holes([whole, holed]) == [holed]


def test_records_that_came_again_are_counted() -> None:
    runs = [Consumption(P, 3, 0, 2, 1), Consumption(P, 3, 1, 3, 2), Consumption(Q, 1, 0, 0, 3)]
    assert account.duplicates(runs) == 2


def test_a_commit_below_an_earlier_one_went_back() -> None:
    commits = [Commitment(P, 5, 30), Commitment(P, 7, 20), Commitment(P, 7, 10), Commitment(Q, 1, 40)]
    assert account.went_back(commits) == [(Commitment(P, 5, 30), 7)]


def test_a_member_owns_what_it_was_given_until_it_is_taken_or_the_member_ends() -> None:
    """In the words of VerifiableConsumer."""
    story, both = Story(), [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    story.tell({"name": "startup_complete", "timestamp": 1})
    story.tell({"name": "partitions_assigned", "timestamp": 2, "partitions": both})
    story.tell({"name": "partitions_revoked", "timestamp": 3, "partitions": both[:1]})
    assert story.owned == {Q}
    story.ended(9)
    assert story.owned == set()
    assert story.ownerships[-1] == Ownership(Q, False, 9)


def test_a_refused_commit_is_no_commitment() -> None:
    story, at = Story(), {"topic": "t", "partition": 0, "offset": 4}
    story.tell({"name": "offsets_committed", "timestamp": 1, "success": True, "offsets": [at]})
    story.tell({"name": "offsets_committed", "timestamp": 2, "success": False, "error": "fenced"})
    assert story.commitments == [Commitment(P, 4, 1)]
    assert story.refused_commits == ["fenced"]
