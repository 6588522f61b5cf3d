"""Security in a manifest: the plug-ins that fill it, and the protocols of listeners."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.kernel.description.text import _listener_row
from blumfeld.kernel.node import Node
from blumfeld.spi.transport import Listener
from blumfeld.wire.errors import PluginContractError
from tests.kernel.fakes import complaints, plan_of, plugin
from tests.kernel.test_node import never, started_and_stopped, with_node


class Judge:
    """``Authorizer`` with a name."""

    generation = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def authorize(self, *_: object, quiet: bool = False) -> bool:
        return True

    def authorize_any(self, *_: object) -> bool:
        return True


class FakeSecurity:
    """``Security`` that lets everyone in and knows the mechanisms that were brought."""

    def __init__(self, composition: Any) -> None:
        self.authorizer: Any = Judge("its own")
        self.configs: list[BrokerConfig] = []
        self.mechanisms = dict(composition.authenticators)
        self.protocols = {listener.name: listener.security_protocol for listener in composition.listeners}

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def reconfigure(self, config: BrokerConfig) -> None:
        self.configs.append(config)

    def byte_layer(self, listener: Listener) -> None: ...

    def connection_handler(self, listener: Listener, broker: Any) -> Any:
        return broker

    def peer(self, listener: str) -> None: ...


LOCK = type("Lock", (plugin("security", "blumfeld_make_security", FakeSecurity),), {"secures": True})
JUDGE = plugin("authorizer", "blumfeld_make_authorizer", lambda _: Judge("another's"))
KEYS = plugin("authenticators", "blumfeld_authenticators", lambda _: {"PLAIN": lambda *_: None})
PLUGINS_BY_NAME: dict[str, Any] = {
    name: f"{__name__}:{made}"
    for name, made in (("lock", "LOCK"), ("judge", "JUDGE"), ("keys", "KEYS"), ("more_keys", "KEYS"))
}


@pytest.mark.parametrize(
    ("overrides", "judge"), [((), "its own"), (("security.authorizer=judge",), "another's")]
)
def test_an_authorizer_is_the_security_plug_ins_unless_another_is_named(
    tmp_path: Path, overrides: tuple[str, ...], judge: str
) -> None:
    async def body(node: Node) -> None:
        assert cast("Any", node.broker).authorizer.name == judge
        assert list(cast("Any", node.composition.security).mechanisms) == ["PLAIN"]
        await started_and_stopped(node)

    plan = plan_of(
        "security.plugin=lock",
        'security.authenticators=["keys"]',
        *overrides,
        data_dir=tmp_path,
        **PLUGINS_BY_NAME,
    )
    with_node(plan, body)


def test_brokers_speak_the_protocol_that_their_listener_has(tmp_path: Path) -> None:
    """A key that asks for TLS between brokers is no decoration of a listener in clear."""

    def overrides(protocol: str) -> list[str]:
        return [
            "security.plugin=lock",
            'network.listeners=[{name="INSIDE", kind="broker", bind="127.0.0.1:0", inter_broker=true}]',
            f'config."listener.security.protocol.map"="INSIDE:{protocol},CONTROLLER:PLAINTEXT"',
            'config."security.inter.broker.protocol"="SSL"',
        ]

    [said] = complaints(*overrides("PLAINTEXT"), **PLUGINS_BY_NAME)
    assert "allowed: PLAINTEXT, as the inter-broker listener INSIDE has it" in said
    assert plan_of(*overrides("SSL"), data_dir=tmp_path, **PLUGINS_BY_NAME).listeners


def test_a_mechanism_is_brought_once(tmp_path: Path) -> None:
    overrides = "security.plugin=lock", 'security.authenticators=["keys", "more_keys"]'
    plan = plan_of(*overrides, data_dir=tmp_path, **PLUGINS_BY_NAME)
    with pytest.raises(PluginContractError, match="more_keys brings the mechanism PLAIN again"):
        with_node(plan, never)


def test_a_listener_has_the_protocol_of_the_map_or_of_its_name(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        assert cast("Any", node.composition.security).protocols == {
            "OUTSIDE": "SASL_SSL",
            "PLAINTEXT": "PLAINTEXT",
            "CONTROLLER": "SSL",
        }

    rows = ", ".join(
        f'{{name = "{name}", kind = "{kind}", bind = "127.0.0.1:0"}}'
        for name, kind in (("OUTSIDE", "broker"), ("PLAINTEXT", "broker"), ("CONTROLLER", "controller"))
    )
    plan = plan_of(
        "security.plugin=lock",
        f"network.listeners=[{rows}]",
        'config."listener.security.protocol.map"="outside:sasl_ssl, CONTROLLER:SSL"',
        data_dir=tmp_path,
        **PLUGINS_BY_NAME,
    )
    with_node(plan, body)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("CONTROLLER:TLS", "PLAINTEXT, SSL, SASL_PLAINTEXT"),
        ("CONTROLLER", "LISTENER:PROTOCOL"),
        ("CONTROLLER:SSL,controller:SSL", "each listener once"),
        ("OTHER:SSL", "an entry for it, CONTROLLER:PROTOCOL"),
    ],
)
def test_a_map_of_protocols_that_can_not_be_read_is_refused(given: str, complaint: str) -> None:
    said = complaints(
        "security.plugin=lock",
        'network.listeners=[{name = "CONTROLLER", bind = "127.0.0.1:0"}]',
        f'config."listener.security.protocol.map"="{given}"',
        **PLUGINS_BY_NAME,
    )
    assert len(said) == 1
    assert 'config."listener.security.protocol.map"' in said[0]
    assert complaint in said[0]


def test_a_broker_says_by_which_protocol_it_dials_controllers(tmp_path: Path) -> None:
    """Without an entry it would dial a listener of TLS in clear, and never join."""

    def overrides(protocols: str) -> list[str]:
        return [
            "security.plugin=lock",
            "node.id=2",
            'node.roles=["broker"]',
            'network.listeners=[{name="INSIDE", kind="broker", bind="127.0.0.1:0"}]',
            'config."controller.quorum.voters"="1@localhost:9093"',
            f'config."listener.security.protocol.map"="{protocols}"',
        ]

    [said] = complaints(*overrides("INSIDE:SSL"), **PLUGINS_BY_NAME)
    assert "found nothing for the listener CONTROLLER" in said
    assert plan_of(*overrides("INSIDE:SSL,CONTROLLER:SSL"), data_dir=tmp_path, **PLUGINS_BY_NAME).listeners


@pytest.mark.parametrize(
    "key",
    [
        "listener.name.plaintxt.ssl.key.password",
        "listener.name.PLAINTEXT.ssl.key.password",
        "listener.name.plaintext.delegation.token.secret.key",
    ],
)
def test_a_refusal_never_shows_a_password(key: str) -> None:
    [said] = complaints("security.plugin=lock", f'config."{key}"="pw-123"', **PLUGINS_BY_NAME)
    assert key in said
    assert "pw-123" not in said


def test_nothing_of_security_is_taken_without_its_plug_in() -> None:
    said = complaints("security.authorizer=judge", **PLUGINS_BY_NAME)
    assert any("security.authorizer" in line and "security.plugin" in line for line in said)
    said = complaints("security.plugin=lock", "security.plugin_options.x.a=1", **PLUGINS_BY_NAME)
    assert any("security.plugin_options.x" in line for line in said)


def test_a_plan_names_the_protocol_of_a_listener_and_that_tls_copies_reads() -> None:
    row = _listener_row(
        Listener(name="OUTSIDE", kind="broker", host="127.0.0.1", port=9093, security_protocol="SSL")
    )
    assert "SSL: TLS, for which reads are copied" in row[-1]
    plain = _listener_row(Listener(name="PLAINTEXT", kind="broker", host="127.0.0.1", port=9092))
    assert plain[-1] == ""


def test_security_is_told_of_keys_that_change_at_run_time(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        security = cast("Any", node.composition.security)
        changed = BrokerConfig({"listener.name.plaintext.ssl.client.auth": "required"})
        node._config_changed(changed)
        assert security.configs == [changed]

    plan = plan_of("security.plugin=lock", data_dir=tmp_path, **PLUGINS_BY_NAME)
    with_node(plan, body)
