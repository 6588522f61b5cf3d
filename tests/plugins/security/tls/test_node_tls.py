"""TLS of a node: what a manifest may say, files that change under it, principals, and the log."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.spi.context import Principal
from blumfeld.spi.hooks import CompositionRefused
from blumfeld.spi.transport import Listener
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.tls.layer import TlsLayer
from blumfeld_security.tls.node_tls import LOOK_MS, NodeTls
from blumfeld_security.tls.options import TlsOptions
from campaigns.certificates import Leaf, private
from tests.plugins.security.tls.authority import AUTHORITY, CLIENT, SERVER, client_context
from tests.plugins.security.tls.ends import End, Stranger, shake

SSL = Listener(name="SSL", kind="broker", host="127.0.0.1", port=0, security_protocol="SSL")
PLAIN = Listener(name="PLAINTEXT", kind="broker", host="127.0.0.1", port=0)


class Log:
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        def say(event: str, **values: Any) -> None:
            self.said.append((level, event, values))

        return say

    def text(self) -> str:
        """Everything, as one text."""
        return repr(self.said)


class Node:
    """A node's TLS with one listener, its files and its log."""

    def __init__(self, folder: Path, *, leaf: Leaf = SERVER, **more: str) -> None:
        self.runtime = FakeRuntime(files=RealFiles())
        self.log = Log()
        self.folder = folder
        self.keystore = folder / "node.pem"
        self.replaced = 0
        private(self.keystore, leaf.pem())
        self.given = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": private(folder / "trust.pem", AUTHORITY.pem),
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        self.tls = NodeTls(self.runtime, self.log, BrokerConfig(self.given), [PLAIN, SSL], TlsOptions())
        self.runtime.run(self.tls.start())

    def accept(self) -> End:
        """A new connection."""
        made = self.tls.byte_layer(SSL)
        assert made is not None
        layer = made()
        assert isinstance(layer, TlsLayer)
        return End(self.runtime, layer)

    def shown(self) -> bytes | None:
        """The certificate that a new connection shows."""
        far = Stranger(client_context(self.folder))
        shake(self.accept(), far)
        return far.tls.getpeercert(binary_form=True)

    def look(self) -> None:
        """Let the node look at its files."""
        self.runtime.advance(LOOK_MS)
        self.runtime.run_turn()

    def replace(self, leaf: Leaf) -> None:
        """Put another keystore in the place of the present one, as a tool does."""
        private(self.folder / "new", leaf.pem())
        self.replaced += 1
        later_s = time.time() + self.replaced  # two changes within a tick of the clock have one time
        os.utime(self.folder / "new", (later_s, later_s))
        (self.folder / "new").rename(self.keystore)


def test_a_listener_without_tls_has_no_layer_and_no_handler(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.tls.byte_layer(PLAIN) is None
    inner: Any = object()
    assert node.tls.handler(PLAIN, inner, inner) is inner


def test_a_wrong_file_fails_the_composition_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(CompositionRefused) as refused:
        Node(tmp_path, ssl_truststore_location="/nowhere", ssl_client_auth="required")
    assert refused.value.path == 'config."ssl.truststore.location"'
    assert "/nowhere" in refused.value.found


def test_new_connections_get_a_changed_certificate_and_old_ones_live_on(tmp_path: Path) -> None:
    node = Node(tmp_path)
    old, far = node.accept(), Stranger(client_context(tmp_path))
    shake(old, far)
    fresh = AUTHORITY.leaf()
    node.replace(fresh)
    assert node.shown() == SERVER.der
    node.look()
    assert node.shown() == fresh.der
    old.take(far.say(b"still here"))
    assert old.plain == b"still here"
    assert (
        "info",
        "TLS changed: new connections get what the files have now",
        {"listener": "SSL"},
    ) in node.log.said


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (None, "no private key"),
        (AUTHORITY.leaf(("O", "Firm"), ("CN", "other")), "ssl.allow.dn.changes"),
        (AUTHORITY.leaf(hosts=("localhost",)), "ssl.allow.san.changes"),
        (AUTHORITY.leaf(since_days=2_000, until_days=-1_500), "expired"),
    ],
)
def test_a_bad_new_file_keeps_the_old_certificate_with_one_line(
    tmp_path: Path, leaf: Leaf | None, words: str
) -> None:
    node = Node(tmp_path)
    if leaf is None:
        node.keystore.write_bytes(b"spoiled")
    else:
        node.replace(leaf)
    node.look()
    node.look()
    errors = [values for level, _, values in node.log.said if level == "error"]
    assert len(errors) == 1, "told once for each state of the files"
    assert errors[0]["key"] == "ssl.keystore.location"
    assert words in errors[0]["found"] + errors[0]["allowed"]
    assert node.shown() == SERVER.der
    fresh = AUTHORITY.leaf()
    node.replace(fresh)
    node.look()
    assert node.shown() == fresh.der


