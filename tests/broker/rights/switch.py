"""An authorizer that refuses what a test tells it to refuse."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from blumfeld.broker.serving import request
from blumfeld.plugging.registry import GROUP, Registry
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import NoOptions, hookimpl
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld_security.acls.composing import acl_handlers
from tests.broker import harness
from tests.broker.harness import Permissions

Right = tuple[str, str]
"""Operation and type of resource."""
Check = tuple[str, int, Right]
"""File and line of the code that asks, and the right that it asks for."""
_ON_THE_WAY = (__file__, harness.__file__, request.__file__)
"""Modules between the code that asks and the authorizer."""


class Switch(Permissions):
    """``Authorizer``: everybody may do everything but the refused rights."""

    def __init__(self, allows: Callable[[str, str, str], bool]) -> None:
        super().__init__(allows)
        self.checks: dict[Check, None] = {}
        """The checks that were made."""
        self.taken_out: Check | None = None
        """The check that allows whatever is refused: as if it weren't in the code."""

    def authorize(
        self, principal: object, host: str, operation: str, kind: str, name: str, *, quiet: bool = False
    ) -> bool:
        """As ``Authorizer.authorize``."""
        check = (*_place(), (operation, kind))
        self.checks[check] = None
        allowed = super().authorize(principal, host, operation, kind, name, quiet=quiet)
        if check != self.taken_out:
            return allowed
        self.generation += 1  # else the connection would remember the right, and ask for it nowhere else
        return True

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


def _place() -> tuple[str, int]:
    """Returns file and line of the code that asks."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in _ON_THE_WAY and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


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
