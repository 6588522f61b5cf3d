"""TLS of one node: a context for each listener and for each listener of other nodes, kept fresh as files change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blumfeld.client.security.certificate import Certificate, MalformedError, parse
from blumfeld.client.security.stores import TlsConfigError
from blumfeld.client.security.tls import Made
from blumfeld.config.definitions import ConfigError
from blumfeld.config.values import BrokerConfig
from blumfeld.spi.context import Principal
from blumfeld.spi.hooks import CompositionRefused, EventLog, Metric
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Files, Runtime, Timer
from blumfeld.spi.security import BrokerConnectionHandler
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, Listener
from blumfeld_security.tls.contexts import client_context, server_context
from blumfeld_security.tls.gate import TlsHandler
from blumfeld_security.tls.handshakes import Handshakes
from blumfeld_security.tls.layer import TlsLayer
from blumfeld_security.tls.material import marks_of, workers
from blumfeld_security.tls.options import TlsOptions
from blumfeld_security.tls.principals import NoRuleError, Rules
from blumfeld_security.tls.settings import TlsSettings, settings_of

TLS_PROTOCOLS = {"SSL": False, "SASL_SSL": True}
"""Protocol → whether SASL runs within TLS."""
LOOK_MS = 5_000
"""Pause between two looks at the files' times."""
SOON_S = 14 * 86_400
"""A certificate that ends within this time is named in the log."""
PROTOCOL_MAP = "listener.security.protocol.map"


Make = Callable[[Files, TlsSettings, TlsOptions], Made]


class _Kept:
    """A context, the settings that it was made of, and the marks that its files had then."""

    def __init__(self, files: Files, settings: TlsSettings, make: Make, options: TlsOptions) -> None:
        self.settings = self.wanted = settings
        """The settings of the present context, and of the next one: they differ while a change is under way."""
        self.is_renewed = self.is_stale = False
        """Whether a renewal is under way, and whether another one was asked for meanwhile."""
        self.make = make
        self.options = options
        self.marks = marks_of(files, self.paths(settings))
        self.made = make(files, settings, options)

    def paths(self, settings: TlsSettings) -> list[str]:
        """Returns the files that it is made of."""
        stores = settings.keystore.location, settings.truststore.location
        options = self.options
        paths = *stores, *options.revocation_lists, *options.server_names.values()
        return [path for path in paths if path is not None]


