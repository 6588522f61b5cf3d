"""SASL of one node: its gates, its mechanisms, and its own login at other nodes."""

from __future__ import annotations

import base64
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from blumfeld.client.security.sasl import OAUTHBEARER, PLAIN
from blumfeld.client.security.scram import MECHANISMS, NONCE_BYTES, ScramMechanism, nonce_of
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, Principal
from blumfeld.spi.hooks import Composition, CompositionRefused, Metric
from blumfeld.spi.secret_files import BadSecretFile
from blumfeld.spi.security import Authenticator, BrokerConnectionHandler, MakeAuthenticator
from blumfeld.spi.transport import ConnectionHandler, Listener
from blumfeld_security.exchanges.plain import PlainLogin
from blumfeld_security.exchanges.scram import ClientFirst, Credential, credential_of
from blumfeld_security.options import Options
from blumfeld_security.sasl.authenticators import (
    BearerAuthenticator,
    BearerUser,
    PlainAuthenticator,
    ScramAuthenticator,
    ScramUser,
)
from blumfeld_security.sasl.counts import LoginCounts
from blumfeld_security.sasl.failed_logins import FailedLogins
from blumfeld_security.sasl.gate import Gate, GateSettings, Session, sasl_handlers
from blumfeld_security.sasl.hash_workers import HashWorkers
from blumfeld_security.sasl.peer_login import (
    PEER_MECHANISMS,
    PeerLogin,
    read_login,
)
from blumfeld_security.sasl.plain_users import PlainUsers
from blumfeld_security.scram.credentials import SECTION, Credentials
from blumfeld_security.scram.first_credentials import written_credentials
from blumfeld_security.tokens.delegation_tokens import SECTION as TOKENS
from blumfeld_security.tokens.delegation_tokens import Token, TokenSettings

if TYPE_CHECKING:
    from blumfeld_security.sasl.issuer_keys import IssuerKeys

SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
ENABLED = "sasl.enabled.mechanisms"
BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
TO_CONTROLLERS = "sasl.mechanism.controller.protocol"
OWN = (PLAIN, *MECHANISMS, OAUTHBEARER)
"""Mechanisms of this plug-in."""
T = TypeVar("T")


