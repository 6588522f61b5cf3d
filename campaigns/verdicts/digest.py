"""What an answer says of its request's rights: error codes, listed names, authorized operations. Pure.

Offsets, ids of producers, addresses and messages for people are left out: they differ between any two servers.
"""

from __future__ import annotations

from typing import Any

import msgspec

NAMES = (
    *("name", "topic", "topic_name", "group", "group_id", "key", "transactional_id"),
    *("resource_name", "resource_type", "principal"),
)
CODES = ("error_code", "authorized_operations", "topic_config_error_code")


def digest(message: Any) -> Any:
    """Returns what counts of an answer. Lists are in an order of their own, because the protocol gives them none."""
    if isinstance(message, list):
        return sorted((digest(element) for element in message), key=repr)
    if not isinstance(message, msgspec.Struct):
        return message if isinstance(message, str | int) else None
    counted = {}
    for field in message.__struct_fields__:
        value = getattr(message, field)
        if field.endswith(CODES) or field in NAMES:
            counted[field] = value
        elif isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
            counted[field] = digest(value)
    return {field: value for field, value in counted.items() if value not in (0, None)}
