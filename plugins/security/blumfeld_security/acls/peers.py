"""Whether the nodes of a cluster may speak to each other under ACLs, as far as one manifest shows it. Pure.

Nodes need ClusterAction on the cluster: controllers to vote, brokers to register, to follow the metadata and to
replicate. A node that comes in without a login is ``User:ANONYMOUS``. Before there is a leader nobody can read an ACL,
and only super users may do anything, as in Kafka's StandardAuthorizer. So voters without a login elect nobody unless
``User:ANONYMOUS`` is a super user. What brokers may do later depends on ACLs, which no manifest shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from blumfeld.config.quorum import BOOTSTRAP_SERVERS, VOTERS, quorum_voters
from blumfeld.spi.context import ANONYMOUS
from blumfeld.spi.hooks import Composition, CompositionRefused
from blumfeld.spi.transport import Listener

SUPER_USERS = "security.options.acls.super_users"
CONTROLLER_LISTENERS = "controller.listener.names"
LOGIN = "SASL or SSL with ssl.client.auth = required in listener.security.protocol.map, with its principal among them"
REGISTERS = "this broker registers and follows the metadata by it"


class Peers:
    """What a node's manifest says of the logins of other nodes.

    :param is_open: whether a listener lets a node in that doesn't log in
    :param protocol: the security protocol of a listener, also of one that only other nodes have
    :param login: the user of this node at a listener with SASL; ``None`` for another protocol
    """

    def __init__(
        self,
        composition: Composition,
        is_open: Callable[[Listener], bool],
        protocol: Callable[[str], str],
        login: Callable[[str], str | None],
    ) -> None:
        self._composition = composition
        self._config = composition.config
        self._super_users = composition.options.acls.super_users
        self._is_open = is_open
        self._protocol = protocol
        self._login = login

    def check(self) -> None:
        """Refuse a voter that can't take part in an election, and warn of what only ACLs can allow.

        :raises CompositionRefused: the other voters come in without a login, and may not vote
        """
        if str(ANONYMOUS) not in self._super_users:
            voted_at = self._voted_at()
            if voted_at and all(map(self._is_open, voted_at)):
                self._refuse(voted_at[0])
            for where, text in self._without_login():
                self._warn("nodes come in without a login, and User:ANONYMOUS is no super user", where, text)
        for where, text in self._logins():
            self._warn("this node's own user is no super user", where, text)

    def _voted_at(self) -> list[Listener]:
        """Returns the listeners by which the other voters of a static quorum come in: the one whose port they are told,
        or each that they may mean. None if there is no other voter."""
        controllers = self._controller_listeners()
        voters = quorum_voters(self._config.list(VOTERS))
        own = [voter.port for voter in voters if voter.voter_id == self._composition.node_id]
        if len(voters) <= len(own) or not own:
            return []
        told = [it for it in controllers if it.advertised_port in own or it.port in own]
        return told or controllers

    def _refuse(self, listener: Listener) -> None:
        found = (
            f"no {ANONYMOUS}, and the other voters of {VOTERS} come in by {listener.name} "
            f"({listener.security_protocol}) without a login: none gets a vote, so the controllers elect no leader"
        )
        allowed = (
            f"{LOGIN}; or {ANONYMOUS}, if only nodes reach the listener: each client without a login may do "
            "everything then. An ACL or allow_everyone_if_no_acl_found counts only once there is a leader"
        )
        raise CompositionRefused(SUPER_USERS, found, allowed)

    def _without_login(self) -> Iterator[tuple[str, str]]:
        """Yields (a listener, what an ACL must allow there) where other nodes, or this one, come in without a login."""
        composition = self._composition
        is_controller = "controller" in composition.roles
        alone = composition.single_node and "broker" in composition.roles
        controllers = self._controller_listeners()
        if is_controller and not alone and controllers and self._is_open(controllers[0]):
            voters = ". Several voters elect no leader" if self._config.list(BOOTSTRAP_SERVERS) else ""
            yield controllers[0].name, f"brokers register and follow the metadata by it{voters}"
        if not is_controller:
            name = next(iter(self._config.list(CONTROLLER_LISTENERS)), None)
            if name is not None and self._protocol(name) == "PLAINTEXT":
                yield name, REGISTERS
        for listener in composition.listeners:
            if listener.inter_broker and not alone and self._is_open(listener):
                yield listener.name, "brokers replicate by it"

    def _logins(self) -> Iterator[tuple[str, str]]:
        """Yields (a listener, what fails there) for each user of this node that is no super user here."""
        is_controller = "controller" in self._composition.roles
        used = "controllers vote by it" if is_controller else REGISTERS
        names = [(name, used) for name in self._config.list(CONTROLLER_LISTENERS)[:1]]
        names += [
            (it.name, "brokers replicate by it") for it in self._composition.listeners if it.inter_broker
        ]
        for name, use in names:
            user = self._login(name)
            if (
                user is not None
                and f"User:{user}" not in self._super_users
                and not self._composition.single_node
            ):
                yield name, f"{use}, here as User:{user}"

    def _controller_listeners(self) -> list[Listener]:
        return [listener for listener in self._composition.listeners if listener.kind == "controller"]

    def _warn(self, event: str, listener: str, use: str) -> None:
        needs = "an ACL that allows ClusterAction on the cluster"
        if self._composition.options.acls.allow_everyone_if_no_acl_found:
            needs += ", once there is any ACL on the cluster"
        self._composition.log("acls").warning(
            event,
            listener=listener,
            use=use,
            needs=needs,
            helps=f"{SUPER_USERS}; or {LOGIN}",
        )
