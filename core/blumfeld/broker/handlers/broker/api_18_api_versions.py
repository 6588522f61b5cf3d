"""ApiVersions (key 18), v0-4.

v3  flexible, except for the answer's header; client software name and version, features.
v4  features whose lowest level is 0 are shown too.
A version that is not served is answered by the dispatcher, in v0. Needs no authorization.
"""

from __future__ import annotations

import re

from blumfeld.broker.membership.lifecycle import SUPPORTED_FEATURES
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_FROM = 3
MIN_LEVEL_ZERO_FROM = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of ApiVersions, for both kinds of listener."""

    def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        if context.api_version >= SOFTWARE_FROM:
            _check(request)
        return answer(ports, context.listener.kind, context.api_version)

    return [
        ApiHandler(
            key=18,
            min_version=0,
            max_version=4,
            listeners=("broker", "controller"),
            handle=handle,
            error_response=failed,
        )
    ]


def failed(_request: ApiVersionsRequest, code: int, _message: str | None) -> ApiVersionsResponse:
    """Returns an answer with this error and nothing else."""
    return ApiVersionsResponse(error_code=code)


def _check(request: ApiVersionsRequest) -> None:
    for value in (request.client_software_name, request.client_software_version):
        if _SOFTWARE.fullmatch(value) is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST)


def answer(ports: Ports, kind: str, version: int) -> ApiVersionsResponse:
    """Returns the APIs that are registered for this kind of listener, and the cluster's features."""
    image = ports.cluster.image
    levels = dict(image.features)
    quorum = ports.quorum()
    if quorum is not None:  # the voters' records hold it, not the image (KIP-853)
        levels["kraft.version"] = quorum.kraft_version
    ranges: dict[str, tuple[int, int]] = {}
    if ports.controller.forwards:  # no feature was ever finalized in a cluster with a ZooKeeper
        ranges |= SUPPORTED_FEATURES
        ranges.update({f.name: (f.min_level, f.max_level) for f in ports.features})
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in ports.advertised(kind).items()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(ranges.items())
            if low > 0 or version >= MIN_LEVEL_ZERO_FROM
        ],
        finalized_features_epoch=image.features_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(levels.items())
            if level
        ],
    )
