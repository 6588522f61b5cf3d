"""UpdateFeatures and AllocateProducerIds."""

from __future__ import annotations

import pytest

from blumfeld.metadata.brokers.feature_levels import default_levels, supported_features
from blumfeld.spi.hooks import Feature
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from blumfeld.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from blumfeld.wire.messages.controller_registration import Feature as ControllerFeature
from blumfeld.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.metadata.driven import Driven, replayed

GROUPS = Feature("group.version", 0, 1, 1)


@pytest.fixture
def driven() -> Driven:
    return Driven(features=[GROUPS])


def test_plugins_bring_features_and_formatting_finalizes_their_defaults() -> None:
    features = supported_features([GROUPS, Feature("transaction.version", 0, 2, 0)])
    assert default_levels(features) == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
    }
    with pytest.raises(ValueError, match=r"group\.version"):
        supported_features([GROUPS, GROUPS])


def test_levels_go_up_and_on_demand_down(driven: Driven) -> None:
    assert driven.image.features == {"metadata.version": 30}
    assert driven.update_feature("group.version", 1, validate_only=True) == 0
    assert "group.version" not in driven.image.features
    assert driven.update_feature("group.version", 1) == 0
    assert driven.image.features["group.version"] == 1
    assert driven.update_feature("group.version", 0) == ErrorCode.INVALID_UPDATE_VERSION
    assert driven.update_feature("group.version", 0, upgrade_type=2) == 0
    assert "group.version" not in driven.image.features
    assert replayed(driven.log) == driven.image


def test_levels_that_cannot_be(driven: Driven) -> None:
    assert driven.update_feature("no.such", 1) == ErrorCode.INVALID_UPDATE_VERSION
    assert driven.update_feature("group.version", 2) == ErrorCode.INVALID_UPDATE_VERSION
    assert driven.update_feature("metadata.version", 29, upgrade_type=3) == ErrorCode.INVALID_UPDATE_VERSION
    assert driven.update_feature("metadata.version", 0, upgrade_type=3) == ErrorCode.INVALID_UPDATE_VERSION
    assert driven.update_feature("group.version", 1, upgrade_type=9) == ErrorCode.INVALID_REQUEST


def test_one_that_cannot_be_keeps_all_from_being_updated(driven: Driven) -> None:
    """As Kafka 4.3.1: the error is the answer's, and no feature has a result (KIP-1022)."""
    keys = [
        FeatureUpdateKey(feature=name, max_version_level=1, upgrade_type=1)
        for name in ("group.version", "made.up")
    ]
    answer = driven.do(UpdateFeaturesRequest(feature_updates=keys), UpdateFeaturesResponse)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message == (
        "nothing was updated: the controller does not support the feature made.up"
    )
    assert answer.results == []
    assert "group.version" not in driven.image.features


def test_a_broker_that_does_not_do_a_level_holds_it_back(driven: Driven) -> None:
    driven.join(1)
    assert driven.update_feature("group.version", 1) == ErrorCode.INVALID_UPDATE_VERSION


def test_a_controller_that_does_not_do_a_level_holds_it_back() -> None:
    """It may be active next, and decide by a level that it doesn't know."""
    driven = Driven(features=[Feature("group.version", 0, 1, 0)])
    register = ControllerRegistrationRequest(controller_id=9, incarnation_id=bytes(16))
    driven.do(register, ControllerRegistrationResponse)
    assert driven.update_feature("group.version", 1) == ErrorCode.INVALID_UPDATE_VERSION
    register.features = [ControllerFeature(name="group.version", max_supported_version=1)]
    driven.do(register, ControllerRegistrationResponse)
    assert driven.update_feature("group.version", 1) == 0


def test_blocks_of_producer_ids_never_overlap() -> None:
    driven = Driven()
    (epoch,) = driven.join(1)
    starts = []
    for _ in range(3):
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
        response = driven.do(request, AllocateProducerIdsResponse)
        assert (response.error_code, response.producer_id_len) == (0, 1000)
        starts.append(response.producer_id_start)
    assert starts == [0, 1000, 2000]
    assert replayed(driven.log).producer_ids == driven.image.producer_ids


def test_only_a_registered_broker_gets_producer_ids() -> None:
    driven = Driven()
    (epoch,) = driven.join(1)
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch + 1)
    assert driven.do(stale, AllocateProducerIdsResponse).error_code == ErrorCode.STALE_BROKER_EPOCH
    unknown = AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch)
    assert driven.do(unknown, AllocateProducerIdsResponse).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
