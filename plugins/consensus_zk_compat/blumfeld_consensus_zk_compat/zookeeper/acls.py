"""The access lists that new nodes get, as Kafka 3.9 gives them with and without ``zookeeper.set.acl``."""

from __future__ import annotations

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Nodes at and below these hold secrets: nobody else reads them."""
CONSUMERS = "/consumers"
"""Old consumers write here under any identity."""


class Acls:
    """Chooses the list of a new node."""

    def __init__(self, *, secure: bool) -> None:
        self._secure = secure
        self._readable = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
        self._bytes_max = max(_wire_bytes(OPEN_ACL_UNSAFE), _wire_bytes(self._readable) if secure else 0)

    @property
    def bytes_max(self) -> int:
        """The most that a list takes in a request."""
        return self._bytes_max

    def of(self, path: str) -> list[ACL]:
        """Return the list of a node that is created at ``path``, which is relative to the chroot."""
        if not self._secure or path == CONSUMERS:
            return OPEN_ACL_UNSAFE  # type: ignore[no-any-return]
        if any(f"{path}/".startswith(f"{root}/") for root in SENSITIVE):
            return CREATOR_ALL_ACL  # type: ignore[no-any-return]
        return self._readable


def _wire_bytes(acls: list[ACL]) -> int:
    return 4 + sum(12 + len(acl.id.scheme) + len(acl.id.id) for acl in acls)
