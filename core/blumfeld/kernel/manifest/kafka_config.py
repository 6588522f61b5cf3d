"""The broker's configuration: ``[config]`` and the manifest's own sections, all under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from blumfeld.config.definitions import LISTENER_PREFIX
from blumfeld.config.ip_overrides import ip_overrides
from blumfeld.config.values import (
    BROKER_CONFIGS,
    BrokerConfig,
    ConfigDef,
    ConfigError,
    Given,
    UnknownConfigError,
    parse,
)
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.kernel.runtime.machine_memory import buffer_bytes_max, memory_bytes
from blumfeld.plugging.errors import Faults, Problem, shown
from blumfeld.spi.transport import Limits, Listener

PROTOCOL_MAP = "listener.security.protocol.map"
_SECURE_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PLAINTEXT_ONLY = "this build's listeners speak PLAINTEXT only"
_PLACES = {
    "super.users": "security.options.acls.super_users (docs/security.md)",
    "allow.everyone.if.no.acl.found": "security.options.acls.allow_everyone_if_no_acl_found (docs/security.md)",
    "zookeeper.connect": 'consensus.options.connect, with consensus.plugin = "consensus_zk_compat"',
}
"""What a Kafka broker's file holds beside Kafka's table, because a class of it reads it: key → its place here."""


def broker_config(
    manifest: Manifest,
    listeners: Sequence[Listener],
    faults: Faults,
    abilities: Set[str] = frozenset(),
) -> BrokerConfig:
    """Returns the broker's static configuration, without keys that can't be used.

    :param abilities: what the build's plug-ins can do (``BrokerConfig.abilities``)
    :param faults: gets a problem for each key of ``[config]`` that Kafka doesn't have, whose value Kafka refuses, or
        that promises something that this build can't do; and for each listener that should speak another protocol
        than PLAINTEXT
    """
    if "secures" not in abilities:
        faults.add(_protocol_problems(manifest, listeners))
    listeners_known = faults.sound("network.listeners")
    usable: dict[str, Any] = {}
    for key, value in manifest.config.items():
        path = f'config."{key}"'
        if isinstance(value, dict) or not faults.sound(path):
            continue  # told already
        try:
            defn = BROKER_CONFIGS.find(key)
            parse(defn, value)
            _check_effect(defn, key, value, listeners if listeners_known else None, abilities)
            usable[key] = value
        except UnknownConfigError as error:
            place = _PLACES.get(key)
            faults.add([Problem(path, error.said if place is None else f"its place here is {place}")])
        except ConfigError as error:
            faults.add([Problem(path, shown(error.found), error.allowed)])
    if faults.sound("node", "network"):
        usable |= _of_sections(manifest, listeners, usable)
    if "tiers" in abilities:
        usable["remote.log.storage.system.enable"] = True
    config = BrokerConfig(usable, abilities=abilities - {"tiers"})
    faults.add(_limit_problems(config, faults))
    return config


def _limit_problems(config: BrokerConfig, faults: Faults) -> Iterator[Problem]:
    """Yields problems of limits, by Kafka's rules: the bound on request memory must hold the largest request, and at
    least one address must be able to connect."""
    overrides = "max.connections.per.ip.overrides"
    if config.int("max.connections.per.ip") == 0 and not config.get(overrides) and _known(faults, overrides):
        yield Problem(
            'config."max.connections.per.ip"',
            "0",
            "1 or more, unless max.connections.per.ip.overrides is set",
        )
    bound, frame = config.int("queued.max.request.bytes"), config.int("socket.request.max.bytes")
    if 0 < bound < frame and _known(faults, "socket.request.max.bytes"):
        allowed = f"-1, or at least socket.request.max.bytes, which is {frame}"
        yield Problem('config."queued.max.request.bytes"', shown(bound), allowed)


def _known(faults: Faults, key: str) -> bool:
    return faults.sound(f'config."{key}"')


def _check_effect(
    defn: ConfigDef, key: str, value: Given, listeners: Sequence[Listener] | None, abilities: Set[str]
) -> None:
    from blumfeld.config.effects import (
        check_effect,
        check_listener_key,
    )  # imported only if there is a [config]

    check_effect(defn, value, abilities)
    check_listener_key(defn, key, value, abilities)
    if listeners is None:
        return
    prefixes = [f"{LISTENER_PREFIX}{listener.name.lower()}." for listener in listeners]
    if key != defn.name and not any(key == prefix + defn.name for prefix in prefixes):
        allowed = "the prefix of a listener of this node: " + " or ".join(prefixes)
        raise ConfigError(key, defn.told(value), allowed)


def _protocol_problems(manifest: Manifest, listeners: Sequence[Listener]) -> Iterator[Problem]:
    """Yields a problem for each listener whose name or mapping is not PLAINTEXT. This build has nothing else, so such a
    listener would look protected and be open."""
    for nth, listener in enumerate(listeners):
        if listener.name in _SECURE_PROTOCOLS:
            wrong_name = f"{shown(listener.name)}, which names a security protocol"
            yield Problem(f"network.listeners[{nth}].name", wrong_name, f"another name: {_PLAINTEXT_ONLY}")
    given = manifest.config.get(PROTOCOL_MAP)
    if isinstance(given, str):
        from blumfeld.kernel.manifest.security_protocols import (
            only_plaintext,  # not for the default node's start
        )

        yield from only_plaintext(given, {listener.name for listener in listeners}, _PLAINTEXT_ONLY)


def keys_without_effect(manifest: Manifest, abilities: Set[str]) -> list[str]:
    """Returns the keys of ``[config]`` that are accepted and have no effect.

    :param abilities: as of :func:`broker_config`
    """
    if not manifest.config:
        return []
    from blumfeld.config.effects import WITHOUT, effect_of

    effects = {key: effect_of(BROKER_CONFIGS.find(key), abilities).effect for key in manifest.config}
    return [key for key, effect in effects.items() if effect == WITHOUT]


def _of_sections(
    manifest: Manifest, listeners: Sequence[Listener], given: Mapping[str, Any]
) -> dict[str, Any]:
    node = manifest.node
    keys: dict[str, Any] = {
        "node.id": node.id,
        "broker.id": node.id,
        "process.roles": list(node.roles),
        "log.dirs": list(node.directories),
        "listeners": [_address(listener, listener.host, listener.port) for listener in listeners],
    }
    advertised = [
        _address(
            listener, listener.advertised_host or listener.host, listener.advertised_port or listener.port
        )
        for listener in listeners
        if listener.kind == "broker"
    ]
    if advertised:  # Kafka takes no empty list; a controller alone advertises nothing to clients
        keys["advertised.listeners"] = advertised
    controllers = [listener.name for listener in listeners if listener.kind == "controller"]
    if controllers:
        keys["controller.listener.names"] = controllers
    elif "controller" not in node.roles:  # a broker finds the controllers' endpoint by this name
        keys["controller.listener.names"] = given.get("controller.listener.names", ["CONTROLLER"])
    inter_broker = next((listener.name for listener in listeners if listener.inter_broker), None)
    if inter_broker is not None:
        keys["inter.broker.listener.name"] = inter_broker
    if node.rack is not None:
        keys["broker.rack"] = node.rack
    return keys


def _address(listener: Listener, host: str, port: int) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return f"{listener.name}://{bracketed}:{port}"


def transport_limits(
    config: BrokerConfig, listener: str, answer_memory_bytes_max: int | None = None, memory: int | None = None
) -> Limits:
    """Returns the limits of a listener, from Kafka's keys.

    :param answer_memory_bytes_max: the manifest's ``network.answer_memory_bytes_max``
    :param memory: memory of the machine in bytes; ``None`` asks the system
    """
    own = f"{LISTENER_PREFIX}{listener.lower()}."
    frame_bytes_max = config.int("socket.request.max.bytes")
    share = buffer_bytes_max(frame_bytes_max, memory_bytes() if memory is None else memory)
    requests = config.int("queued.max.request.bytes")
    return Limits(
        frame_bytes_max=frame_bytes_max,
        request_memory_bytes_max=requests if requests > 0 else share,
        answer_memory_bytes_max=share if answer_memory_bytes_max is None else answer_memory_bytes_max,
        idle_ms_max=config.int("connections.max.idle.ms"),
        connections_max=config.int("max.connections"),
        listener_connections_max=config.int(f"{own}max.connections"),
        connections_per_ip_max=config.int("max.connections.per.ip"),
        connections_per_ip_overrides=ip_overrides(config.get("max.connections.per.ip.overrides")),
        connections_per_s_max=config.int("max.connection.creation.rate"),
        listener_connections_per_s_max=config.int(f"{own}max.connection.creation.rate"),
        listen_backlog=config.int("socket.listen.backlog.size"),
    )
