"""A broker's life at the controller: registration, heartbeats, fencing, shutdown (KIP-631)."""

from __future__ import annotations

import msgspec
import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from blumfeld.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from blumfeld.wire.messages.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from blumfeld.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.metadata.driven import Driven, directory_id, replayed


def test_a_brokers_epoch_is_the_offset_of_its_record_and_it_starts_fenced() -> None:
    driven = Driven()
    epoch = driven.register(1)
    assert epoch == len(driven.log) - 1
    record = driven.log[epoch]
    assert isinstance(record, RegisterBrokerRecord)
    assert record.broker_epoch == epoch
    assert driven.image.brokers[1].fenced


def test_a_heartbeat_that_has_caught_up_unfences() -> None:
    driven = Driven()
    epoch = driven.register(1)
    behind = driven.beat(1, epoch, current_metadata_offset=epoch - 1)
    assert (behind.is_fenced, behind.is_caught_up) == (True, False)
    reached = driven.beat(1, epoch, current_metadata_offset=epoch)
    assert (reached.is_fenced, reached.is_caught_up) == (False, True)
    assert driven.image.is_active(1)
    change = driven.log[-1]
    assert isinstance(change, BrokerRegistrationChangeRecord)
    assert change.fenced == -1


def test_heartbeats_that_change_nothing_write_nothing() -> None:
    driven = Driven()
    (epoch,) = driven.join(1)
    before = len(driven.log)
    driven.beat(1, epoch)
    assert len(driven.log) == before


