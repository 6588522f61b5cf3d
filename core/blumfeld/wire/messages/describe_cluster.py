# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeCluster, API key 60: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class DescribeClusterRequest(Message):
    """API 60, request: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("DescribeClusterRequest", 60, "request", valid="0-2", flexible="0+")

    include_cluster_authorized_operations: Annotated[bool, Wire("bool")] = False
    endpoint_type: Annotated[int, Wire("int8", versions="1+")] = 1
    include_fenced_brokers: Annotated[bool, Wire("bool", versions="2+")] = False


class DescribeClusterBroker(Struct):
    """Part of DescribeClusterResponse."""

    broker_id: Annotated[int, Wire("int32")] = 0
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("int32")] = 0
    rack: Annotated[str | None, Wire("string", nullable="0+")] = None
    is_fenced: Annotated[bool, Wire("bool", versions="2+")] = False


class DescribeClusterResponse(Message):
    """API 60, response: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("DescribeClusterResponse", 60, "response", valid="0-2", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    endpoint_type: Annotated[int, Wire("int8", versions="1+")] = 1
    cluster_id: Annotated[str, Wire("string")] = ""
    controller_id: Annotated[int, Wire("int32")] = -1
    brokers: Annotated[list[DescribeClusterBroker], Wire("[]struct")] = field(default_factory=list)
    cluster_authorized_operations: Annotated[int, Wire("int32")] = -(2**31)
