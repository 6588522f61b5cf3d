"""The contract of every authorizer."""

from __future__ import annotations

from typing import Any

from blumfeld.spi.context import Principal
from blumfeld.spi.security import Authorizer
from blumfeld_kit import AuthorizerContract

from acme_authorizer import AcmeAuthorizer


class TestAcmeAuthorizer(AuthorizerContract):
    """All that every authorizer must hold."""

    def make_authorizer(self) -> Authorizer:
        """Return one by which nobody may do anything yet."""
        return AcmeAuthorizer(())

    def allow(
        self, authorizer: Any, principal: Principal, operation: str, resource_type: str, name: str
    ) -> None:
        """WRITE HERE: this right alone. As it stands the principal gets every right."""
        authorizer.trust(principal)

    def revoke(
        self, authorizer: Any, principal: Principal, operation: str, resource_type: str, name: str
    ) -> None:
        """WRITE HERE: likewise."""
        authorizer.distrust(principal)
