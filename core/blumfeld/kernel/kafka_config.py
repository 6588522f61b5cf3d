"""``[config]`` and what the manifest's own sections say, under Kafka's names: one configuration for DescribeConfigs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.kernel.manifest import Manifest
from blumfeld.kernel.manifest_error import ManifestError, Problem, shown
from blumfeld.spi.config import BROKER_CONFIGS, BrokerConfig, ConfigError, UnknownConfigError, parse
from blumfeld.spi.transport import Limits, Listener


def broker_config(manifest: Manifest, listeners: Sequence[Listener], source: str) -> BrokerConfig:
    """The broker's static configuration.

    :raises ManifestError: every key of ``[config]`` that Kafka doesn't have, or whose value it refuses
    """
    problems = []
    for key, value in manifest.config.items():
        try:
            parse(BROKER_CONFIGS.find(key), value)
        except UnknownConfigError as error:
            allowed = "Kafka's broker keys"
            if error.close:
                allowed += f" (did you mean {' or '.join(error.close)}?)"
            problems.append(Problem(f'config."{key}"', "an unknown key", allowed))
        except ConfigError as error:
            problems.append(Problem(f'config."{key}"', shown(error.found), error.allowed))
    if problems:
        raise ManifestError(source, problems)
    return BrokerConfig({**manifest.config, **_of_sections(manifest, listeners)})


def _of_sections(manifest: Manifest, listeners: Sequence[Listener]) -> dict[str, Any]:
    node = manifest.node
    keys: dict[str, Any] = {
        "node.id": node.id,
        "broker.id": node.id,
        "process.roles": list(node.roles),
        "log.dirs": list(node.directories),
        "listeners": [_address(one, one.host, one.port) for one in listeners],
        "advertised.listeners": [
            _address(one, one.advertised_host or one.host, one.advertised_port or one.port)
            for one in listeners
            if one.kind == "broker"
        ],
    }
    controllers = [one.name for one in listeners if one.kind == "controller"]
    if controllers:
        keys["controller.listener.names"] = controllers
    inter_broker = next((one.name for one in listeners if one.inter_broker), None)
    if inter_broker is not None:
        keys["inter.broker.listener.name"] = inter_broker
    if node.rack is not None:
        keys["broker.rack"] = node.rack
    return keys


def _address(listener: Listener, host: str, port: int) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return f"{listener.name}://{bracketed}:{port}"


def transport_limits(config: BrokerConfig) -> Limits:
    """The limits of every listener, by Kafka's names."""
    return Limits(
        frame_bytes_max=config.int("socket.request.max.bytes"),
        idle_ms_max=config.int("connections.max.idle.ms"),
        connections_max=config.int("max.connections"),
        connections_per_ip_max=config.int("max.connections.per.ip"),
        listen_backlog=config.int("socket.listen.backlog.size"),
    )
