# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ApiVersions, API key 18: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ApiVersionsRequest(Message):
    """Ask what the broker speaks. Versions 0-4, flexible from 3.

    The only request that is answered in a version the broker does not know: by a version 0 answer that names
    the versions it does (KIP-511). Software name and version (3) must match a pattern, else INVALID_REQUEST.
    """

    meta: ClassVar[Api] = Api("ApiVersionsRequest", 18, "request", valid="0-4", flexible="3+")

    client_software_name: Annotated[str, Wire("string", versions="3+", ignorable=True)] = ""
    client_software_version: Annotated[str, Wire("string", versions="3+", ignorable=True)] = ""


class ApiVersion(Struct):
    """Part of ApiVersionsResponse."""

    api_key: Annotated[int, Wire("int16")] = 0
    min_version: Annotated[int, Wire("int16")] = 0
    max_version: Annotated[int, Wire("int16")] = 0


class SupportedFeatureKey(Struct):
    """Part of ApiVersionsResponse."""

    name: Annotated[str, Wire("string", versions="3+")] = ""
    min_version: Annotated[int, Wire("int16", versions="3+")] = 0
    max_version: Annotated[int, Wire("int16", versions="3+")] = 0


class FinalizedFeatureKey(Struct):
    """Part of ApiVersionsResponse."""

    name: Annotated[str, Wire("string", versions="3+")] = ""
    max_version_level: Annotated[int, Wire("int16", versions="3+")] = 0
    min_version_level: Annotated[int, Wire("int16", versions="3+")] = 0


class ApiVersionsResponse(Message):
    """The APIs that the broker speaks, and the cluster's feature levels. Versions 0-4, flexible from 3.

    Its header is always version 0. Supported features with a minimum of 0 are left out below version 4, whose
    clients refuse them.
    """

    meta: ClassVar[Api] = Api("ApiVersionsResponse", 18, "response", valid="0-4", flexible="3+")

    error_code: Annotated[int, Wire("int16")] = 0
    api_keys: Annotated[list[ApiVersion], Wire("[]struct")] = field(default_factory=list)
    throttle_time_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = 0
    supported_features: Annotated[
        list[SupportedFeatureKey], Wire("[]struct", versions="3+", tag=0, tagged="3+", ignorable=True)
    ] = field(default_factory=list)
    finalized_features_epoch: Annotated[
        int, Wire("int64", versions="3+", tag=1, tagged="3+", ignorable=True)
    ] = -1
    finalized_features: Annotated[
        list[FinalizedFeatureKey], Wire("[]struct", versions="3+", tag=2, tagged="3+", ignorable=True)
    ] = field(default_factory=list)
    zk_migration_ready: Annotated[bool, Wire("bool", versions="3+", tag=3, tagged="3+", ignorable=True)] = (
        False
    )
