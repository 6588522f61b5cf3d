"""A manifest for a consensus without a metadata quorum: settings that only a quorum uses are left out, and reported."""

from __future__ import annotations

import msgspec

from blumfeld.config.quorum import BOOTSTRAP_SERVERS, VOTERS
from blumfeld.kernel.manifest.sections import Manifest, listener_sections
from blumfeld.plugging.errors import Faults, Problem

CONTROLLER_KEYS = ("controller.quorum.", "controller.listener.names")
"""Beginnings of the keys in ``[config]`` that name or tune a quorum."""


def without_quorum(manifest: Manifest, faults: Faults) -> tuple[Manifest, tuple[str, ...]]:
    """Returns the manifest without the role ``controller``, listeners of that kind and keys of a quorum; and the places
    where they stood, without the default roles and without the settings that ``nodes = N`` adds.

    :param faults: gets a problem if the node would have no role left
    """
    node, left_out = manifest.node, []
    if node.roles == ("controller",):
        allowed = f'the role broker: "{manifest.consensus.plugin}" has no controllers beside brokers'
        faults.add([Problem("node.roles", "controller alone", allowed)])
    derived = BOOTSTRAP_SERVERS in manifest.config and VOTERS in manifest.config
    listeners = manifest.network.listeners
    if listeners is not None:
        for nth, section in enumerate(listeners):
            if section.kind == "controller" and not derived:
                left_out.append(f"network.listeners[{nth}] ({section.name})")
        listeners = tuple(section for section in listener_sections(manifest) if section.kind != "controller")
    keys = [key for key in manifest.config if key.startswith(CONTROLLER_KEYS)]
    if not derived:
        left_out += [f'config."{key}"' for key in keys]
    return msgspec.structs.replace(
        manifest,
        node=msgspec.structs.replace(node, roles=("broker",)),
        network=msgspec.structs.replace(manifest.network, listeners=listeners),
        config={key: value for key, value in manifest.config.items() if key not in keys},
    ), tuple(left_out)
