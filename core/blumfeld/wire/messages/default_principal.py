# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""A principal as it travels in Envelope requests and delegation tokens."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class DefaultPrincipalData(Message):
    """Data: version 0, flexible."""

    meta: ClassVar[Api] = Api("DefaultPrincipalData", None, "data", valid="0", flexible="0+")

    type: Annotated[str, Wire("string")] = ""
    name: Annotated[str, Wire("string")] = ""
    token_authenticated: Annotated[bool, Wire("bool")] = False
