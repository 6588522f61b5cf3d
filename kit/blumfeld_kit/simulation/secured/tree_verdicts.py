"""Holds what nodes on a ZooKeeper serve and refuse against their own images, and these against the tree.

A tree has no offset that tells what a node has read of it. So a verdict is right if it follows from the ACLs that the
node's image had while it had the request. In the end each image must have those of the tree.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from blumfeld.spi.cluster import ImageDelta
from blumfeld.spi.zookeeper import Create, Delete, Operation, Set
from blumfeld.wire.acl_operations import OPERATIONS
from blumfeld_kit.simulation.cluster.watch import metadata_of
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.secured.rights import (
    ALLOW,
    CLUSTER,
    DENY,
    GROUP,
    LITERAL,
    NONE,
    PREFIXED,
    TOPIC,
    Rule,
    State,
    without,
)
from blumfeld_kit.simulation.secured.verdicts import Moment, Verdicts, state_of
from blumfeld_kit.simulation.zookeeper.tree_oracle import TreeOracle

ACLS, PREFIXED_ACLS, USERS = "/kafka-acl/", "/kafka-acl-extended/prefixed/", "/config/users/"
TOKENS = "/delegation_token/tokens/"
TYPES = {"Topic": TOPIC, "Group": GROUP, "Cluster": CLUSTER}
PERMISSIONS = {"Allow": ALLOW, "Deny": DENY}
MECHANISM = "SCRAM-SHA-256"
_read = msgspec.json.Decoder().decode


class TreeVerdicts(Verdicts):
    """The judge of a run on a ZooKeeper."""

    def __init__(self, tree: TreeOracle, counts: Counter[str]) -> None:
        self.counts = counts
        self._states = [NONE]
        """The tree's, by its writes."""
        self._images: dict[tuple[str, int], list[State]] = {}
        """(address, process) → the states of its image."""
        tree.on_write = self._written

    @property
    def newest(self) -> State | None:
        """As ``Verdicts.newest``."""
        return self._states[-1]

    def now(self, machine: Machine) -> Moment:
        """As ``Verdicts.now``. The place of a moment is the number of states before it."""
        return Moment(machine, machine.incarnations, len(self._image(machine)) - 1)

    def _image(self, machine: Machine) -> list[State]:
        """Return the states of a process' image, and follow it from the first time on."""
        key = (machine.address, machine.incarnations)
        metadata = metadata_of(machine)
        if key not in self._images and metadata is not None:
            states = self._images[key] = [state_of(metadata.image)]
            metadata.subscribe(partial(self._stepped, states))
        return self._images.get(key, [NONE])

    def _stepped(self, states: list[State], image: Any, _: ImageDelta) -> None:
        state = state_of(image)
        if not state.equals(states[-1]):
            states.append(state)

    def shown(self, since: Moment) -> Sequence[State]:
        """As ``Verdicts.shown``."""
        states = self._images.get((since.machine.address, since.process), [])
        return states[max(since.offset, 0) :]

    def change_begins(self, machine: Machine) -> Moment:
        """As ``Verdicts.change_begins``."""
        return Moment(machine, machine.incarnations, len(self._states) - 1)

    def changed(self, since: Moment) -> Sequence[State]:
        """As ``Verdicts.changed``."""
        return self._states[since.offset :]

    def has_newest(self, machine: Machine) -> bool:
        """As ``Verdicts.has_newest``."""
        metadata = metadata_of(machine)
        return metadata is not None and state_of(metadata.image).equals(self._states[-1])

    # The tree

    def _written(self, operation: Operation) -> None:
        path = operation.path
        if not isinstance(operation, Create | Set | Delete):
            return
        data = b"" if isinstance(operation, Delete) else operation.data
        state = self._states[-1]
        if path.startswith(USERS):
            self._states.append(state._replace(keys=_with_user(state, path[len(USERS) :], data)))
            return
        if path.startswith(TOKENS):
            token_id = path[len(TOKENS) :]
            tokens = without(state.tokens, token_id)
            if data:
                tokens[token_id] = _read(data)["owner"].replace("%3A", ":")
            self._states.append(state._replace(tokens=tokens))
            return
        for above, pattern in ((ACLS, LITERAL), (PREFIXED_ACLS, PREFIXED)):
            kind, slash, name = path.removeprefix(above).partition("/")
            if path.startswith(above) and slash:
                self._states.append(
                    state._replace(rules=_with_resource(state, TYPES[kind], name, pattern, data))
                )


def _with_user(state: State, user: str, data: bytes) -> dict[str, bytes]:
    keys = without(state.keys, user)
    text = _read(data)["config"].get(MECHANISM) if data else None
    if text:
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        keys[user] = base64.b64decode(parts["stored_key"])
    return keys


def _with_resource(state: State, kind: int, name: str, pattern: int, data: bytes) -> dict[bytes, Rule]:
    resource = (kind, name, pattern)
    rules = {key: rule for key, rule in state.rules.items() if rule[:3] != resource}
    for number, entry in enumerate(_read(data)["acls"] if data else ()):
        operation, permission = OPERATIONS[entry["operation"]], PERMISSIONS[entry["permissionType"]]
        rule = Rule(*resource, entry["principal"], entry["host"], operation, permission)
        rules[f"{resource}/{number}".encode()] = rule
    return rules
