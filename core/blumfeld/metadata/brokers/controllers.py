"""ControllerRegistration: a controller announces its listeners and supported features (KIP-919). Pure."""

from __future__ import annotations

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from blumfeld.wire.messages.metadata_records import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)


def register_controller(
    _state: ControllerState, request: ControllerRegistrationRequest, _moment: Moment
) -> ControllerDecision:
    """Record a controller's registration. A later registration of the same controller replaces it.

    Errors: INVALID_REGISTRATION if the id is negative.
    """
    if request.controller_id < 0:
        return ControllerDecision(
            [],
            ControllerRegistrationResponse(
                error_code=ErrorCode.INVALID_REGISTRATION,
                error_message=f"a controller id is 0 or more, not {request.controller_id}",
            ),
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            ControllerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
    )
    return ControllerDecision([record], ControllerRegistrationResponse(error_message=None))
