"""Eligible leader replicas and unclean restarts (KIP-966), as Kafka 4.3.1 keeps them in its "balanced" recovery."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.metadata.image.cluster_image import ELR_FEATURE
from blumfeld.metadata.partitions import elections
from blumfeld.metadata.partitions.requested_elections import UNCLEAN
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.broker_registration import BrokerRegistrationResponse
from blumfeld.wire.messages.create_topics import CreatableTopicConfig
from blumfeld.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from blumfeld.wire.messages.metadata_records import ClearElrRecord
from blumfeld.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.metadata.driven import Driven, replayed

SET, DELETE = 0, 1
ELR_ON = {ELR_FEATURE: 1}
MIN_ISR = "min.insync.replicas"


class Three:
    """Three brokers, and topic t: one partition on all three, two of which must be in sync."""

    def __init__(self, partitions: int = 1, config: dict[str, Any] | None = None) -> None:
        self.driven = Driven(config, levels=ELR_ON)
        self.epochs = dict(zip((1, 2, 3), self.driven.join(1, 2, 3), strict=True))
        self.incarnation = 1
        self.driven.create("t", partitions, 3, configs=[CreatableTopicConfig(name=MIN_ISR, value="2")])

    def fence(self, *brokers: int) -> None:
        """Fence brokers, one after the other."""
        for broker in brokers:
            self.driven.beat(broker, self.epochs[broker], want_fence=True)

    def restart(self, broker: int, *, clean: bool) -> None:
        """A new process of the broker registers. It knows its last epoch if the one before it stopped cleanly."""
        self.incarnation += 1
        self.driven.now_ms += 60_000
        request = self.driven.registration(broker, self.incarnation)
        request.previous_broker_epoch = self.epochs[broker] if clean else -1
        answer = self.driven.do(request, BrokerRegistrationResponse)
        assert answer.error_code == 0
        self.epochs[broker] = answer.broker_epoch

    def unfence(self, broker: int) -> None:
        self.driven.beat(broker, self.epochs[broker])

    def seen(self) -> tuple[int, set[int], set[int], tuple[int, ...], int]:
        """Leader, ISR, ELR, last known leader, recovery state."""
        assert replayed(self.driven.log) == self.driven.image
        p = self.driven.partition("t")
        elr = set(p.eligible_leader_replicas)
        return p.leader, set(p.isr), elr, p.last_known_elr, p.leader_recovery_state


@pytest.fixture
def three() -> Three:
    """Leader 1, and 2 and 3 follow."""
    three = Three()
    first = three.driven.partition("t").replicas[0]
    assert first == three.driven.partition("t").leader
    return three


def order(three: Three) -> tuple[int, int, int]:
    """The replicas, the leader first."""
    a, b, c = three.driven.partition("t").replicas
    return a, b, c


def test_members_that_leave_below_the_minimum_are_eligible(three: Three) -> None:
    a, b, c = order(three)
    three.fence(c)
    assert three.seen() == (a, {a, b}, set(), (), 0), "two are enough"
    three.fence(b)
    assert three.seen() == (a, {a}, {b}, (), 0)
    three.fence(a)
    assert three.seen() == (-1, set(), {a, b}, (a,), 0)
    three.unfence(c)
    assert three.seen() == (-1, set(), {a, b}, (a,), 0), "c may lack records"
    three.unfence(b)
    assert three.seen() == (b, {b}, {a}, (), 0)


def test_an_isr_of_enough_members_needs_no_eligible_ones(three: Three) -> None:
    a, b, c = order(three)
    three.fence(c, b)
    three.unfence(b)
    assert three.seen()[1:3] == ({a}, {b})
    assert three.driven.alter_isr("t", [a, b]) == 0
    assert three.seen() == (a, {a, b}, set(), (), 0)


def test_a_broker_that_lost_its_page_cache_is_neither_in_sync_nor_eligible(three: Three) -> None:
    a, b, c = order(three)
    three.fence(c, b, a)
    three.restart(b, clean=False)
    assert three.seen() == (-1, set(), {a}, (a,), 0)
    three.unfence(b)
    assert three.seen()[0] == -1, "b may lack what a has"
    three.unfence(a)
    assert three.seen() == (a, {a}, set(), (), 0)


def test_a_leader_that_is_killed_and_comes_back_at_once_does_not_lead_with_a_hole(three: Three) -> None:
    """It is still unfenced when its next process registers."""
    a, b, c = order(three)
    three.fence(c)
    three.restart(a, clean=False)
    assert three.seen() == (b, {b}, set(), (), 0)


def test_a_clean_restart_keeps_what_it_has(three: Three) -> None:
    a, b, c = order(three)
    three.fence(c, b, a)
    three.restart(b, clean=True)
    assert three.seen() == (-1, set(), {a, b}, (a,), 0)
    three.unfence(b)
    assert three.seen()[:2] == (b, {b})


def test_the_last_leader_leads_when_everybody_lost_the_page_cache(three: Three) -> None:
    a, b, c = order(three)
    three.fence(c, b, a)
    for broker in (a, b, c):
        three.restart(broker, clean=False)
    assert three.seen() == (-1, set(), set(), (a,), 0)
    three.unfence(b)
    three.unfence(c)
    assert three.seen()[0] == -1
    three.unfence(a)
    assert three.seen() == (a, {a}, set(), (), 1), "it may lack records: recovering"


def test_the_last_leader_waits_for_a_replica_that_has_everything(three: Three) -> None:
    a, b, c = order(three)
    three.fence(c, b, a)
    three.restart(a, clean=False)
    three.unfence(a)
    assert three.seen() == (-1, set(), {b}, (a,), 0)
    three.unfence(b)
    assert three.seen() == (b, {b}, set(), (), 0)


def test_an_unclean_leader_ends_the_eligibility_of_others(three: Three) -> None:
    a, b, c = order(three)
    three.fence(c, b, a)
    three.unfence(c)
    answer = three.driven.do(
        ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=None), ElectLeadersResponse
    )
    assert answer.replica_election_results[0].partition_result[0].error_code == 0
    assert three.seen() == (c, {c}, set(), (), 1)


def test_an_unclean_restart_is_worked_off_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "SLICE_RECORDS", 4)
    three = Three(partitions=20)
    three.fence(1, 2)
    three.restart(2, clean=False)
    parts = three.driven.image.topics["t"].partitions.values()
    assert all(2 not in (*p.isr, *p.eligible_leader_replicas) for p in parts)
    assert {p.leader for p in parts} == {3}
    assert three.driven.image.brokers[2].epoch == three.epochs[2] == len(three.driven.log) - 1
    assert replayed(three.driven.log) == three.driven.image


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


def turn(driven: Driven, level: int) -> int:
    """Turn the feature on or off; the error."""
    update = FeatureUpdateKey(feature=ELR_FEATURE, max_version_level=level, upgrade_type=1 if level else 2)
    return driven.do(UpdateFeaturesRequest(feature_updates=[update]), UpdateFeaturesResponse).error_code


def alter(driven: Driven, kind: int, name: str, value: str | None) -> int:
    """Set or remove ``min.insync.replicas``; the error."""
    edit = AlterableConfig(name=MIN_ISR, config_operation=DELETE if value is None else SET, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[edit])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return driven.do(request, IncrementalAlterConfigsResponse).responses[0].error_code


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
    three: Three, kind: int, name: str, cleared: bool
) -> None:
    a, b, c = order(three)
    three.driven.create("u", 1, 1)
    three.fence(c, b)
    before = three.driven.partition("t")
    assert before.eligible_leader_replicas == (b,)
    assert alter(three.driven, kind, name, "1") == 0
    assert isinstance(three.driven.log[-1], ClearElrRecord)
    after = three.driven.partition("t")
    assert after.eligible_leader_replicas == (() if cleared else (b,))
    assert after.partition_epoch == before.partition_epoch + cleared
    assert replayed(three.driven.log) == three.driven.image
    assert three.seen()[0] == a


def test_without_the_feature_eligible_replicas_lead_only_where_no_isr_was_since(three: Three) -> None:
    a, b, c = order(three)
    three.fence(c, b)
    assert turn(three.driven, 0) == 0
    three.unfence(b)
    three.fence(a)
    assert three.seen() == (-1, {a}, set(), (), 0), "a may have moved the high watermark alone"


def test_turned_off_with_an_empty_isr_the_eligible_replicas_still_lead(three: Three) -> None:
    a, b, c = order(three)
    three.fence(c, b, a)
    assert turn(three.driven, 0) == 0
    three.unfence(b)
    assert three.seen() == (b, {b}, {a}, (), 0)
