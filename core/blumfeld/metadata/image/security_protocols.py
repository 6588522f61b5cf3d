"""Numbers and names of the security protocols of endpoints, as Kafka has them."""

from __future__ import annotations

NAMES = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def protocol_name(number: int) -> str:
    """Returns the protocol's name, or the number as text if a later Kafka introduced it."""
    return NAMES[number] if 0 <= number < len(NAMES) else str(number)


def protocol_number(name: str) -> int:
    """Returns the protocol's number.

    :raises ValueError: no such protocol
    """
    return NAMES.index(name)
