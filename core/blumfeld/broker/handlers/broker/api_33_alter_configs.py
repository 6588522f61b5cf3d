"""AlterConfigs (key 33), v0-2: replaces all overrides of a resource at once. v2 is flexible.

Kept for old clients. It overwrites settings that other clients have made meanwhile, so KIP-339 replaced it by
IncrementalAlterConfigs.
"""

from __future__ import annotations

from blumfeld.broker.handlers.config_alteration import ConfigAlteration, resource_key
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.steps import in_parts
from blumfeld.wire.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of AlterConfigs."""
    alteration = ConfigAlteration(ports, AlterConfigsResponse, AlterConfigsResourceResponse)
    return [
        ApiHandler(
            key=33,
            min_version=0,
            max_version=2,
            listeners=("broker", "controller"),
            handle=in_parts(
                alteration.handle, alteration.failed, ("resources",), ("responses",), once=resource_key
            ),
            error_response=alteration.failed,
        )
    ]
