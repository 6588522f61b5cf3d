# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The headers before every request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class RequestHeader(Message):
    """Before every request: version 1, or 2 where the request's version is flexible; the client id stays
    classic.

    The broker reads it with :func:`blumfeld.wire.headers.request_header`.
    """

    meta: ClassVar[Api] = Api("RequestHeader", None, "header", valid="1-2", flexible="2+")

    request_api_key: Annotated[int, Wire("int16")] = 0
    request_api_version: Annotated[int, Wire("int16")] = 0
    correlation_id: Annotated[int, Wire("int32")] = 0
    client_id: Annotated[str | None, Wire("string", versions="1+", nullable="1+", flexible="none")] = ""


class ResponseHeader(Message):
    """Header: versions 0-1, flexible from 1."""

    meta: ClassVar[Api] = Api("ResponseHeader", None, "header", valid="0-1", flexible="1+")

    correlation_id: Annotated[int, Wire("int32")] = 0
