"""Judges a history of transactions, in the manner of Elle (Kingsbury and Alvaro, 2020), by the promises of Kafka. Pure.

Values are unique and each list is known at the end, so nothing has to be inferred: each value names its transaction,
and each pair of values in a list its order.

Kafka isolates readers, not writers: two transactions that are open at the same time may append to two partitions in
opposite orders. So a cycle of writes (G0) counts where the one transaction's append was acknowledged before the other's
was sent, and a cycle of information flow (G1c) consists of reads and of such real time.
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.transactions.cycles import find_cycle
from blumfeld_kit.simulation.transactions.histories import (
    NEVER_S,
    Append,
    GroupView,
    History,
    Incarnation,
    Outcome,
    Transaction,
)


class AnomalyError(ViolationError):
    """A history that no correct broker allows. The message begins with the kind: ``G1a: …``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


def check(history: History) -> None:
    """Check everything. :raises AnomalyError: the first anomaly that was found"""
    index = _Index(history)
    _check_logs(history, index)
    for transaction in history.transactions:
        if not transaction.incarnation.excused:
            _check_outcome(history, index, transaction)
    _check_views(history, index)
    _check_order(history, index)
    _check_real_time(history, index)
    _check_zombies(history)
    _check_flow(history, index)
    for group in history.groups:
        _check_group(history, index, group)


class _Index:
    """The places of all values."""

    def __init__(self, history: History) -> None:
        self.owner: dict[bytes, tuple[Transaction, Append]] = {
            append.value: (transaction, append)
            for transaction in history.transactions
            for append in transaction.appends
        }
        self.placed: dict[bytes, tuple[TopicPartition, int]] = {}
        self.visible: dict[bytes, tuple[TopicPartition, int]] = {}


def _check_logs(history: History, index: _Index) -> None:
    for partition, values in history.everything.items():
        for offset, value in values:
            owner = index.owner.get(value)
            if owner is None or owner[1].partition != partition:
                raise AnomalyError("garbage", f"{partition}@{offset}: {value!r} was never sent there")
            if value in index.placed:
                raise AnomalyError(
                    "duplicated append",
                    f"{partition}@{offset}: {value!r} stands at {index.placed[value]}, too",
                )
            index.placed[value] = (partition, offset)
    for partition, values in history.committed.items():
        for offset, value in values:
            if index.placed.get(value) != (partition, offset):
                raise AnomalyError("G1b", f"{partition}@{offset}: read_uncommitted shows no {value!r} there")
            index.visible[value] = (partition, offset)


def _check_outcome(history: History, index: _Index, transaction: Transaction) -> None:
    appends = [entry for entry in transaction.appends if not entry.late]
    for append in transaction.appends:
        if append.value not in index.visible:
            continue
        # A partition that may have lost this value may as well have lost only the marker behind it. Then the producer's
        # next marker there ends both transactions, with its own outcome (so in Kafka, too).
        if transaction.outcome is Outcome.ABORTED and not history.may_be_lost(append):
            raise AnomalyError("G1a", f"{append.value!r} is shown, and {transaction.name} was aborted")
        if append.late:
            raise AnomalyError("G1a", f"{append.value!r} is shown, and came after {transaction.name}")
        if append.acked_s is not None and not history.may_be_lost(append):
            place = index.visible[append.value]
            if place != (append.partition, append.offset):
                raise AnomalyError(
                    "lost append", f"{append.value!r} was acknowledged at {append.offset}, and is at {place}"
                )
    missing = [
        entry for entry in appends if entry.value not in index.visible and not history.may_be_lost(entry)
    ]
    if not missing or transaction.outcome is Outcome.ABORTED:
        return
    shown = [entry for entry in appends if entry.value in index.visible]
    if transaction.outcome is Outcome.COMMITTED:
        raise AnomalyError(
            "lost append" if not shown else "G1b",
            f"{transaction.name} was committed, and {missing[0].value!r} in {missing[0].partition} is not shown",
        )
    if shown:
        raise AnomalyError(
            "G1b",
            f"half of {transaction.name}: {shown[0].value!r} in {shown[0].partition} is shown, "
            f"{missing[0].value!r} in {missing[0].partition} is not",
        )


def _check_views(history: History, index: _Index) -> None:
    """Check that what a reader saw while the run went on is what everybody sees in the end."""
    for view in history.views:
        expected = [entry for entry in history.committed[view.partition] if entry[0] < view.position]
        if view.seen == expected:
            continue
        at = next(
            (nth for nth, pair in enumerate(zip(view.seen, expected, strict=False)) if pair[0] != pair[1]),
            min(len(view.seen), len(expected)),
        )
        saw = view.seen[at] if at < len(view.seen) else None
        should = expected[at] if at < len(expected) else None
        if should is None or (saw is not None and saw[0] <= should[0]):
            assert saw is not None
            owner = index.owner.get(saw[1])
            kind = "G1a" if owner is not None and owner[0].outcome is Outcome.ABORTED else "G1b"
            raise AnomalyError(kind, f"{view.reader} read {saw} of {view.partition}, which is not committed")
        raise AnomalyError(
            "G1b", f"{view.reader} is at {view.position} of {view.partition}, and never read {should}"
        )


def _in_log(history: History, index: _Index) -> Iterable[tuple[TopicPartition, list[Append]]]:
    """Each partition's appends in the order of its log, without what an excuse may have taken or brought back."""
    for partition, values in history.everything.items():
        appends = [index.owner[value][1] for _, value in values]
        yield partition, [append for append in appends if not history.may_be_lost(append)]


