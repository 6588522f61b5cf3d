"""Which APIs there are, and the class of each message by key or name. Imports no message module until asked."""

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
"""Every API of the protocol that has valid versions, in the order of their keys."""


def request_class(key: int) -> type[Message]:
    """The request's class; its module is imported on first use.

    :raises KeyError: no API has this key
    """
    info = API_BY_KEY[key]
    return _load(info.module, f"{info.name}Request")


def response_class(key: int) -> type[Message]:
    """The response's class; its module is imported on first use.

    :raises KeyError: no API has this key
    """
    info = API_BY_KEY[key]
    return _load(info.module, f"{info.name}Response")


def message_class(name: str) -> type[Message]:
    """The class by Kafka's name for the message, such as ``FetchRequest`` or ``PartitionRecord``.

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
    """The names of all messages: requests and responses by key, then the others by name."""
    names = [f"{info.name}{kind}" for info in API_BY_KEY.values() for kind in ("Request", "Response")]
    return names + list(OTHER_MESSAGES)


def _load(module: str, name: str) -> type[Message]:
    loaded: type[Message] = getattr(import_module(f"blumfeld.wire.messages.{module}"), name)
    return loaded
