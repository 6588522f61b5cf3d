"""A broker's life at the controller: registration, heartbeats, fencing, shutdown (KIP-631)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from blumfeld.metadata.partitions.directories import UNASSIGNED_DIRECTORY
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.broker_registration import BrokerRegistrationResponse
from blumfeld.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from blumfeld.wire.messages.metadata_records import RegisterBrokerRecord
from tests.metadata.driven import Driven, directory_id, replayed


@pytest.fixture
def driven() -> Driven:
    return Driven()


def test_a_brokers_epoch_is_the_offset_of_its_record_and_it_starts_fenced(driven: Driven) -> None:
    epoch = driven.register(1)
    assert epoch == len(driven.log) - 1
    record = driven.log[epoch]
    assert isinstance(record, RegisterBrokerRecord)
    assert record.broker_epoch == epoch
    assert driven.image.brokers[1].fenced


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory_id(2)] * 2}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory_id(1)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory_id(2), UNASSIGNED_DIRECTORY]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.UNSUPPORTED_VERSION),
        ({"broker_id": -1}, ErrorCode.INVALID_REGISTRATION),
        ({"broker_id": -(2**31)}, ErrorCode.INVALID_REGISTRATION),
    ],
    ids=[
        "another cluster",
        "no directory",
        "a directory twice",
        "a directory of another broker",
        "an id that no directory has",
        "no level of the metadata",
        "the leader of a partition that has none",
        "a negative id",
    ],
)
def test_registrations_that_cannot_be_write_nothing(
    driven: Driven, fields: dict[str, Any], code: ErrorCode
) -> None:
    driven.join(1)
    before = len(driven.log)
    request = msgspec.structs.replace(driven.registration(2), **fields)
    assert driven.do(request, BrokerRegistrationResponse).error_code == code
    assert len(driven.log) == before


def test_the_same_process_may_register_again_and_keeps_its_epoch(driven: Driven) -> None:
    (epoch,) = driven.join(1)
    assert driven.register(1) == epoch
    assert not driven.image.brokers[1].fenced


def test_a_broker_whose_shutdown_somebody_else_asked_for_stays(driven: Driven) -> None:
    """Its own heartbeats don't ask. Its shutdown, when it comes, waits for the others again."""
    first, second = driven.join(1, 2)
    driven.create("alpha", 2, 2)
    driven.beat(1, first, want_shut_down=True)
    driven.beat(2, second)
    begun = driven.image.brokers[1]
    assert not driven.beat(1, first).is_fenced
    assert driven.image.brokers[1] == msgspec.structs.replace(begun, in_controlled_shutdown=False)
    assert driven.image.is_active(1)
    assert replayed(driven.log) == driven.image
    driven.create("beta", 2, 2)
    assert not driven.beat(1, first, want_shut_down=True).should_shut_down
    assert not driven.beat(1, first, want_shut_down=True).should_shut_down
    driven.beat(2, second)
    assert driven.beat(1, first, want_shut_down=True).should_shut_down


def test_a_broker_whose_process_died_in_its_shutdown_waits_for_the_others_in_the_next(driven: Driven) -> None:
    first, second = driven.join(1, 2)
    driven.create("alpha", 2, 2)
    driven.beat(1, first, want_shut_down=True)
    driven.controller.sessions.gone(2)
    driven.now_ms += 9_001
    driven.place(driven.decide(driven.registration(1, incarnation=2)).records)
    again = driven.image.brokers[1].epoch
    driven.beat(1, again)
    driven.beat(2, second)
    driven.create("beta", 2, 2)
    assert not driven.beat(1, again, want_shut_down=True).should_shut_down
    assert not driven.beat(1, again, want_shut_down=True).should_shut_down


def test_no_controller_has_a_negative_id(driven: Driven) -> None:
    request = ControllerRegistrationRequest(controller_id=-1, incarnation_id=bytes(16))
    answer = driven.do(request, ControllerRegistrationResponse)
    assert answer.error_code == ErrorCode.INVALID_REGISTRATION
    assert not driven.image.controllers


def test_a_lone_broker_may_go_at_once(driven: Driven) -> None:
    (epoch,) = driven.join(1)
    answer = driven.beat(1, epoch, want_shut_down=True)
    assert answer.should_shut_down
