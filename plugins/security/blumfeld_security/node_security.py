"""The security of one node: implements ``spi.security.Security`` from the rooms of this plug-in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_address

from blumfeld.config.values import BrokerConfig
from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import Composition, CompositionRefused, Metric
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.security import Authorizer, BrokerConnectionHandler, Dialled, PeerSecurity
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, Listener
from blumfeld_security.acls.composing import acl_authorizer, acl_handlers
from blumfeld_security.acls.peers import Peers
from blumfeld_security.audit.trail import Trail
from blumfeld_security.options import Options
from blumfeld_security.sasl.node_sasl import SASL_PROTOCOLS, NodeSasl
from blumfeld_security.sasl.peer_login import PeerLogin
from blumfeld_security.scram.handlers import scram_handlers
from blumfeld_security.tls.node_tls import NodeTls
from blumfeld_security.tls.peer import TlsPeer
from blumfeld_security.tokens.delegation_tokens import SECTION as TOKENS
from blumfeld_security.tokens.delegation_tokens import TokenSecrets
from blumfeld_security.tokens.handlers import token_handlers


class NodeSecurity:
    """Made with the node, started before its first listener opens.

    :raises CompositionRefused: a listener lacks what its protocol needs, or lets anyone control the cluster; or no
        controller could be elected
    """

    def __init__(self, composition: Composition) -> None:
        options: Options = composition.options
        self._composition = composition
        self.trail = Trail(options.audit, composition.log("audit"), composition.runtime)
        self.acls = acl_authorizer(composition, self.trail)
        self.authorizer: Authorizer | None = self.acls
        self.tls = NodeTls(
            composition.runtime,
            composition.log("tls"),
            composition.config,
            composition.listeners,
            options.tls,
        )
        if not options.allow_open_controller_listener:
            for nth, listener in enumerate(composition.listeners):
                if self._is_open(listener):
                    _refuse_open_controller(nth, listener)
        self.sasl = NodeSasl(composition, options)
        if self.acls is not None:
            Peers(composition, self._is_open, self.tls.protocol, self._own_user).check()
        self.token_secrets = TokenSecrets(self.sasl.token_settings)

    def _is_open(self, listener: Listener) -> bool:
        """Whether a stranger may send requests to a listener: TLS alone keeps out only those without a certificate. A
        certificate that is merely requested tells nodes from strangers where ACLs ask for it."""
        if listener.security_protocol != "SSL":
            return listener.security_protocol == "PLAINTEXT"
        client_auth = self.tls.client_auth(listener)
        return client_auth == "none" or (client_auth == "requested" and self.authorizer is None)

    def _own_user(self, listener: str) -> str | None:
        return self.sasl.own_user(listener) if self.tls.protocol(listener) in SASL_PROTOCOLS else None

    async def start(self) -> None:
        """As ``Security.start``."""
        if self.acls is not None:
            self.acls.follow(self._composition.metadata)
        if self.sasl.token_settings.secret_key:
            self._composition.metadata.subscribe(self._learn_tokens)
        await self.sasl.start()
        await self.tls.start()

    def _learn_tokens(self, image: ClusterImage, delta: ImageDelta) -> Completion[None] | None:
        """Compute the secrets of new tokens here, in slices: a command that looked for one would need all of them."""
        if not delta.first and TOKENS not in delta.section_records:
            return None
        steps = self.token_secrets.learn(image.section(TOKENS))
        return self._composition.runtime.scheduler.completed(Lane.METADATA, steps)

    async def stop(self) -> None:
        """As ``Security.stop``."""
        await self.tls.stop()

    def reconfigure(self, config: BrokerConfig) -> None:
        """As ``Security.reconfigure``."""
        self.tls.reconfigure(config)

    def byte_layer(self, listener: Listener) -> Callable[[], ByteLayer] | None:
        """As ``Security.byte_layer``."""
        return self.tls.byte_layer(listener)

    def connection_handler(self, listener: Listener, broker: BrokerConnectionHandler) -> ConnectionHandler:
        """As ``Security.connection_handler``."""
        with_sasl = listener.security_protocol in SASL_PROTOCOLS
        inner = self.sasl.gate(listener, broker) if with_sasl else broker
        return self.tls.handler(listener, inner, broker)

    def peer(self, listener: str) -> PeerSecurity | None:
        """As ``Security.peer``."""
        protocol = self.tls.protocol(listener)
        if protocol in SASL_PROTOCOLS:
            return SaslPeer(self.tls, listener, self.sasl.peer_login(listener))
        return TlsPeer(self.tls, listener) if protocol == "SSL" else None

    def handlers(self) -> Sequence[ApiHandler]:
        """Returns the handlers of this plug-in's APIs."""
        composition = self._composition
        return (
            *self.sasl.handlers(),
            *scram_handlers(composition.metadata, composition.node_id),
            *token_handlers(composition.metadata, composition.node_id, self.sasl.token_settings),
            *(() if self.acls is None else acl_handlers(composition)),
        )

    def metrics(self) -> Sequence[Metric]:
        """Returns the metrics of this plug-in."""
        return (*self.sasl.metrics(), *self.trail.metrics(), *self.tls.metrics())


class SaslPeer(TlsPeer):
    """Implements ``PeerSecurity`` for listeners with SASL, with and without TLS."""

    def __init__(self, tls: NodeTls, listener: str, login: PeerLogin) -> None:
        super().__init__(tls, listener)
        self._login = login

    async def authenticate(self, connection: Dialled) -> float | None:
        """As ``PeerSecurity.authenticate``."""
        return await self._login.authenticate(connection)


def _refuse_open_controller(nth: int, listener: Listener) -> None:
    if listener.kind != "controller":
        return
    try:
        is_local = ip_address(listener.host).is_loopback
    except ValueError:
        is_local = listener.host == "localhost"
    if not is_local:
        found = f"{listener.name} on {listener.host} without authentication: whoever reaches it controls the cluster"
        allowed = (
            "an address of this machine alone, SASL or SSL with ssl.client.auth = required in "
            "listener.security.protocol.map, or security.options.allow_open_controller_listener = true"
        )
        raise CompositionRefused(f"network.listeners[{nth}].bind", found, allowed)
