"""Eligible leader replicas (KIP-966) when the feature or the minimum changes, as in Kafka 4.3.1's "balanced" recovery.

What brokers and partitions go through with the feature on stands in ``tests/traces/controller_*.txt``, and
``test_histories`` looks at every record.
"""

from __future__ import annotations

import pytest

from blumfeld.metadata.image.cluster_image import ELR_FEATURE
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, PartitionImage
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import CreatableTopicConfig
from tests.metadata.driven import DELETE, SET, Driven, assigned, replayed

MIN_ISR = "min.insync.replicas"


def turn(driven: Driven, level: int) -> int:
    """Turn the feature on or off; the error."""
    return driven.update_feature(ELR_FEATURE, level, upgrade_type=1 if level else 2)


def alter(driven: Driven, kind: int, name: str, value: str | None) -> int:
    """Set or remove ``min.insync.replicas``; the error."""
    return driven.alter_config(kind, name, (MIN_ISR, DELETE if value is None else SET, value))


def one_left(*fenced: int) -> Driven:
    """Topic t on brokers 1, 2 and 3, two of which must be in sync. These brokers are fenced."""
    driven = Driven(levels={ELR_FEATURE: 1})
    epochs = dict(zip((1, 2, 3), driven.join(1, 2, 3), strict=True))
    driven.create("t", **assigned([1, 2, 3]), configs=[CreatableTopicConfig(name=MIN_ISR, value="2")])
    for broker in fenced:
        driven.beat(broker, epochs[broker], want_fence=True)
    return driven


def checked(driven: Driven) -> PartitionImage:
    """The partition, when the log gives the same image."""
    assert replayed(driven.log) == driven.image
    return driven.partition("t")


def test_an_isr_from_before_the_feature_names_the_last_leader() -> None:
    """Without ELR the last ISR stays. A replica that leaves it with the feature on is the one to lead again."""
    driven = Driven()
    (epoch,) = driven.join(1)
    driven.create("t")
    driven.beat(1, epoch, want_fence=True)
    assert (driven.partition("t").leader, driven.partition("t").isr) == (-1, (1,))
    turn(driven, 1)
    driven.now_ms += 60_000
    again = driven.register(1, incarnation=2)
    assert (driven.partition("t").isr, driven.partition("t").last_known_elr) == ((), (1,))
    driven.beat(1, again)
    assert (driven.partition("t").leader, driven.partition("t").leader_recovery_state) == (1, 1)


def test_turning_it_on_gives_the_cluster_one_minimum() -> None:
    driven = Driven({MIN_ISR: 2})
    driven.join(1, 2)
    assert alter(driven, BROKER_RESOURCE, "1", "3") == 0
    assert turn(driven, 1) == 0
    assert driven.image.elr_enabled
    assert driven.image.config(BROKER_RESOURCE, "") == {MIN_ISR: "2"}
    assert driven.image.config(BROKER_RESOURCE, "1") == {}
    assert alter(driven, BROKER_RESOURCE, "1", "3") == ErrorCode.INVALID_CONFIG
    assert alter(driven, BROKER_RESOURCE, "1", None) == ErrorCode.INVALID_CONFIG
    assert alter(driven, BROKER_RESOURCE, "", None) == ErrorCode.INVALID_CONFIG
    assert alter(driven, BROKER_RESOURCE, "", "1") == 0
    assert turn(driven, 0) == 0
    assert alter(driven, BROKER_RESOURCE, "", None) == 0


def test_a_minimum_that_is_written_already_stays() -> None:
    driven = Driven({MIN_ISR: 2})
    assert alter(driven, BROKER_RESOURCE, "", "3") == 0
    assert turn(driven, 1) == 0
    assert driven.image.config(BROKER_RESOURCE, "") == {MIN_ISR: "3"}


@pytest.mark.parametrize(
    ("kind", "name", "cleared"), [(TOPIC_RESOURCE, "t", True), (TOPIC_RESOURCE, "u", False), (4, "", True)]
)
def test_a_changed_minimum_clears_what_was_eligible_under_the_old_one(
    kind: int, name: str, cleared: bool
) -> None:
    driven = one_left(3, 2)
    driven.create("u", 1, 1)
    before = driven.partition("t")
    assert before.eligible_leader_replicas == (2,)
    assert alter(driven, kind, name, "1") == 0
    after = checked(driven)
    assert after.eligible_leader_replicas == (() if cleared else (2,))
    assert after.partition_epoch == before.partition_epoch + cleared


@pytest.mark.parametrize(
    ("fenced", "fenced_later", "leader", "isr"),
    [((3, 2), 1, -1, (1,)), ((3, 2, 1), None, 2, (2,))],
    ids=["where an ISR was since, its member may have moved the high watermark alone", "where none was"],
)
def test_eligible_replicas_lead_without_the_feature_only_where_no_isr_was_since(
    fenced: tuple[int, ...], fenced_later: int | None, leader: int, isr: tuple[int, ...]
) -> None:
    driven = one_left(*fenced)
    assert turn(driven, 0) == 0
    driven.beat(2, driven.epoch_of(2))
    if fenced_later is not None:
        driven.beat(fenced_later, driven.epoch_of(fenced_later), want_fence=True)
    assert (checked(driven).leader, checked(driven).isr) == (leader, isr)
