# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""Key and value of the control records that end a transaction."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class ControlRecordTypeSchema(Message):
    """Data: version 0, never flexible."""

    meta: ClassVar[Api] = Api("ControlRecordTypeSchema", None, "data", valid="0", flexible="none")

    type: Annotated[int, Wire("int16")] = 0


class EndTxnMarker(Message):
    """Data: version 0, never flexible."""

    meta: ClassVar[Api] = Api("EndTxnMarker", None, "data", valid="0", flexible="none")

    coordinator_epoch: Annotated[int, Wire("int32")] = 0
