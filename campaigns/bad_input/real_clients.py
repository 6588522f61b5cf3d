"""Cases that a client library makes of a wrong setting: does it give up with the error, and not hang?"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec

from campaigns.bad_input.case import Case
from campaigns.bad_input.target import Target

ASK_S = 60.0


def _transaction(target: Target) -> str:
    """librdkafka with a longer transaction than ``transaction.max.timeout.ms`` allows."""
    from confluent_kafka import KafkaException, Producer

    quiet = logging.getLogger("blumfeld.bad_input.librdkafka")
    quiet.disabled = True
    settings = {
        "bootstrap.servers": target.address,
        "transactional.id": "some-transaction",
        "transaction.timeout.ms": 2_147_483_647,
    }
    producer = Producer(settings, logger=quiet)
    try:
        producer.init_transactions(ASK_S)
    except KafkaException as raised:
        error = raised.args[0]
        return f"{error.name()}, {'fatal' if error.fatal() else 'not fatal'}"
    return "it has a transaction"


def _too_large(target: Target) -> str:
    """librdkafka with a record that it takes and the broker doesn't."""
    from confluent_kafka import Producer

    said: list[str] = []
    producer = Producer({"bootstrap.servers": target.address, "message.max.bytes": 8_000_000})
    producer.produce(
        target.topic,
        b"x" * 3_000_000,
        on_delivery=lambda error, _: said.append(error.name() if error else "OK"),
    )
    producer.flush(ASK_S)
    return said[0] if said else "no delivery report"


def cases() -> Sequence[Case]:
    """All of them; none where librdkafka isn't installed."""
    if find_spec("confluent_kafka") is None:
        return ()
    return (
        Case(
            "librdkafka: a transaction of 24 days",
            "INVALID_TRANSACTION_TIMEOUT, fatal",
            _transaction,
        ),
        Case("librdkafka: a record of 3 MB", "MSG_SIZE_TOO_LARGE", _too_large),
    )
