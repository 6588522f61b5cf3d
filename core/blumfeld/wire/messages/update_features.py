# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""UpdateFeatures, API key 57: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class FeatureUpdateKey(Struct):
    """Part of UpdateFeaturesRequest."""

    feature: Annotated[str, Wire("string")] = ""
    max_version_level: Annotated[int, Wire("int16")] = 0
    allow_downgrade: Annotated[bool, Wire("bool", versions="0")] = False
    upgrade_type: Annotated[int, Wire("int8", versions="1+")] = 1


class UpdateFeaturesRequest(Message):
    """API 57, request: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("UpdateFeaturesRequest", 57, "request", valid="0-2", flexible="0+")

    timeout_ms: Annotated[int, Wire("int32")] = 60000
    feature_updates: Annotated[list[FeatureUpdateKey], Wire("[]struct")] = field(default_factory=list)
    validate_only: Annotated[bool, Wire("bool", versions="1+")] = False


class UpdatableFeatureResult(Struct):
    """Part of UpdateFeaturesResponse."""

    feature: Annotated[str, Wire("string")] = ""
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""


class UpdateFeaturesResponse(Message):
    """API 57, response: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("UpdateFeaturesResponse", 57, "response", valid="0-2", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    results: Annotated[list[UpdatableFeatureResult], Wire("[]struct", versions="0-1", ignorable=True)] = (
        field(default_factory=list)
    )
