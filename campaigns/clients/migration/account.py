"""What a group's members told, added up: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from campaigns.clients.live_members import Commitment, Consumption, Ownership, TopicPartition


def longest_unowned_ms(
    ownerships: Iterable[Ownership], places: Iterable[TopicPartition], end_ms: int
) -> dict[TopicPartition, int]:
    """For each partition the longest time without an owner, after it had its first and until ``end_ms``.

    A partition that never had one counts as without since the first that anyone was given.
    """
    events = sorted(ownerships, key=lambda o: (o.time_ms, not o.owned))
    began_ms = min((o.time_ms for o in events), default=end_ms)
    return {at: _longest_gap([o for o in events if o.at == at], began_ms, end_ms) for at in places}


def _longest_gap(events: Sequence[Ownership], began_ms: int, end_ms: int) -> int:
    first = next((o.time_ms for o in events if o.owned), None)
    if first is None:
        return end_ms - began_ms
    owners, without_since, longest = 0, first, 0
    for event in events:
        if event.time_ms > end_ms:
            break
        if owners == 0 and event.owned:
            longest = max(longest, event.time_ms - without_since)
        owners += 1 if event.owned else -1
        if owners == 0:
            without_since = event.time_ms
    return max(longest, end_ms - without_since) if owners == 0 else longest


def longest_pause_ms(
    runs: Iterable[Consumption], places: Iterable[TopicPartition], end_ms: int
) -> dict[TopicPartition, int]:
    """For each partition the longest time between records of it that came, while there were always new ones."""
    found: dict[TopicPartition, list[int]] = {at: [] for at in places}
    for run in runs:
        if run.at in found and run.time_ms <= end_ms:
            found[run.at].append(run.time_ms)
    return {
        at: max((b - a for a, b in zip(times, [*times[1:], end_ms], strict=True)), default=end_ms)
        for at, times in ((at, sorted(seen)) for at, seen in found.items())
    }


def skipped(
    runs: Iterable[Consumption], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[int]]:
    """The offsets below the end of each partition that no member got."""
    seen: dict[TopicPartition, set[int]] = {at: set() for at in ends}
    for run in runs:
        seen.setdefault(run.at, set()).update(range(run.first, run.last + 1))
    missing = {at: sorted(set(range(end)) - seen[at]) for at, end in ends.items()}
    return {at: offsets for at, offsets in missing.items() if offsets}


def with_holes(runs: Iterable[Consumption]) -> list[Consumption]:
    """Polls that gave fewer records than lie between their first and last offset."""
    return [run for run in runs if run.count != run.last - run.first + 1]


def duplicates(runs: Iterable[Consumption]) -> int:
    """How many records came more than once, counted each further time."""
    runs = list(runs)
    distinct = {(run.at, offset) for run in runs for offset in range(run.first, run.last + 1)}
    return sum(run.count for run in runs) - len(distinct)


def went_back(commits: Iterable[Commitment]) -> list[tuple[Commitment, int]]:
    """Commits below one that was there before, each with the offset that was there; in the order of time."""
    highest: dict[TopicPartition, int] = {}
    found = []
    for commit in sorted(commits, key=lambda c: c.time_ms):
        before = highest.get(commit.at, 0)
        if commit.offset < before:
            found.append((commit, before))
        highest[commit.at] = max(before, commit.offset)
    return found
