"""Makes the classes of tests for one plug-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.plugging.registry import Registry
from blumfeld.spi.runtime import Runtime
from blumfeld_kit import AssignorContract, ObserverContract, StorageContract, TransportContract
from blumfeld_kit.fakes import FakeRuntime

DATA_DIR = "/data"
NO_KIT = {
    "authenticators": "the kit must have a client that logs in by the mechanism",
    "authorizer": "the kit must know how it is told to allow and to revoke",
    "consensus": "its kit is a cluster that the plug-in's own kit must declare",
    "groups": "the kit must know what a group of its type lives through",
    "migration": "no contract kit tries a migration",
    "quotas": "the kit must know how a client gets a limit",
    "replication": "no contract kit tries a replication",
    "security": "no contract kit tries a security plug-in as a whole",
    "sink": "no contract kit tries an archive",
    "stores": "the kit must know an address at which it may store",
    "transactions": "no contract kit tries transactions",
}
"""Role → why a plug-in of it has no kit, unless it brings one."""


class NoKit(Exception):  # noqa: N818 - reads as what there is
    """There is no kit for the plug-in; the message says why."""


class _Silent:
    """A log of events that keeps none."""

    def debug(self, event: str, **values: Any) -> None:
        """Take no notice."""

    info = warning = error = debug


def composition_of(runtime: Runtime, options: msgspec.Struct) -> Any:
    """Returns what a making hook of a plug-in is handed: the composition of a single node without parts."""
    return SimpleNamespace(
        runtime=runtime,
        config=BrokerConfig(),
        node_id=1,
        roles=("broker", "controller"),
        data_dir=DATA_DIR,
        data_dirs=(DATA_DIR,),
        cluster_id="AAAAAAAAAAAAAAAAAAAAAA",
        incarnation_id=bytes(16),
        single_node=True,
        features=(),
        assignors=(),
        image_sections=(),
        controller_commands=(),
        security=None,
        authenticators={},
        object_stores={},
        options=options,
        listeners=(),
        log=lambda name: _Silent(),
    )


def kits_of(name: str, role: str, options: Mapping[str, Any]) -> dict[str, type]:
    """Returns the classes of tests for an installed plug-in, by name.

    They claim nothing for it: that a storage survives a restart is tried by a kit of the plug-in's own.

    :param options: as the manifest gives them
    :raises NoKit: none can be made
    :raises ManifestError: the plug-in isn't installed, or doesn't fill the role
    """
    plugin_class = Registry().load(name, role, "a kit", name)
    decoded = msgspec.convert(options, plugin_class.options_class)

    def made(hook: str, runtime: Runtime) -> Any:
        return getattr(plugin_class(), hook)(composition=composition_of(runtime, decoded))

    if role == "storage":
        _try(made, "blumfeld_make_storage")
        return {"TestStorage": _method(StorageContract, "make_storage", made, "blumfeld_make_storage")}
    if role == "observers":
        _try(made, "blumfeld_make_observer")
        return {"TestObserver": _method(ObserverContract, "make_observer", made, "blumfeld_make_observer")}
    if role == "network":
        return {"TestTransport": _transport(plugin_class, made)}
    if role == "assignors":
        return {f"TestAssignor{nth}": _assignor(plugin_class, nth) for nth in range(_assignors(plugin_class))}
    raise NoKit(NO_KIT.get(role, f"no contract kit tries the role {role}"))


def _try(made: Callable[[str, Runtime], Any], hook: str) -> None:
    """Make a part once. A storage that wraps another needs more than a runtime."""
    try:
        made(hook, FakeRuntime(1))
    except AttributeError as error:
        if not isinstance(error.obj, SimpleNamespace):  # a defect of the plug-in, no part that a kit lacks
            raise
        raise NoKit(f"it needs more of a node than a kit has: {error}") from None


def _method(contract: type, method: str, made: Callable[[str, Runtime], Any], hook: str) -> type:
    return type(contract.__name__, (contract,), {method: lambda _, runtime: made(hook, runtime)})


def _transport(plugin_class: Any, made: Callable[[str, Runtime], Any]) -> type:
    members: dict[str, Any] = {
        "make_transport": pytest.fixture(
            lambda self: lambda runtime: made("blumfeld_make_transport", runtime), name="make_transport"
        )
    }
    factory = getattr(plugin_class, "blumfeld_loop_factory", None)
    loop = factory(plugin_class()) if factory is not None else None
    if loop is not None:
        members["loop_factory"] = pytest.fixture(lambda self: loop, name="loop_factory")
    return type("TransportKit", (TransportContract,), members)


def _assignors(plugin_class: Any) -> int:
    return len(plugin_class().blumfeld_assignors())


def _assignor(plugin_class: Any, nth: int) -> type:
    members = {"make_assignor": lambda _: plugin_class().blumfeld_assignors()[nth]}
    return type("AssignorKit", (AssignorContract,), members)
