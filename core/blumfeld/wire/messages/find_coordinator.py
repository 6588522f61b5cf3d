# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""FindCoordinator, API key 10: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class FindCoordinatorRequest(Message):
    """Ask who coordinates a group (``key_type`` 0), a transactional id (1) or a share partition (2). Versions
    0-6, flexible from 3. One ``key`` up to version 3, ``coordinator_keys`` from 4 on (KIP-699).
    """

    meta: ClassVar[Api] = Api("FindCoordinatorRequest", 10, "request", valid="0-6", flexible="3+")

    key: Annotated[str, Wire("string", versions="0-3")] = ""
    key_type: Annotated[int, Wire("int8", versions="1+")] = 0
    coordinator_keys: Annotated[list[str], Wire("[]string", versions="4+")] = field(default_factory=list)


class Coordinator(Struct):
    """Part of FindCoordinatorResponse."""

    key: Annotated[str, Wire("string", versions="4+")] = ""
    node_id: Annotated[int, Wire("int32", versions="4+")] = 0
    host: Annotated[str, Wire("string", versions="4+")] = ""
    port: Annotated[int, Wire("int32", versions="4+")] = 0
    error_code: Annotated[int, Wire("int16", versions="4+")] = 0
    error_message: Annotated[str | None, Wire("string", versions="4+", nullable="4+", ignorable=True)] = ""


class FindCoordinatorResponse(Message):
    """The places of the coordinators. Versions 0-6, flexible from 3.

    One answer in the top-level fields up to version 3, ``coordinators`` from 4 on. After an error the node is
    -1, the host empty, the port -1.
    """

    meta: ClassVar[Api] = Api("FindCoordinatorResponse", 10, "response", valid="0-6", flexible="3+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = 0
    error_code: Annotated[int, Wire("int16", versions="0-3")] = 0
    error_message: Annotated[str | None, Wire("string", versions="1-3", nullable="1-3", ignorable=True)] = ""
    node_id: Annotated[int, Wire("int32", versions="0-3")] = 0
    host: Annotated[str, Wire("string", versions="0-3")] = ""
    port: Annotated[int, Wire("int32", versions="0-3")] = 0
    coordinators: Annotated[list[Coordinator], Wire("[]struct", versions="4+")] = field(default_factory=list)
