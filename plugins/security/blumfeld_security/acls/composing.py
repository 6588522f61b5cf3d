"""The authorizer and the handlers of a build, by its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from blumfeld.spi.context import ApiHandler, LazyHandler
from blumfeld.spi.hooks import Composition, CompositionRefused
from blumfeld_security.acls.authorizer import AclAuthorizer
from blumfeld_security.acls.rules import StandardRules
from blumfeld_security.audit.trail import Trail

KEY = "authorizer.class.name"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_APIS = (29, 30, 31)


def acl_authorizer(composition: Composition, trail: Trail) -> AclAuthorizer | None:
    """Returns the authorizer, or ``None`` if the manifest wants none.

    :raises CompositionRefused: the manifest names another class, a super user that is no principal, or options that
        only an authorizer reads
    """
    acls = composition.options.acls
    for nth, user in enumerate(acls.super_users):
        if ":" not in user:
            raise CompositionRefused(
                f"security.options.acls.super_users[{nth}]", user, f"a type and a name: User:{user}"
            )
    named = composition.config.get(KEY)
    if not named:
        if acls.super_users or acls.allow_everyone_if_no_acl_found:
            raise CompositionRefused(
                "security.options.acls",
                "options of an authorizer",
                f'nothing, unless config."{KEY}" = "{STANDARD_AUTHORIZER}": everybody may do everything now',
            )
        return None
    if named != STANDARD_AUTHORIZER:
        raise CompositionRefused(
            f'config."{KEY}"',
            str(named),
            f"{STANDARD_AUTHORIZER}, or nothing. Another authorizer is a plug-in: security.authorizer names it",
        )
    rules = StandardRules(frozenset(acls.super_users), acls.allow_everyone_if_no_acl_found)
    return AclAuthorizer(rules, trail, composition.runtime.scheduler)


def acl_handlers(composition: Composition) -> Sequence[ApiHandler]:
    """Returns the handlers of the APIs on ACLs. Their module is imported with the first request."""
    load = partial(_load, composition)
    return [LazyHandler(key, load).handler(1, 3, ("broker", "controller")) for key in _APIS]


def _load(composition: Composition) -> Sequence[ApiHandler]:
    from blumfeld_security.acls.handlers import AclApis

    return AclApis(composition).handlers()
