"""IncrementalAlterConfigs (key 44), v0-1: SET, DELETE, APPEND and SUBTRACT on single keys (KIP-339). v1 is
flexible.
"""

from __future__ import annotations

from blumfeld.broker.handlers.config_alteration import ConfigAlteration, resource_key
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.steps import in_parts
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of IncrementalAlterConfigs."""
    alteration = ConfigAlteration(ports, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse)
    return [
        ApiHandler(
            key=44,
            min_version=0,
            max_version=1,
            listeners=("broker", "controller"),
            handle=in_parts(
                alteration.handle, alteration.failed, ("resources",), ("responses",), once=resource_key
            ),
            error_response=alteration.failed,
        )
    ]
