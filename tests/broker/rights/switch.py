"""An authorizer that refuses what a test tells it to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from blumfeld.plugging.registry import GROUP, Registry
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import NoOptions, hookimpl
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld_security.acls.composing import acl_handlers
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


class Plugin:
    """The plug-in ``switch``: an authorizer, and the APIs on ACLs. The security plug-in serves those for its own."""

    options_class = NoOptions
    roles = ("authorizer",)

    @hookimpl
    def blumfeld_make_authorizer(self, composition: Any) -> Switch:
        """The switch."""
        return SWITCH

    @hookimpl
    def blumfeld_api_handlers(self, composition: Any) -> Sequence[ApiHandler]:
        """DescribeAcls, CreateAcls, DeleteAcls."""
        return acl_handlers(composition)


def switched_broker() -> EmbeddedBroker:
    """Returns a broker, not yet started, whose authorizer is :data:`SWITCH`."""
    point = EntryPoint("switch", f"{__name__}:Plugin", GROUP)
    listeners = [
        {"name": "PLAINTEXT", "bind": "127.0.0.1:0", "inter_broker": True},
        {"name": "CONTROLLER", "kind": "controller", "bind": "127.0.0.1:0"},
    ]
    return EmbeddedBroker(
        manifest={
            "network": {"listeners": listeners},
            "security": {"plugin": "security", "authorizer": "switch"},
            "quotas": {"plugin": "quotas"},
        },
        config={
            "auto.create.topics.enable": False,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        },
        registry=Registry([*entry_points(group=GROUP), point]),
    )
