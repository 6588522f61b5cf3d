"""A manifest for a consensus without a metadata quorum: settings that only a quorum uses are left out, and reported."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from blumfeld.kernel.manifest.sections import Manifest, listener_sections
from blumfeld.plugging.errors import Faults, Problem

CONTROLLER_KEYS = ("controller.quorum.", "controller.listener.names")
"""Beginnings of the keys in ``[config]`` that name or tune a quorum."""


def without_quorum(manifest: Manifest, written: Manifest, faults: Faults) -> tuple[Manifest, tuple[str, ...]]:
    """Returns the manifest without the role ``controller``, listeners of that kind and keys of a quorum; and the places
    where somebody has written them.

    :param written: the manifest as it was read. Settings that ``nodes = N`` adds don't stand in it
    :param faults: gets a problem if the node would have no role left
    """
    node = manifest.node
    if node.roles == ("controller",):
        allowed = f'the role broker: "{manifest.consensus.plugin}" has no controllers beside brokers'
        faults.add([Problem("node.roles", "controller alone", allowed)])
    listeners = manifest.network.listeners
    if listeners is not None:
        listeners = tuple(section for section in listener_sections(manifest) if section.kind != "controller")
    config = {key: value for key, value in manifest.config.items() if not key.startswith(CONTROLLER_KEYS)}
    return msgspec.structs.replace(
        manifest,
        node=msgspec.structs.replace(node, roles=("broker",)),
        network=msgspec.structs.replace(manifest.network, listeners=listeners),
        config=config,
    ), tuple(_places(written))


def _places(written: Manifest) -> Iterator[str]:
    for nth, section in enumerate(written.network.listeners or ()):
        if section.kind == "controller":
            yield f"network.listeners[{nth}] ({section.name})"
    for key in written.config:
        if key.startswith(CONTROLLER_KEYS):
            yield f'config."{key}"'
