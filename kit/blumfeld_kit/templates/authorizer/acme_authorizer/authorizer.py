"""Trusted principals may do everything, all others nothing."""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.spi.context import Principal


class AcmeAuthorizer:
    """Is asked several times a request, on the broker's loop: it must not block."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self.generation = 0
        """Another number with every change: the broker remembers what was allowed until then."""
        self._trusted = set(trusted)

    def trust(self, principal: Principal) -> None:
        """Let a principal do everything."""
        self._trusted.add(str(principal))
        self.generation += 1

    def distrust(self, principal: Principal) -> None:
        """Let a principal do nothing any more."""
        self._trusted.discard(str(principal))
        self.generation += 1

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: str,
        resource_type: str,
        name: str,
        *,
        quiet: bool = False,
    ) -> bool:
        """Return whether the principal may do it. WRITE HERE: look at the operation and the resource."""
        return str(principal) in self._trusted

    def authorize_any(self, principal: Principal, host: str, operation: str, resource_type: str) -> bool:
        """Return whether it may be done on some resource of this type. WRITE HERE, likewise."""
        return str(principal) in self._trusted
