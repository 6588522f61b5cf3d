"""A security plug-in whose authorizer refuses what a test tells it to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from blumfeld.plugging.registry import GROUP, Registry
from blumfeld.spi.hooks import NoOptions, hookimpl
from blumfeld.testing.embedded import EmbeddedBroker
from tests.broker.harness import Permissions

Right = tuple[str, str]
"""Operation and type of resource."""


class Switch(Permissions):
    """``Authorizer``: everybody may do everything but the refused rights."""

    @property
    def rights(self) -> list[Right]:
        """The rights that were asked for since rights were last refused."""
        return list(dict.fromkeys((operation, resource_type) for operation, resource_type, _ in self.asked))

    @contextmanager
    def refusing(self, refused: Callable[[Right], bool]) -> Iterator[None]:
        """Refuse these rights while the block lasts."""
        before = self.allows
        self.allows = lambda operation, resource_type, _: not refused((operation, resource_type))
        self.asked.clear()
        self.generation += 1
        try:
            yield
        finally:
            self.allows = before
            self.generation += 1


SWITCH = Switch(lambda *_: True)
"""The broker makes the plug-in itself, so a test finds the authorizer here."""


class _Security:
    def __init__(self) -> None:
        self.authorizer = SWITCH

    async def start(self) -> None:
        """Nothing starts."""

    async def stop(self) -> None:
        """Nothing stops."""

    def reconfigure(self, _config: object) -> None:
        """Nothing of it is configured."""

    def peer(self, _listener: str) -> None:
        """Peers are dialled in plain text."""

    def byte_layer(self, _listener: object) -> None:
        """No TLS."""

    def connection_handler(self, _listener: object, broker: Any) -> Any:
        """Nothing stands in front of the broker."""
        return broker


class Plugin:
    """The plug-in ``security_switch``."""

    options_class = NoOptions
    roles = ("security",)

    @hookimpl
    def blumfeld_make_security(self, composition: Any) -> _Security:
        """The switch."""
        return _Security()


def switched_broker() -> EmbeddedBroker:
    """Returns a broker, not yet started, whose authorizer is :data:`SWITCH`."""
    point = EntryPoint("security_switch", f"{__name__}:Plugin", GROUP)
    listeners = [
        {"name": "PLAINTEXT", "bind": "127.0.0.1:0", "inter_broker": True},
        {"name": "CONTROLLER", "kind": "controller", "bind": "127.0.0.1:0"},
    ]
    return EmbeddedBroker(
        manifest={"network": {"listeners": listeners}, "security": {"plugin": "security_switch"}},
        config={"auto.create.topics.enable": False},
        registry=Registry([*entry_points(group=GROUP), point]),
    )
