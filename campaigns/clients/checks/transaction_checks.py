"""Columns of the matrix for transactional producers, and for consumers that read only what is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import FENCED, Client
from campaigns.clients.records import Received, Sample, Turn, numbered_samples
from campaigns.clients.verdicts import require
from campaigns.coordinators import stable_offsets
from campaigns.waits import answer_of

PARTITIONS = 2


def transactions(client: Client, scene: Scene) -> None:
    """Commits, an abort between them, and a commit again: each isolation level shows its records, in order."""
    topic = scene.new_topic(PARTITIONS)
    first, second, third = (numbered_samples(12, PARTITIONS, first=at) for at in (0, 12, 24))
    turns = [Turn(first, True), Turn(second, False), Turn(third, True)]
    client.transact(topic, scene.topic("id"), turns)
    client.isolation = "read_committed"
    _same([*first, *third], client.consume(topic, scene.group("committed"), 24))
    client.isolation = "read_uncommitted"
    _same([*first, *second, *third], client.consume(topic, scene.group("everything"), 36))
    for partition in range(PARTITIONS):
        batches = scene.batches(topic, partition)
        require(all(batch.is_transactional for batch in batches), "a batch is in no transaction")
        markers = sum(batch.is_control for batch in batches)
        require(markers == len(turns), f"{markers} markers in partition {partition}, not {len(turns)}")


def transactional_offsets(client: Client, scene: Scene) -> None:
    """A group has the offsets of a transaction that commits, and not those of one that aborts."""
    source, topic, group = scene.new_topic(1, what="in"), scene.new_topic(1, what="out"), scene.group()
    samples = numbered_samples(3, 1)
    turns = [
        Turn(samples, True, group, source, {0: 3}),
        Turn(samples, False, group, source, {0: 7}),
    ]
    client.transact(topic, scene.topic("id"), turns)
    offsets = answer_of(partial(stable_offsets, scene.bootstrap, group))
    require(offsets == {(source, 0): 3}, f"the group has committed {offsets}")


def fencing(client: Client, scene: Scene) -> None:
    """A producer whose transactional id has another one can't commit, and its record is never seen."""
    topic = scene.new_topic(1)
    zombie, living = numbered_samples(2, 1)
    error = client.fence(topic, scene.topic("id"), zombie)
    require(bool(error), "the commit of a fenced producer was taken")
    require(FENCED.search(error) is not None, f"the commit of a fenced producer failed with: {error}")
    client.transact(topic, scene.topic("id"), [Turn([living], True)])
    client.isolation = "read_committed"
    _same([living], client.consume(topic, scene.group(), 1))


def _same(sent: Sequence[Sample], got: Sequence[Received]) -> None:
    """Partition by partition the same keys and values in the same order. Offsets have holes where markers are.

    :raises CheckFailed: they are not
    """
    for partition in range(PARTITIONS):
        expected = [(sample.key, sample.value) for sample in sent if sample.partition == partition]
        pairs = [(record.key, record.value) for record in got if record.partition == partition]
        named = [key for key, _ in pairs][:20]
        require(
            pairs == expected, f"partition {partition}: {len(expected)} wanted, {len(pairs)} came: {named}"
        )


TRANSACTION_COLUMNS: dict[str, Callable[[Client, Scene], None]] = {
    "transactions": transactions,
    "txn-offsets": transactional_offsets,
    "fencing": fencing,
}
"""Every check by the title of its column."""
