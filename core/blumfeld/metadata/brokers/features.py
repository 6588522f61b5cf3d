"""UpdateFeatures (KIP-584). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.partitions.eligible import with_elr_safety
from blumfeld.wire.errors import BrokerError, ErrorCode, message_of
from blumfeld.wire.messages.metadata_records import (
    BrokerFeature,
    ControllerFeature,
    FeatureLevelRecord,
)
from blumfeld.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from blumfeld.wire.schema import Message

KRAFT_VERSION_FEATURE = "kraft.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(
    state: ControllerState, request: UpdateFeaturesRequest, _moment: Moment
) -> ControllerDecision:
    """Raise or lower finalized feature levels; either every update is done or none.

    Errors:
    * INVALID_UPDATE_VERSION: this build, a registered broker or a registered controller does not support the level,
      or the update is a downgrade and the request did not allow one.
    * INVALID_REQUEST: a feature is given twice, or the upgrade type is unknown.

    The first error becomes the error of the whole answer, in every version. The answer then has no result
    for any feature, because none was updated (KIP-1022).
    """
    records: list[Message] = []
    seen: set[str] = set()
    for update in request.feature_updates:
        try:
            if update.feature in seen:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST, f"the request names the feature {update.feature} twice"
                )
            seen.add(update.feature)
            records += _update(state, update)
        except BrokerError as error:
            message = f"nothing was updated: {error.message or message_of(error.code)}"
            return ControllerDecision(
                [], UpdateFeaturesResponse(error_code=error.code, error_message=message)
            )
    results = [
        UpdatableFeatureResult(feature=update.feature, error_message=None)
        for update in request.feature_updates
    ]
    response = UpdateFeaturesResponse(error_message=None, results=results)
    records = with_elr_safety(state, records)
    return ControllerDecision([] if request.validate_only else records, response)


def _update(state: ControllerState, update: FeatureUpdateKey) -> list[Message]:
    name, level = update.feature, update.max_version_level
    feature = state.features.get(name)
    if name == KRAFT_VERSION_FEATURE:
        raise BrokerError(
            ErrorCode.INVALID_UPDATE_VERSION,
            "kraft.version can't be changed: a quorum is formatted as a static or as a dynamic one",
        )
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"unknown upgrade type {update.upgrade_type}: 1 to 3 are allowed"
        )
    if feature is None:
        raise BrokerError(
            ErrorCode.INVALID_UPDATE_VERSION, f"the controller does not support the feature {name}"
        )
    if level != 0 and not feature.min_level <= level <= feature.max_level:
        raise BrokerError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{name}: level {level} is not within {feature.min_level} to {feature.max_level}",
        )
    if level == 0 and feature.min_level > 0:
        raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot be switched off")
    current = state.image.features.get(name, 0)
    downgrade = update.upgrade_type != UPGRADE or update.allow_downgrade
    if level < current and not downgrade:
        raise BrokerError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{name}: {level} is below {current}: a downgrade was not asked for",
        )
    if level > current and downgrade:
        raise BrokerError(
            ErrorCode.INVALID_UPDATE_VERSION, f"{name}: {level} is above {current}: no downgrade"
        )
    image = state.image
    nodes: list[tuple[str, Sequence[BrokerFeature | ControllerFeature]]] = [
        *((f"broker {member.broker_id}", member.features) for member in image.registrations.values()),
        *((f"controller {member.controller_id}", member.features) for member in image.controllers.values()),
    ]
    for node, features in nodes:
        ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in features}
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            raise BrokerError(
                ErrorCode.INVALID_UPDATE_VERSION, f"{name}: {node} does not support level {level}"
            )
    return [] if level == current else [FeatureLevelRecord(name=name, feature_level=level)]
