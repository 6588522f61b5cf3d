"""The registration that this controller writes when it begins to lead (KIP-919)."""

from __future__ import annotations

from collections.abc import Mapping

from blumfeld.metadata.brokers.security_protocols import NAMES, protocol_number
from blumfeld.spi.hooks import Composition
from blumfeld.spi.hooks import Feature as FeatureRange
from blumfeld.wire.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener


def controller_registration(
    composition: Composition, features: Mapping[str, FeatureRange]
) -> ControllerRegistrationRequest:
    """Its controller listeners, as far as they have a port yet, and its feature levels."""
    return ControllerRegistrationRequest(
        controller_id=composition.node_id,
        incarnation_id=composition.incarnation_id,
        listeners=[
            Listener(
                name=listener.name,
                host=listener.advertised_host or listener.host,
                port=listener.advertised_port or listener.port,
                security_protocol=protocol_number(listener.security_protocol)
                if listener.security_protocol in NAMES
                else 0,
            )
            for listener in composition.listeners
            if listener.kind == "controller" and (listener.advertised_port or listener.port)
        ],
        features=[
            Feature(name=f.name, min_supported_version=f.min_level, max_supported_version=f.max_level)
            for f in features.values()
        ],
    )
