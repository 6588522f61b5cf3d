"""The feature levels that this build can do (KIP-584). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE
from blumfeld.metadata.image.record_frame import METADATA_VERSION
from blumfeld.spi.hooks import Feature


def supported_features(brought: Sequence[Feature]) -> dict[str, Feature]:
    """``metadata.version``, and what plug-ins bring, by name.

    :raises ValueError: two plug-ins bring the same feature
    """
    own = Feature(METADATA_VERSION_FEATURE, METADATA_VERSION, METADATA_VERSION, METADATA_VERSION)
    features = {own.name: own}
    for feature in brought:
        if feature.name in features:
            raise ValueError(f"the feature {feature.name} is brought twice")
        features[feature.name] = feature
    return features


def default_levels(features: dict[str, Feature]) -> dict[str, int]:
    """What formatting finalizes: the default of each feature that is above 0."""
    return {f.name: f.default_level for f in features.values() if f.default_level > 0}