class NodeSasl:
    """Made with the node's security.

    :raises CompositionRefused: a SASL listener has a mechanism that isn't there, or lacks what it needs
    """

    def __init__(self, composition: Composition, options: Options) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._config = composition.config
        self._options = options
        self._events = composition.log("sasl")
        self._sessions: dict[int, Session] = {}
        self.counts = LoginCounts()
        self._failed_logins = FailedLogins(options.failed_logins_max)
        self._written = Credentials({})
        """Credentials of the bootstrap checkpoint, which count until the cluster's metadata is there."""
        self.token_settings = TokenSettings(
            secret_key=str(self._config.get("delegation.token.secret.key") or "").encode(),
            max_lifetime_ms=self._config.int("delegation.token.max.lifetime.ms"),
            expiry_ms=self._config.int("delegation.token.expiry.time.ms"),
        )
        self._hash_workers = HashWorkers(self._runtime)
        self._users: PlainUsers | None = None
        self._issuer: IssuerKeys | None = None
        self._logins: dict[str, PeerLogin] = {}
        """Mechanism → this node's login by it."""
        self._mechanisms = {
            listener.name: self._enabled(listener)
            for listener in composition.listeners
            if listener.security_protocol in SASL_PROTOCOLS
        }
        names = {name for enabled in self._mechanisms.values() for name in enabled}
        if PLAIN in names - composition.authenticators.keys():
            self._users = self._plain_users()
        if OAUTHBEARER in names - composition.authenticators.keys():
            self._issuer = self._issuer_keys()

    # Mechanisms

    def _enabled(self, listener: Listener) -> tuple[str, ...]:
        """Returns the mechanisms of a listener."""
        key = self._config.of_listener(listener.name, ENABLED)
        enabled = tuple(name.strip().upper() for name in self._config.list(key))
        known = (*self._composition.authenticators, *OWN)
        for name in enabled:
            if name not in known:
                found = f"{name} for the listener {listener.name}"
                if name == "GSSAPI":
                    found += ", which is Kafka's default: Kerberos is not implemented"
                raise CompositionRefused(f'config."{key}"', found, ", ".join(dict.fromkeys(known)))
        if not enabled:
            path = f'config."{key}"'
            raise CompositionRefused(path, f"nothing for the listener {listener.name}", ", ".join(known))
        return enabled

    def _plain_users(self) -> PlainUsers:
        if not self._options.plain_users:
            allowed = "a file of users, as `blumfeld security hash-password --user NAME` writes its lines"
            raise CompositionRefused("security.options.plain_users", "nothing, and PLAIN is enabled", allowed)
        return PlainUsers(self._runtime, self._events, self._options.plain_users, self._hash_workers)

    def _issuer_keys(self) -> IssuerKeys:
        config, options = self._config, self._options
        key = "sasl.oauthbearer.jwks.endpoint.url"
        url = str(config.get(key) or "")
        try:
            from blumfeld_security.sasl.bearer_tokens import TokenRules
            from blumfeld_security.sasl.issuer_keys import IssuerKeys, check_url

            check_url(url, options.oauthbearer_allowed_urls)
        except ModuleNotFoundError:
            found = "OAUTHBEARER, and the package joserfc is not installed"
            remedy = "pip install 'blumfeld-security[oauth]'"
            raise CompositionRefused(f'config."{ENABLED}"', found, remedy) from None
        except ValueError as error:
            found, _, allowed = str(error).partition(": allowed: ")
            raise CompositionRefused(f'config."{key}"', found or "nothing", allowed) from None
        issuer = config.get("sasl.oauthbearer.expected.issuer")
        rules = TokenRules(
            issuer=None if issuer is None else str(issuer),
            audiences=config.list("sasl.oauthbearer.expected.audience"),
            scopes=options.oauthbearer_scopes,
            scope_claim=config.str("sasl.oauthbearer.scope.claim.name"),
            subject_claim=config.str("sasl.oauthbearer.sub.claim.name"),
            skew_seconds=config.int("sasl.oauthbearer.clock.skew.seconds"),
        )
        return IssuerKeys(
            self._runtime,
            self._events,
            url,
            rules,
            config.int("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            config.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        )

    async def start(self) -> None:
        """Read what lies in files and at URLs.

        :raises OSError: it can't be read
        """
        if any(name in MECHANISMS for enabled in self._mechanisms.values() for name in enabled):
            self._written = written_credentials(self._runtime.files, self._composition.data_dir)
        try:
            if self._users is not None:
                await self._users.load()
        except BadSecretFile as error:
            raise OSError(f"security.options.plain_users: {error}") from None
        if self._issuer is not None:
            await self._load_issuer(self._issuer)

    async def _load_issuer(self, issuer: IssuerKeys) -> None:
        from blumfeld_security.sasl.issuer_keys import KeysUnavailable

        try:
            await issuer.load()
        except KeysUnavailable as error:
            raise OSError(f"keys of bearer tokens: {error}") from None

    # Gates

    def gate(self, listener: Listener, broker: BrokerConnectionHandler) -> ConnectionHandler:
        """Returns the gate of a SASL listener."""
        config = self._config
        own = partial(config.of_listener, listener.name)
        settings = GateSettings(
            receive_bytes_max=config.int(own("sasl.server.max.receive.size")),
            frame_bytes_max=config.int("socket.request.max.bytes"),
            failure_delay_ms=config.int("connection.failed.authentication.delay.ms"),
            reauth_ms=config.int(own("connections.max.reauth.ms")),
            login_ms_max=self._options.login_ms_max,
        )
        return Gate(
            broker,
            self._sessions,
            {name: self._maker(name) for name in self._mechanisms[listener.name]},
            settings,
            self._runtime,
            self._events,
            self.counts,
            self._failed_logins,
        )

    def handlers(self) -> Sequence[ApiHandler]:
        """Returns the handlers of SaslHandshake and SaslAuthenticate."""
        return sasl_handlers(self._sessions)

    def metrics(self) -> Sequence[Metric]:
        """Returns the metrics of logins."""
        return self.counts.metrics()

    def _maker(self, name: str) -> MakeAuthenticator:
        brought = self._composition.authenticators.get(name)
        if brought is not None:
            return brought
        if name == PLAIN:
            return lambda _, address: PlainAuthenticator(partial(self._verify_password, address))
        if name == OAUTHBEARER:
            return lambda *_: BearerAuthenticator(
                self._verify_token, " ".join(self._options.oauthbearer_scopes)
            )
        return partial(self._scram, MECHANISMS[name])

    def _scram(self, mechanism: ScramMechanism, _listener: Listener, address: str) -> Authenticator:
        def nonce() -> str:
            return nonce_of(self._runtime.secrets(NONCE_BYTES))

        return ScramAuthenticator(mechanism, partial(self._scram_user, mechanism, address), nonce)

    def _scram_user(
        self, mechanism: ScramMechanism, address: str, first: ClientFirst
    ) -> ScramUser | Completion[ScramUser]:
        image = self._composition.metadata.image
        credentials: Credentials = image.section(SECTION)
        # The bootstrap records are one transaction: an image with features has had their credentials. From then on it
        # alone counts, also when its last credential is deleted. (On a ZooKeeper there may be no features.)
        if not credentials.by_user and not image.features:
            credentials = self._written
        # Made for each login: else the time of the answer would tell a known user from an unknown one.
        made_up = credentials.made_up(mechanism, first.user, self.token_settings.secret_key)
        if first.token_auth:
            user = self._token_user(mechanism, address, first.user, made_up)
            return self._completed(user, "login by a token")
        found = credentials.find(mechanism, first.user)
        return ScramUser(made_up, None) if found is None else ScramUser(found, Principal(first.user))

    async def _token_user(
        self, mechanism: ScramMechanism, address: str, token_id: str, made_up: Credential
    ) -> ScramUser:
        """Returns the credential of a delegation token and the principal of its owner. The token's secret is the
        password (KIP-48). An unknown token takes as long, and is challenged alike.

        :raises LoginRefused: too many logins wait for the hash of their password
        """
        token = self._token(token_id)
        password = base64.b64encode(self.token_settings.secret_of(token_id)).decode()
        salt, iterations = made_up.salt, made_up.iterations
        salted = await self._hash_workers.hash(address, mechanism.salted_password, password, salt, iterations)
        credential = credential_of(mechanism, salted, salt, iterations)
        if token is None or not self.token_settings.secret_key or self._token_left_ms(token_id) <= 0:
            return ScramUser(made_up, None)
        principal = Principal(token.owner.name, token.owner.type, token_authenticated=True)
        return ScramUser(credential, principal, partial(self._token_left_ms, token_id))

    def _token(self, token_id: str) -> Token | None:
        tokens: Mapping[str, Token] = self._composition.metadata.image.section(TOKENS)
        return tokens.get(token_id)

    def _token_left_ms(self, token_id: str) -> float:
        """Returns the time until a token ends; 0 for an unknown one."""
        token = self._token(token_id)
        return 0.0 if token is None else min(token.expires_ms, token.max_ms) - self._runtime.now_ms()

    def _verify_password(self, address: str, login: PlainLogin) -> Completion[None]:
        assert self._users is not None
        return self._completed(self._users.verify(login, address), "login by PLAIN")

    def _verify_token(self, token: str) -> Completion[BearerUser]:
        assert self._issuer is not None
        return self._completed(self._issuer.verify(token), "login by OAUTHBEARER")

    def _completed(self, work: Coroutine[Any, Any, T], name: str) -> Completion[T]:
        """Run a login's work as a task. Whatever it raises fails the completion: the gate lets nobody in then."""
        completion: Completion[T] = Completion()

        async def run() -> None:
            try:
                value = await work
            except Exception as error:
                completion.fail(error)
            else:
                completion.complete(value)

        self._runtime.spawn(run(), name)
        return completion

    # This node's own login

    def own_user(self, listener: str) -> str | None:
        """Returns the user by which this node logs in at a listener of other nodes; ``None`` where it can't log in."""
        try:
            return self.peer_login(listener).user
        except CompositionRefused:  # told where such a listener is dialled
            return None

    def peer_login(self, listener: str) -> PeerLogin:
        """Returns this node's login at a SASL listener of other nodes.

        :raises CompositionRefused: the mechanism can't log a node in, or there is no login
        """
        controllers = self._config.list("controller.listener.names")
        key = TO_CONTROLLERS if listener in controllers else BETWEEN_BROKERS
        mechanism = self._config.str(key).upper()
        if mechanism not in PEER_MECHANISMS:
            raise CompositionRefused(f'config."{key}"', mechanism, ", ".join(PEER_MECHANISMS))
        login = self._logins.get(mechanism)
        if login is None:
            path = self._options.peer_login
            if not path:
                allowed = 'a file with user = "NAME" and password = "…", readable by its owner alone'
                found = f"nothing, and the listener {listener} of other nodes asks for a login"
                raise CompositionRefused("security.options.peer_login", found, allowed)
            try:
                own = read_login(self._runtime.files, path)
            except BadSecretFile as error:
                raise CompositionRefused("security.options.peer_login", str(error), "such a file") from None
            login = self._logins[mechanism] = PeerLogin(self._runtime, own.by(mechanism))
        return login
