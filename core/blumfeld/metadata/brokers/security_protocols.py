"""Security protocols of endpoints: Kafka's numbers and names."""

from __future__ import annotations

NAMES = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def protocol_name(number: int) -> str:
    """The name; a number of a later Kafka stands for itself."""
    return NAMES[number] if 0 <= number < len(NAMES) else str(number)


def protocol_number(name: str) -> int:
    """The number.

    :raises ValueError: no such protocol
    """
    return NAMES.index(name)