def test_other_names_are_taken_where_the_keys_allow_them(tmp_path: Path) -> None:
    node = Node(tmp_path, ssl_allow_dn_changes="true", ssl_allow_san_changes="true")
    other = AUTHORITY.leaf(("CN", "other"), hosts=("localhost",))
    node.replace(other)
    node.look()
    assert node.shown() == other.der


def test_a_missing_file_is_waited_for(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.keystore.unlink()
    node.look()
    assert node.shown() == SERVER.der
    fresh = AUTHORITY.leaf()
    node.replace(fresh)
    node.look()
    assert node.shown() == fresh.der


def test_settings_that_are_changed_at_run_time_are_taken(tmp_path: Path) -> None:
    node = Node(tmp_path)
    fresh = AUTHORITY.leaf()
    place = private(tmp_path / "elsewhere.pem", fresh.pem())
    node.tls.reconfigure(BrokerConfig(node.given | {"listener.name.ssl.ssl.keystore.location": place}))
    node.runtime.run_turn()
    assert node.shown() == fresh.der
    node.tls.reconfigure(BrokerConfig(node.given | {"ssl.keystore.type": "JKS"}))
    node.runtime.run_turn()
    assert node.shown() == fresh.der
    assert "keytool" in node.log.text()


@pytest.mark.parametrize("last", ["required", "none"])
def test_the_last_of_several_changes_holds(tmp_path: Path, last: str) -> None:
    """An older one that takes longer doesn't undo it; nor is one missed that leads back to what holds."""
    node = Node(tmp_path)
    delays = iter([1_000.0])
    node.runtime.offload_delay_ms = lambda: next(delays, 0.0)
    for client_auth in ("requested", last):
        node.tls.reconfigure(BrokerConfig(node.given | {"ssl.client.auth": client_auth}))
        node.runtime.run_turn()
    node.runtime.advance(3_000)
    assert node.tls._served["SSL"].settings.client_auth == last


def test_the_end_of_a_certificate_is_told(tmp_path: Path) -> None:
    leaf = AUTHORITY.leaf(since_days=2_000, until_days=30)
    node = Node(tmp_path, leaf=leaf)
    assert node.log.said == []
    now_s = node.runtime.now_ms() / 1000
    left_ms = (leaf.certificate.not_valid_after_utc.timestamp() - now_s) * 1000
    for left_days, level in ((10, "warning"), (-1, "error")):
        node.log.said.clear()
        node.runtime.jump_clock(
            int(left_ms - left_days * 86_400_000) - (node.runtime.now_ms() - int(now_s * 1000))
        )
        node.tls._watch_end("SSL")
        assert node.log.said[0][0] == level
        assert node.log.said[0][2]["certificate"] == "CN=node,O=Firm"
    ends = {metric.name: metric.read() for metric in node.tls.metrics()}
    assert ends["blumfeld_tls_certificate_expires_seconds"] == {
        ("SSL",): leaf.certificate.not_valid_after_utc.timestamp()
    }


def test_a_principal_comes_from_the_certificate_by_the_rules(tmp_path: Path) -> None:
    rules = "RULE:^CN=([A-Z].*?),OU=Trade.*$/$1/L"
    node = Node(tmp_path, ssl_client_auth="requested", ssl_principal_mapping_rules=rules)
    alice, nobody = node.accept(), node.accept()
    shake(alice, Stranger(client_context(tmp_path, CLIENT)))
    assert alice.layer.principal == Principal(name="alice")
    shake(nobody, Stranger(client_context(tmp_path)))
    assert nobody.layer.completed
    assert nobody.layer.principal is None
    stranger = node.accept()
    shake(stranger, Stranger(client_context(tmp_path, AUTHORITY.leaf(("CN", "stranger")))))
    assert stranger.broken is not None
    assert "no rule of" in stranger.broken
    assert not stranger.plain


class Broker:
    """Stands for the broker's handler."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def opened(self, connection: Any) -> None:
        self.calls.append(("opened", connection))

    def request(self, exchange: Any, frame: memoryview) -> None:
        self.calls.append(("request", bytes(frame)))

    def closed(self, connection: Any, reason: str) -> None:
        self.calls.append(("closed", reason))

    def set_principal(self, connection: Any, principal: Principal) -> None:
        self.calls.append(("principal", str(principal)))


class Connection:
    """Has a layer and an address."""

    def __init__(self, layer: TlsLayer) -> None:
        self.layer = layer
        self.peer_host = "10.0.0.7"


def test_the_broker_gets_the_principal_before_the_first_request(tmp_path: Path) -> None:
    node = Node(tmp_path, ssl_client_auth="required")
    broker: Any = Broker()
    handler = node.tls.handler(SSL, broker, broker)
    end = node.accept()
    connection: Any = Connection(end.layer)
    handler.opened(connection)
    shake(end, Stranger(client_context(tmp_path, CLIENT)))
    exchange: Any = None
    handler.request(exchange, memoryview(b"x"))
    handler.closed(connection, "over")
    principal = "User:CN=Alice,OU=Trade,O=Firm,C=DE"
    assert broker.calls == [
        ("opened", connection),
        ("principal", principal),
        ("request", b"x"),
        ("closed", "over"),
    ]


def test_with_sasl_the_certificate_does_not_name_the_principal(tmp_path: Path) -> None:
    node = Node(tmp_path, listener_name_ssl_ssl_client_auth="required")
    broker: Any = Broker()
    sasl = Listener(name="SSL", kind="broker", host="", port=0, security_protocol="SASL_SSL")
    handler = node.tls.handler(sasl, broker, broker)
    end = node.accept()
    connection: Any = Connection(end.layer)
    handler.opened(connection)
    shake(end, Stranger(client_context(tmp_path, CLIENT)))
    assert broker.calls == [("opened", connection)]


def test_a_failed_handshake_is_one_line_with_address_and_reason(tmp_path: Path) -> None:
    node = Node(tmp_path)
    broker: Any = Broker()
    for _ in range(5):
        end = node.accept()
        connection: Any = Connection(end.layer)
        node.tls.handler(SSL, broker, broker).opened(connection)
        end.take(b"GET / HTTP/1.1")
    values = {"listener": "SSL", "peer": "10.0.0.7", "reason": "the client speaks HTTP"}
    assert node.log.said == [("warning", "TLS handshake failed", values)]


def test_other_nodes_are_dialled_by_the_protocol_of_their_listener(tmp_path: Path) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:SSL"
    node = Node(tmp_path, listener_security_protocol_map=protocols, controller_listener_names="CONTROLLER")
    assert node.tls.protocol("CONTROLLER") == "SSL"
    assert node.tls.peer_layer("PLAINTEXT", "localhost") is None
    make = node.tls.peer_layer("CONTROLLER", "localhost")
    assert make is not None
    dialling = make()
    assert isinstance(dialling, TlsLayer)
    assert dialling.is_client


def test_no_secret_reaches_the_log_or_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(CompositionRefused) as refused:
        Node(tmp_path, ssl_keystore_type="PKCS12", ssl_keystore_password="SESAME")
    assert "SESAME" not in str(refused.value)
    node = Node(tmp_path, ssl_key_password="SESAME")
    node.keystore.write_bytes(SERVER.pem("another"))
    node.look()
    assert "can't be read" in node.log.text()
    assert "SESAME" not in node.log.text()
    assert "PRIVATE" not in node.log.text()


def test_nothing_looks_after_the_stop(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.runtime.run(node.tls.stop())
    node.replace(AUTHORITY.leaf())
    node.look()
    assert node.shown() == SERVER.der
