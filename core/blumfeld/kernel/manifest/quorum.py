"""The rules of the keys that name the metadata quorum, beside the node's id, its roles and its listeners.

Kafka checks the same at its start (``KafkaConfig.validateValues``). One rule is ours: a combined node without either
key is the only voter of a quorum of its own, so that a manifest of one node needs no key at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from blumfeld.config.definitions import ConfigError, parse
from blumfeld.config.quorum import (
    BOOTSTRAP_SERVERS,
    VOTERS,
    VoterAddress,
    quorum_bootstrap_servers,
    quorum_voters,
)
from blumfeld.config.values import BROKER_CONFIGS
from blumfeld.kernel.manifest.sections import ListenerSection, Manifest
from blumfeld.plugging.errors import Problem, shown

CONTROLLER_LISTENERS = "controller.listener.names"
AUTO_JOIN = "controller.quorum.auto.join.enable"
PLACES = tuple(f'config."{key}"' for key in (VOTERS, BOOTSTRAP_SERVERS, CONTROLLER_LISTENERS, AUTO_JOIN))
"""Places of the manifest that :func:`quorum_problems` looks at, beside the node's and the listeners'."""


def names_other_nodes(node_id: int, voters: tuple[str, ...], bootstrap_servers: tuple[str, ...]) -> bool:
    """Whether the quorum's keys name a node beside this one. Both keys are valid."""
    return bool(bootstrap_servers) or any(voter.voter_id != node_id for voter in quorum_voters(voters))


def quorum_problems(manifest: Manifest, sections: tuple[ListenerSection, ...]) -> Iterator[Problem]:
    """Yields what is wrong with the quorum's keys. A value of a wrong type is left to the check of ``[config]``."""
    try:
        voters = quorum_voters(_list(manifest, VOTERS))
        servers = quorum_bootstrap_servers(_list(manifest, BOOTSTRAP_SERVERS))
    except ConfigError as error:
        yield Problem(_path(error.key), str(error.found), error.allowed)
        return
    if "controller" in manifest.node.roles:
        yield from _controller_problems(manifest, sections, voters, others=bool(servers))
    else:
        yield from _broker_problems(manifest, sections, voters, has_servers=bool(servers))


def _controller_problems(
    manifest: Manifest,
    sections: tuple[ListenerSection, ...],
    voters: tuple[VoterAddress, ...],
    *,
    others: bool,
) -> Iterator[Problem]:
    node_id = manifest.node.id
    ids = [voter.voter_id for voter in voters]
    if voters and node_id not in ids:
        allowed = f"node {node_id} (node.id) among them: the node is a controller"
        yield Problem(_path(VOTERS), f"the voters {_joined(ids)}", allowed)
    reached = [section for section in sections if section.kind == "controller"]
    if (others or len(voters) > 1) and not reached:
        allowed = "one at least: the other nodes of the quorum reach this one by it"
        yield Problem("network.listeners", "no listener of kind controller", allowed)
    elif len(voters) > 1 and all(_is_any_port(section) for section in reached):
        at = f"network.listeners[{sections.index(reached[0])}].bind"
        port = next((f" ({voter.port} in {VOTERS})" for voter in voters if voter.voter_id == node_id), "")
        yield Problem(at, shown(reached[0].bind), f"the port that the other voters are told{port}")


def _broker_problems(
    manifest: Manifest,
    sections: tuple[ListenerSection, ...],
    voters: tuple[VoterAddress, ...],
    *,
    has_servers: bool,
) -> Iterator[Problem]:
    node_id = manifest.node.id
    if not voters and not has_servers:
        allowed = (
            f'the controllers in config."{VOTERS}" or config."{BOOTSTRAP_SERVERS}", or the role controller'
        )
        yield Problem("node.roles", "a broker without controllers", allowed)
    if any(voter.voter_id == node_id for voter in voters):
        own_voter = f"voter {node_id}, which is node.id of this broker"
        allowed = "ids of controllers only; or give the node the role controller"
        yield Problem(_path(VOTERS), own_voter, allowed)
    if _value(manifest, AUTO_JOIN) is True:
        yield Problem(_path(AUTO_JOIN), "true, on a node that is a broker alone", "only on a controller")
    yield from _name_problems(manifest, sections)


def _name_problems(manifest: Manifest, sections: tuple[ListenerSection, ...]) -> Iterator[Problem]:
    own = [section.name for section in sections]
    for name in _list(manifest, CONTROLLER_LISTENERS):
        if name in own:
            own_listener = f"{name}, a listener of this broker"
            allowed = "the name of a listener that only controllers have"
            yield Problem(_path(CONTROLLER_LISTENERS), own_listener, allowed)


def _is_any_port(section: ListenerSection) -> bool:
    return section.bind.endswith(":0") and section.advertised is None


def _list(manifest: Manifest, key: str) -> tuple[str, ...]:
    value = _value(manifest, key)
    return value if isinstance(value, tuple) else ()


def _value(manifest: Manifest, key: str) -> Any:
    given = manifest.config.get(key)
    if given is None:
        return None
    try:
        return parse(BROKER_CONFIGS[key], given)
    except ConfigError:
        return None  # the check of [config] names it


def _joined(ids: list[int]) -> str:
    return ", ".join(map(str, ids))


def _path(key: str) -> str:
    return f'config."{key}"'