class NodeTls:
    """Reads every key and certificate when it is made.

    :raises CompositionRefused: a setting or a file can't be used
    """

    def __init__(
        self,
        runtime: Runtime,
        log: EventLog,
        config: BrokerConfig,
        listeners: Sequence[Listener],
        options: TlsOptions,
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._config = config
        self._options = options
        self._repeated = RepeatedEvents(runtime)
        self._protocols = {listener.name: listener.security_protocol for listener in listeners}
        self._served: dict[str, _Kept] = {}
        self._dialled: dict[str, _Kept] = {}
        self._timer: Timer | None = None
        self._stopped = False
        self.handshakes = Handshakes(
            runtime,
            time_ms_max=options.handshake_ms_max,
            open_max=options.handshakes_max,
            workers_max=workers(),
        )
        try:
            for listener in listeners:
                if listener.security_protocol in TLS_PROTOCOLS:
                    self._served[listener.name] = self._kept(config, listener.name, server_context)
                    self._watch_end(listener.name)
            for name in self._peer_listeners():
                self._peer(name)
        except TlsConfigError as error:
            path = error.key if error.key.startswith("security.") else f'config."{error.key}"'
            raise CompositionRefused(path, error.found, error.allowed) from None

    # Made

    def protocol(self, listener: str) -> str:
        """Returns the protocol of a listener, also one of other nodes alone: ``listener.security.protocol.map``."""
        known = self._protocols.get(listener)
        if known is not None:
            return known
        pairs = (entry.partition(":") for entry in self._config.str(PROTOCOL_MAP).split(","))
        named = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
        return named.get(listener, listener)

    def _settings(self, config: BrokerConfig, name: str, *, dials: bool) -> TlsSettings:
        with_sasl = TLS_PROTOCOLS[self.protocol(name)]
        return settings_of(config, name, with_sasl=with_sasl, dials=dials)

    def _kept(self, config: BrokerConfig, name: str, make: Make) -> _Kept:
        settings = self._settings(config, name, dials=make is client_context)
        return _Kept(self._runtime.files, settings, make, self._options)

    def _peer_listeners(self) -> list[str]:
        """Returns the names of the listeners at which this node dials others."""
        keys = "inter.broker.listener.name", "controller.listener.names"
        names = [self._config.get(keys[0]), *self._config.list(keys[1])]
        return [name for name in names if isinstance(name, str) and self.protocol(name) in TLS_PROTOCOLS]

    def _peer(self, name: str) -> _Kept:
        kept = self._dialled.get(name)
        if kept is None:
            kept = self._dialled[name] = self._kept(self._config, name, client_context)
        return kept

    # Serving

    def byte_layer(self, listener: Listener) -> Callable[[], ByteLayer] | None:
        """See ``Security.byte_layer``."""
        kept = self._served.get(listener.name)
        if kept is None:
            return None
        rules = Rules(kept.settings.rules)
        name = listener.name

        def completed(layer: TlsLayer) -> None:
            layer.principal = _principal(layer, rules)

        def failed(layer: TlsLayer, reason: str) -> None:
            self._say_failed(name, layer.peer, reason)

        def make() -> ByteLayer:
            return TlsLayer(kept.made.context, self.handshakes, completed=completed, failed=failed)

        return make

    def client_auth(self, listener: Listener) -> str:
        """Returns whether a TLS listener asks for a client's certificate: ``none``, ``requested`` or ``required``."""
        return self._served[listener.name].settings.client_auth

    def handler(
        self, listener: Listener, inner: ConnectionHandler, broker: BrokerConnectionHandler
    ) -> ConnectionHandler:
        """Returns the handler of a listener's connections, in front of ``inner`` where it speaks TLS."""
        with_sasl = TLS_PROTOCOLS.get(listener.security_protocol)
        return inner if with_sasl is None else TlsHandler(inner, None if with_sasl else broker)

    def peer_layer(self, listener: str, host: str) -> Callable[[], ByteLayer] | None:
        """See ``PeerSecurity.byte_layer``; ``None`` where the listener has no TLS."""
        if self.protocol(listener) not in TLS_PROTOCOLS:
            return None
        kept = self._peer(listener)

        def failed(layer: TlsLayer, reason: str) -> None:
            self._say_failed(listener, host, reason)

        def make() -> ByteLayer:
            return TlsLayer(kept.made.context, self.handshakes, host=host, failed=failed)

        return make

    def _say_failed(self, listener: str, peer: str, reason: str) -> None:
        say = self._repeated.say
        key = (listener, peer, reason)
        say(self._log.warning, "TLS handshake failed", key, listener=listener, peer=peer, reason=reason)

    # Fresh files and settings

    async def start(self) -> None:
        """Begin to look at the files."""
        self._look_later()

    async def stop(self) -> None:
        """Look no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        if not self._stopped and (self._served or self._dialled):
            self._timer = self._runtime.call_later(LOOK_MS, self._look_now)

    def _look_now(self) -> None:
        self._runtime.spawn(self._look(), "look at TLS files")

    async def _look(self) -> None:
        for name, kept in (*self._served.items(), *self._dialled.items()):
            marks = await self._runtime.offload(marks_of, self._runtime.files, kept.paths(kept.settings))
            if marks != kept.marks:
                await self._renew(name, kept)
        self._look_later()

    async def _renew(self, name: str, kept: _Kept) -> None:
        """Make it anew, one renewal behind the other: an older one that took longer would undo a newer one."""
        kept.is_stale = True
        if kept.is_renewed:
            return
        kept.is_renewed = True
        try:
            while kept.is_stale:
                kept.is_stale = False
                await self._make_anew(name, kept, kept.wanted)
        finally:
            kept.is_renewed = False

    async def _make_anew(self, name: str, kept: _Kept, settings: TlsSettings) -> None:
        """Make it anew. What can't be made leaves the present one, with a line in the log."""
        marks = await self._runtime.offload(marks_of, self._runtime.files, kept.paths(settings))
        kept.marks = marks  # a fault is told once for each state of the files
        try:
            made = await self._runtime.offload(kept.make, self._runtime.files, settings, kept.options)
            old, new = kept.made.certificate, made.certificate
            if name in self._served and old is not None and new is not None:
                _check_same_names(old, new, settings)
                _check_not_ended(new, settings, self._runtime.now_ms() / 1000)
        except TlsConfigError as error:
            if settings is kept.wanted:
                kept.wanted = kept.settings
            self._log.error(
                "TLS isn't changed: a setting or a file can't be used",
                listener=name,
                key=error.key,
                found=error.found,
                allowed=error.allowed,
            )
            return
        kept.settings, kept.made = settings, made
        self._log.info("TLS changed: new connections get what the files have now", listener=name)
        self._watch_end(name)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Take the settings of a configuration that was changed at run time."""
        self._config = config
        for name, kept in (*self._served.items(), *self._dialled.items()):
            try:
                settings = self._settings(config, name, dials=kept.make is client_context)
            except (TlsConfigError, ConfigError) as error:
                self._log.error("TLS isn't changed: a setting can't be used", listener=name, error=str(error))
                continue
            if settings != kept.wanted:
                kept.wanted = settings
                self._runtime.spawn(self._renew(name, kept), "change TLS")

    def _watch_end(self, name: str) -> None:
        """Say that a certificate has ended, or ends soon."""
        kept = self._served.get(name)
        certificate = None if kept is None else kept.made.certificate
        if certificate is None:
            return
        left_s = certificate.not_after_s - self._runtime.now_ms() / 1000
        values = {"listener": name, "certificate": certificate.subject, "days": round(left_s / 86_400)}
        if left_s <= 0:
            self._log.error("the certificate of a listener has expired: no client will take it", **values)
        elif left_s < SOON_S:
            self._log.warning("the certificate of a listener expires soon", **values)

    def metrics(self) -> list[Metric]:
        """Returns the counters of handshakes, and the end of each certificate."""
        ends = Metric(
            "blumfeld_tls_certificate_expires_seconds",
            "End of a listener's certificate, in seconds since the epoch.",
            "gauge",
            self._ends,
            labels=("listener",),
        )
        return [*self.handshakes.metrics(), ends]

    def _ends(self) -> dict[tuple[str], float]:
        shown = {name: kept.made.certificate for name, kept in self._served.items()}
        return {(name,): one.not_after_s for name, one in shown.items() if one is not None}


def _principal(layer: TlsLayer, rules: Rules) -> Principal | None:
    der = layer.peer_certificate()
    if der is None:
        return None
    try:
        return Principal(name=rules.principal(parse(der).subject))
    except (MalformedError, NoRuleError) as error:
        raise ConnectionError(str(error)) from None


def _check_same_names(old: Certificate, new: Certificate, settings: TlsSettings) -> None:
    """As Kafka: another keystore keeps its names, unless ``ssl.allow.dn.changes`` and ``ssl.allow.san.changes``."""
    any_subject, any_alternatives = settings.allows_other_names
    key = f"{settings.keystore.key}.location"
    if not any_subject and new.subject != old.subject:
        found = f"a certificate of {new.subject}"
        raise TlsConfigError(key, found, f"one of {old.subject}, or ssl.allow.dn.changes=true")
    if not any_alternatives and not new.alternative_names >= old.alternative_names:
        found = "a certificate without an alternative name that the present one has"
        raise TlsConfigError(key, found, "all of them, or ssl.allow.san.changes=true")


def _check_not_ended(certificate: Certificate, settings: TlsSettings, now_s: float) -> None:
    if certificate.not_after_s <= now_s:
        key = f"{settings.keystore.key}.location"
        raise TlsConfigError(key, "a certificate that has expired", "one that holds")
