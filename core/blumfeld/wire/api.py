"""The protocol's APIs, and message classes by key or name. A message's module is imported on demand."""

from __future__ import annotations

from importlib import import_module

from blumfeld.wire.api_table import APIS, NEVER, OTHER_MESSAGES, ApiInfo, ApiKey
from blumfeld.wire.schema import Message

__all__ = [
    "API_BY_KEY",
    "NEVER",
    "ApiInfo",
    "ApiKey",
    "message_class",
    "message_names",
    "request_class",
    "response_class",
]

API_BY_KEY: dict[int, ApiInfo] = APIS
"""Every API of the protocol that has valid versions, by key, ascending."""


def request_class(key: int) -> type[Message]:
    """Returns the request's class; its module is imported on first use.

    :raises KeyError: no API has this key
    """
    info = API_BY_KEY[key]
    return _load(info.module, f"{info.name}Request")


def response_class(key: int) -> type[Message]:
    """Returns the response's class; its module is imported on first use.

    :raises KeyError: no API has this key
    """
    info = API_BY_KEY[key]
    return _load(info.module, f"{info.name}Response")


def message_class(name: str) -> type[Message]:
    """Returns the class of a message by Kafka's name, such as ``FetchRequest`` or ``PartitionRecord``.

    :raises KeyError: no message has this name
    """
    module = OTHER_MESSAGES.get(name)
    if module is not None:
        return _load(module, name)
    for info in API_BY_KEY.values():
        if name in (f"{info.name}Request", f"{info.name}Response"):
            return _load(info.module, name)
    raise KeyError(name)


def message_names() -> list[str]:
    """Returns the names of all messages: requests and responses by key, then the others by name."""
    names = [f"{info.name}{kind}" for info in API_BY_KEY.values() for kind in ("Request", "Response")]
    return names + list(OTHER_MESSAGES)


def _load(module: str, name: str) -> type[Message]:
    loaded: type[Message] = getattr(import_module(f"blumfeld.wire.messages.{module}"), name)
    return loaded