def _check_order(history: History, index: _Index) -> None:
    """Check that the appends of one incarnation stand in the order in which it sent them."""
    places = {
        append.value: (nth, at)
        for nth, transaction in enumerate(history.transactions)
        for at, append in enumerate(transaction.appends)
    }
    for partition, appends in _in_log(history, index):
        last: dict[int, tuple[tuple[int, int], bytes]] = {}
        for append in appends:
            incarnation = index.owner[append.value][0].incarnation
            if append.late or incarnation.excused:
                continue
            place = places[append.value]
            before = last.get(id(incarnation))
            if before is not None and before[0] > place:
                raise AnomalyError(
                    "order",
                    f"{partition}: {append.value!r} stands behind {before[1]!r}, which was sent after it",
                )
            last[id(incarnation)] = (place, append.value)


def _check_real_time(history: History, index: _Index) -> None:
    """Check that no append stands behind one that was sent after its acknowledgement."""
    for partition, appends in _in_log(history, index):
        newest: Append | None = None
        for append in appends:
            if newest is not None and append.acked_s is not None and append.acked_s < newest.sent_s:
                raise AnomalyError(
                    "G0",
                    f"{partition}: {append.value!r} was acknowledged at {append.acked_s:.3f} s, and stands behind "
                    f"{newest.value!r}, which was sent at {newest.sent_s:.3f} s",
                )
            if newest is None or append.sent_s > newest.sent_s:
                newest = append


def _check_zombies(history: History) -> None:
    """Check that nothing of an incarnation is acknowledged that it sent after a later one was let in."""
    fenced_s: dict[int, float] = {}
    by_name: dict[str, list[Incarnation]] = {}
    for incarnation in history.incarnations:
        if incarnation.known_s >= 0:
            by_name.setdefault(incarnation.name, []).append(incarnation)
    for incarnations in by_name.values():
        for incarnation in incarnations:
            later = [other.known_s for other in incarnations if other.asked_s > incarnation.known_s]
            if later:
                fenced_s[id(incarnation)] = min(later)
    for transaction in history.transactions:
        since_s = fenced_s.get(id(transaction.incarnation))
        if since_s is None or transaction.incarnation.excused:
            continue
        for append in transaction.appends:
            if append.acked_s is not None and append.sent_s > since_s and not history.may_be_lost(append):
                raise AnomalyError(
                    "zombie",
                    f"{append.value!r} was taken at {append.acked_s:.3f} s, and its producer was fenced at "
                    f"{since_s:.3f} s",
                )
        if transaction.outcome is Outcome.COMMITTED and transaction.began_s > since_s and transaction.appends:
            raise AnomalyError(
                "zombie", f"{transaction.name} was committed, and its producer was fenced at {since_s:.3f} s"
            )


def _check_flow(history: History, index: _Index) -> None:
    """Check that no transaction depends on itself (G1c), by what was read and by what had ended before."""
    nodes = [
        candidate
        for candidate in history.transactions
        if candidate.outcome is Outcome.COMMITTED
        or any(append.value in index.visible for append in candidate.appends)
    ]
    numbers = {id(node): nth for nth, node in enumerate(nodes)}
    edges: list[list[int]] = [[] for _ in nodes]
    for nth, transaction in enumerate(nodes):
        for value in transaction.reads:
            owner = index.owner.get(value)
            source = None if owner is None else numbers.get(id(owner[0]))
            if source is not None:
                edges[source].append(nth)
    spans = [
        (
            node.began_s,
            node.ended_s if node.ended_s is not None and node.outcome is Outcome.COMMITTED else None,
        )
        for node in nodes
    ]
    cycle = find_cycle(edges, spans)
    if cycle is not None:
        raise AnomalyError("G1c", " → ".join(nodes[nth].name for nth in cycle))


def _check_group(history: History, index: _Index, group: GroupView) -> None:
    """Check that each record below the group's offset was worked off exactly once, and none from there on."""
    done: dict[tuple[TopicPartition, int], bytes] = {}
    expected: dict[tuple[TopicPartition, int], Append] = {}
    for transaction in history.transactions:
        if transaction.group != group.name:
            continue
        committed = transaction.outcome is Outcome.COMMITTED
        for append in transaction.appends:
            if append.source is None:
                continue
            if append.value in index.visible:
                if append.source in done:
                    raise AnomalyError(
                        "exactly once",
                        f"group {group.name} worked {append.source} off twice: {done[append.source]!r} and "
                        f"{append.value!r}",
                    )
                done[append.source] = append.value
            elif history.may_be_lost(append):
                expected[append.source] = append
        for partition, offset in transaction.offsets.items():
            if committed and offset > group.offsets.get(partition, 0):
                raise AnomalyError(
                    "exactly once",
                    f"{transaction.name} committed offset {offset} of {partition} for group {group.name}, "
                    f"which has {group.offsets.get(partition, 0)}",
                )
    for (partition, offset), value in done.items():
        if offset >= group.offsets.get(partition, 0):
            raise AnomalyError(
                "exactly once",
                f"group {group.name} has {group.offsets.get(partition, 0)} of {partition}, and made {value!r} of "
                f"{offset}",
            )
    for partition, end in group.offsets.items():
        if history.excused_s.get(partition, NEVER_S) > NEVER_S:
            continue
        for offset, value in history.committed[partition]:
            worked_off = (partition, offset) in done or (partition, offset) in expected
            if offset < end and not worked_off and value not in group.ignored:
                raise AnomalyError(
                    "exactly once",
                    f"group {group.name} is at {end} of {partition}, and made nothing of {value!r}",
                )