def test_heartbeats_of_others_are_refused() -> None:
    driven = Driven()
    (epoch,) = driven.join(1)
    assert driven.beat(1, epoch + 1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert driven.beat(2, epoch).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def refuse(driven: Driven, request: BrokerRegistrationRequest) -> int:
    """The error of a registration that must write nothing."""
    before = len(driven.log)
    error = driven.do(request, BrokerRegistrationResponse).error_code
    assert len(driven.log) == before
    return error


def test_registrations_that_cannot_be() -> None:
    driven = Driven()
    driven.join(1)
    good = driven.registration(2)
    with_id = msgspec.structs.replace
    assert refuse(driven, with_id(good, cluster_id="another")) == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert refuse(driven, with_id(good, log_dirs=[])) == ErrorCode.INVALID_REGISTRATION
    twice = [directory_id(2), directory_id(2)]
    assert refuse(driven, with_id(good, log_dirs=twice)) == ErrorCode.INVALID_REGISTRATION
    assert refuse(driven, with_id(good, log_dirs=[directory_id(1)])) == ErrorCode.INVALID_REGISTRATION
    assert refuse(driven, with_id(good, features=[])) == ErrorCode.UNSUPPORTED_VERSION


def test_a_second_process_waits_until_the_first_ones_session_is_over() -> None:
    driven = Driven()
    driven.join(1)
    assert refuse(driven, driven.registration(1, incarnation=2)) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    driven.now_ms += 9_000
    assert driven.do(driven.registration(1, incarnation=2), BrokerRegistrationResponse).error_code == 0


def test_the_same_process_may_register_again_and_keeps_its_epoch() -> None:
    driven = Driven()
    (epoch,) = driven.join(1)
    assert driven.register(1) == epoch
    assert not driven.image.brokers[1].fenced


def test_a_new_process_begins_without_what_the_old_one_led() -> None:
    driven = Driven()
    driven.join(1, 2)
    driven.create("alpha", 1, 2)
    leader = driven.partition("alpha").leader
    driven.now_ms += 9_000
    driven.register(leader, incarnation=2)
    after = driven.partition("alpha")
    assert after.leader == 3 - leader
    assert after.isr == (3 - leader,)
    assert after.leader_epoch == 1


def test_a_fenced_broker_leads_nothing_and_leads_again_when_it_is_back() -> None:
    """Of one broker: the last ISR stays, as it is all that is known of who has everything."""
    driven = Driven()
    (epoch,) = driven.join(1)
    driven.create("alpha", 2)
    driven.beat(1, epoch, want_fence=True)
    for number in (0, 1):
        fenced = driven.partition("alpha", number)
        assert (fenced.leader, fenced.leader_epoch, fenced.isr) == (-1, 1, (1,))
    driven.beat(1, epoch)
    back = driven.partition("alpha")
    assert (back.leader, back.leader_epoch, back.partition_epoch) == (1, 2, 2)
    assert replayed(driven.log) == driven.image


def test_silence_fences_and_hands_leadership_over() -> None:
    driven = Driven()
    first, second = driven.join(1, 2)
    driven.create("alpha", 2, 2)
    driven.now_ms += 5_000
    driven.beat(2, second)
    driven.now_ms += 5_000
    expired = driven.controller.fence_expired(driven.now_ms)
    assert expired is not None
    assert expired[0] == 1
    driven.place(expired[1])
    assert driven.controller.fence_expired(driven.now_ms) is None
    for number in (0, 1):
        assert driven.partition("alpha", number).leader == 2
        assert driven.partition("alpha", number).isr == (2,)
    assert driven.image.brokers[1].fenced
    assert not driven.beat(1, first).is_fenced


def test_controlled_shutdown_moves_leaders_and_waits_for_the_others_to_know() -> None:
    driven = Driven()
    first, second = driven.join(1, 2)
    driven.create("alpha", 2, 2)
    assert not driven.beat(1, first, want_shut_down=True).should_shut_down
    assert driven.image.brokers[1].in_controlled_shutdown
    assert [driven.partition("alpha", n).leader for n in (0, 1)] == [2, 2]
    # Broker 2 has not read that far yet: a client that it sends to 1 would find nobody.
    assert not driven.beat(1, first, want_shut_down=True).should_shut_down
    driven.beat(2, second)
    last = driven.beat(1, first, want_shut_down=True)
    assert (last.should_shut_down, last.is_fenced) == (True, True)
    assert driven.image.brokers[1].fenced
    assert driven.register(1, incarnation=2) > first


def test_a_broker_whose_shutdown_somebody_else_asked_for_stays() -> None:
    """Its own heartbeats don't ask. Its shutdown, when it comes, waits for the others again."""
    driven = Driven()
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


def test_a_broker_whose_process_died_in_its_shutdown_waits_for_the_others_in_the_next() -> None:
    driven = Driven()
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


@pytest.mark.parametrize("broker_id", [-1, -(2**31)])
def test_no_broker_has_a_negative_id(broker_id: int) -> None:
    """-1 is a partition's leader where there is none."""
    driven = Driven()
    request = driven.registration(1)
    request.broker_id = broker_id
    answer = driven.do(request, BrokerRegistrationResponse)
    assert answer.error_code == ErrorCode.INVALID_REGISTRATION
    assert not driven.image.brokers


def test_no_controller_has_a_negative_id() -> None:
    driven = Driven()
    request = ControllerRegistrationRequest(controller_id=-1, incarnation_id=bytes(16))
    answer = driven.do(request, ControllerRegistrationResponse)
    assert answer.error_code == ErrorCode.INVALID_REGISTRATION
    assert not driven.image.controllers


def test_a_lone_broker_may_go_at_once() -> None:
    driven = Driven()
    (epoch,) = driven.join(1)
    answer = driven.beat(1, epoch, want_shut_down=True)
    assert answer.should_shut_down


def test_unregistering_forgets() -> None:
    driven = Driven()
    driven.join(1, 2)
    driven.create("alpha", 1, 2)
    assert driven.do(UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse).error_code == 0
    assert list(driven.image.brokers) == [2]
    assert driven.partition("alpha").isr == (2,)
    again = driven.do(UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse)
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert replayed(driven.log) == driven.image


def test_eligible_leaders_are_kept_where_the_cluster_has_them() -> None:
    """KIP-966, in a directory that Apache Kafka formatted: the ISR may be empty, and the ELR leads again."""
    driven = Driven(levels={"eligible.leader.replicas.version": 1})
    (epoch,) = driven.join(1)
    driven.create("alpha")
    driven.beat(1, epoch, want_fence=True)
    fenced = driven.partition("alpha")
    assert (fenced.leader, fenced.isr, fenced.eligible_leader_replicas) == (-1, (), (1,))
    driven.beat(1, epoch)
    back = driven.partition("alpha")
    assert (back.leader, back.isr, back.eligible_leader_replicas) == (1, (1,), ())
    assert replayed(driven.log) == driven.image


@pytest.mark.parametrize("unclean", [False, True])
def test_only_an_unclean_election_takes_a_replica_out_of_sync(unclean: bool) -> None:
    driven = Driven({"unclean.leader.election.enable": unclean})
    first, second = driven.join(1, 2)
    driven.create("alpha", 1, 2)
    driven.beat(2, second, want_fence=True)
    driven.beat(2, second)
    assert driven.partition("alpha").isr == (1,)
    driven.beat(1, first, want_fence=True)
    after = driven.partition("alpha")
    assert (after.leader, after.isr) == ((2, (2,)) if unclean else (-1, (1,)))
    assert after.leader_recovery_state == int(unclean)
