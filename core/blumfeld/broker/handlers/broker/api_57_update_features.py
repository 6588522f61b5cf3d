"""UpdateFeatures (key 57), v0-2: finalize other feature levels (KIP-584).

v1  kind of downgrade, validate only.  v2  no results for single features (KIP-1022). A refusal is the top-level error
in every version, without results.
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.handlers.controller_requests import forward
from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from blumfeld.wire.schema import Message

DOWNGRADE = 2
"""A safe downgrade. ``allow_downgrade`` of version 0 means this."""


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of UpdateFeatures."""

    def handle(request: UpdateFeaturesRequest, context: RequestContext) -> Message | Completion[Message]:
        if not context.authorize("Alter", "Cluster", CLUSTER_NAME):
            return failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        for update in request.feature_updates:
            if update.allow_downgrade:
                update.upgrade_type, update.allow_downgrade = DOWNGRADE, False
        return forward(ports, request, context, request.timeout_ms, lambda answer: answer)

    return [
        ApiHandler(
            key=57,
            min_version=0,
            max_version=2,
            listeners=("broker", "controller"),
            handle=handle,
            error_response=failed,
        )
    ]


def failed(_request: UpdateFeaturesRequest, code: int, message: str | None) -> Message:
    """Returns an answer with this error at the top."""
    return UpdateFeaturesResponse(error_code=code, error_message=message)
