"""Feature levels that this build supports (KIP-584). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.image.cluster_image import ELR_FEATURE, METADATA_VERSION_FEATURE
from blumfeld.metadata.image.record_frame import METADATA_VERSION
from blumfeld.spi.hooks import Feature


def supported_features(brought: Sequence[Feature]) -> dict[str, Feature]:
    """Returns the supported features by name: ``metadata.version``, eligible leader replicas, and those of the
    plug-ins. New clusters of Kafka 4.3 have eligible leader replicas, too.

    :raises ValueError: two plug-ins bring the same feature
    """
    own = Feature(METADATA_VERSION_FEATURE, METADATA_VERSION, METADATA_VERSION, METADATA_VERSION)
    features = {own.name: own, ELR_FEATURE: Feature(ELR_FEATURE, 0, 1, 1)}
    for feature in brought:
        if feature.name in features:
            raise ValueError(f"two plug-ins bring the feature {feature.name}")
        features[feature.name] = feature
    return features


def default_levels(features: dict[str, Feature]) -> dict[str, int]:
    """Returns the levels that formatting finalizes: each feature's default level that is above 0.

    ``metadata.version`` stands first and the others follow by name, as in the records that Kafka's tool writes.
    """
    ordered = sorted(features.values(), key=lambda f: (f.name != METADATA_VERSION_FEATURE, f.name))
    return {f.name: f.default_level for f in ordered if f.default_level > 0}
