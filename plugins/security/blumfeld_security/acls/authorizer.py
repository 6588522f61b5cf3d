"""The authorizer of a node: the rules on the ACLs of its image."""

from __future__ import annotations

from typing import Any

from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.completion import Steps
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.context import Principal
from blumfeld.spi.scheduler import Lane, Scheduler
from blumfeld_security.acls.rules import Acls, StandardRules
from blumfeld_security.acls.section import SECTION
from blumfeld_security.audit.trail import Trail

REPLACED = 1_024
"""More records than any change of a few ACLs has: a snapshot took the place of all."""
PIECES_AT_ONCE = 16
"""Pieces of some hundred ACLs at most that are freed in one step."""


class AclAuthorizer:
    """Implements ``spi.security.Authorizer`` by the rules of Kafka's StandardAuthorizer.

    Until the image is loaded only super users may do anything: the nodes of a quorum are super users, since they must
    elect a leader before anybody can read an ACL.
    """

    def __init__(self, rules: StandardRules, trail: Trail, scheduler: Scheduler) -> None:
        self.generation = 0
        self._scheduler = scheduler
        self._rules = rules
        self._trail = trail
        self._acls: Acls | None = None

    def follow(self, metadata: ClusterMetadata) -> None:
        """Take the ACLs of the node's image, and those of each step of it."""
        metadata.subscribe(self._step)

    def _step(self, image: ClusterImage, delta: ImageDelta) -> None:
        if delta.first or SECTION in delta.section_records:
            before, self._acls = self._acls, image.section(SECTION)
            self.generation += 1
            if before is not None and len(delta.section_records.get(SECTION, ())) > REPLACED:
                self._scheduler.completed(Lane.METADATA, _let_go(before.pieces()))

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
        """As ``Authorizer.authorize``."""
        user = str(principal)
        if self._acls is None:
            allowed = user in self._rules.super_users
        else:
            allowed = self._rules.authorize(self._acls, user, host, operation, resource_type, name)
        if not quiet:
            self._trail.verdict(allowed, user, host, operation, resource_type, name)
        return allowed

    def authorize_any(self, principal: Principal, host: str, operation: str, resource_type: str) -> bool:
        """As ``Authorizer.authorize_any``. Its refusal is no event: the caller has asked for another right, too."""
        user = str(principal)
        if self._acls is None:
            return user in self._rules.super_users
        return self._rules.authorize_by_type(self._acls, user, host, operation, resource_type)


def _let_go(pieces: list[Any]) -> Steps[None]:
    while pieces:
        yield None
        del pieces[-PIECES_AT_ONCE:]
