"""Parts that only note what was done to them, and plug-ins that make them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar, cast

import msgspec
import pytest

from blumfeld.broker.serving.counts import NodeMetrics
from blumfeld.kernel.composing.composition import NodeComposition
from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.describing import describe
from blumfeld.kernel.description.document import PlanDocument
from blumfeld.kernel.manifest.sections import read_manifest
from blumfeld.kernel.watching.event_log import EventLogs, Render
from blumfeld.plugging.errors import Faults, ManifestError
from blumfeld.plugging.registry import Registry
from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.groups import GroupProtocol
from blumfeld.spi.hooks import Composition, CompositionRefused, Feature, Metric, NoOptions, hookimpl
from blumfeld.spi.replication import Replication
from blumfeld.spi.security import Authorizer
from blumfeld.spi.storage import LogStorage, PartitionLog, SegmentedLog, SeveralDirectories
from blumfeld.spi.tiering import TieringStorage
from blumfeld.spi.transport import Listener, Transport
from blumfeld.wire.messages.create_topics import CreateTopicsRequest
from tests.metadata.acl_section import AclSection, CreateAcls

FREE_PORT = 45_454


class Journal:
    """What happened, in order; and what shall fail."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failing: dict[str, Exception] = {}

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if line in self.failing:
            raise self.failing[line]


JOURNAL = Journal()
"""Plug-ins are made without arguments: they find the journal of the running test here."""


Kind = TypeVar("Kind", bound="type[Any]")


def with_the_rest_of(protocol: type[Any]) -> Callable[[Kind], Kind]:
    """A decorator that gives a fake every member of a Protocol that it doesn't have: nobody uses them here."""

    def unused(name: str, signature: inspect.Signature | None, awaited: bool) -> Any:
        if signature is None:
            return None

        def never(*_: Any, **__: Any) -> Any:
            raise AssertionError(name)

        async def never_awaited(*_: Any, **__: Any) -> Any:
            raise AssertionError(name)

        made: Any = never_awaited if awaited else never
        made.__signature__ = signature
        return made

    def fill(kind: Kind) -> Kind:
        for base in protocol.__mro__:
            if not getattr(base, "_is_protocol", False) or base is Protocol:
                continue
            for name in (*inspect.get_annotations(base), *vars(base)):
                member = vars(base).get(name)
                if not name.startswith("_") and not hasattr(kind, name):
                    signature = inspect.signature(member) if inspect.isfunction(member) else None
                    setattr(kind, name, unused(name, signature, inspect.iscoroutinefunction(member)))
        return kind

    return fill


class FakePart:
    """Any part: notes start and stop."""

    def __init__(self, name: str, options: Any = None) -> None:
        self.name = name
        self.options = options

    async def start(self, *arguments: Any) -> None:
        JOURNAL(f"{self.name} started")

    async def stop(self, *arguments: Any) -> None:
        JOURNAL(f"{self.name} stopped")

    compacts = False

    def promise(self) -> str:
        return f"what {self.name} promises"


@with_the_rest_of(SegmentedLog)
class FakeLog:
    """What a fake storage would open."""


@with_the_rest_of(PartitionLog)
class FakeLogInOne:
    """The same without segments."""


@with_the_rest_of(LogStorage)
class FakeStorage(FakePart):
    """Opens nothing."""

    log_class: type[Any] = FakeLog


@with_the_rest_of(SeveralDirectories)
class FakeStorages(FakeStorage):
    """In several directories."""


@with_the_rest_of(TieringStorage)
class FakeTiering(FakeStorage):
    """With a part elsewhere."""


@with_the_rest_of(ClusterMetadata)
class FakeConsensus(FakePart):
    """Decides nothing."""

    async def caught_up(self) -> None:
        JOURNAL("consensus caught up")

    async def resign(self) -> None:
        JOURNAL("controller stopped")


class FakeTree(FakeConsensus):
    """Keeps the cluster's id itself."""

    async def agreed_cluster_id(self, own: str | None, *, is_formatted: bool) -> str:
        assert not is_formatted
        JOURNAL(f"consensus agreed, {own} here")
        return "of-the-tree"


@with_the_rest_of(Replication)
class FakeReplication(FakePart):
    """Replicates nothing."""


@with_the_rest_of(GroupProtocol)
class FakeGroups(FakePart):
    """There is no group."""


@with_the_rest_of(ConsumerAssignor)
class FakeAssignor:
    """Deals nothing."""

    def __init__(self, name: str) -> None:
        self.name = name


@with_the_rest_of(Transport)
class FakeTransport(FakePart):
    """Notes who listens."""

    async def listen(self, listener: Listener, handler: Any, limits: Any, byte_layer: Any = None) -> int:
        JOURNAL(f"{listener.name} listening")
        self.handlers = {**getattr(self, "handlers", {}), listener.name: handler}
        return listener.port or FREE_PORT

    def driver(self) -> str:
        return "paper"

    def limit(self, listener: str, limits: Any) -> None:
        self.limited = {**getattr(self, "limited", {}), listener: limits}


class FakeBroker(FakePart):
    """As ``broker.broker.Broker``, for the kernel."""

    def __init__(
        self, composition: NodeComposition, authorizer: Authorizer | None, metrics: NodeMetrics
    ) -> None:
        super().__init__("broker")
        self.composition = composition
        self.authorizer = authorizer
        self.parking: Any = object()
        self.replicas: Any = object()
        self.local_partitions: Any = object()
        self.peers: Any = FakePart("peers")
        self.membership: Any = SimpleNamespace(broker_epoch=7)
        self.registered: list[ApiHandler] = []
        self.ports_at_start: list[int] = []
        self.refusing_writes = 0

    def register(self, handlers: Sequence[ApiHandler]) -> None:
        self.registered += handlers

    def advertised(self, listener_kind: str) -> dict[int, tuple[int, int]]:
        return {0: (0, 13), 18: (0, 4)} if listener_kind == "broker" else {18: (0, 4)}

    async def group_lags(self, group_id: str | None) -> None:
        return None

    def gauges(self) -> Sequence[Metric]:
        return [Metric("blumfeld_paper", "Sheets", "gauge", lambda: 3.0)]

    def connection_handler(self, listener_kind: str) -> Any:
        return f"handler of {listener_kind}"

    async def listens(self) -> None:
        pass

    def follow_config(self, follower: Any) -> None:
        self.follower = follower

    async def start(self, *arguments: Any) -> None:
        self.ports_at_start = [listener.port for listener in self.composition.listeners]
        await super().start()


class SizeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options with a value that can be wrong."""

    size_bytes: int = 1


class WrapOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a storage that wraps another."""

    local: str = "storage_fake"


class NetFake:
    """A network plug-in."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("network",)

    @hookimpl
    def blumfeld_make_transport(self, composition: Composition) -> Any:
        return FakeTransport("transport")

    @hookimpl
    def blumfeld_features(self) -> Sequence[Feature]:
        return [Feature("paper.version", 0, 1, 1)]

    @hookimpl
    def blumfeld_node_started(self, composition: Composition) -> None:
        JOURNAL("node started")

    @hookimpl
    def blumfeld_node_stopping(self, composition: Composition) -> None:
        JOURNAL("node stopping")


class ReplicationFake:
    """A replication plug-in, which brings an API handler too."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("replication",)

    @hookimpl
    def blumfeld_make_replication(self, composition: Composition) -> Any:
        return FakeReplication("replication")

    @hookimpl
    def blumfeld_api_handlers(self, composition: Composition) -> Sequence[ApiHandler]:
        assert composition.parking is not None
        return [ApiHandler(key=23, min_version=2, max_version=4, handle=_unused, error_response=_unused)]


def _unused(*_: Any) -> Any:
    raise AssertionError


def plugin(role: str, hook: str, make: Callable[[Composition], Any], options: Any = NoOptions) -> type[Any]:
    """A plug-in of one hook, which makes a part."""

    def made(self: object, composition: Composition) -> Any:
        return make(composition)

    return type("Plugin", (), {"options_class": options, "roles": (role,), hook: hookimpl(made)})


def storage(make: Callable[[Composition], Any], options: Any = SizeOptions) -> type[Any]:
    return plugin("storage", "blumfeld_make_storage", make, options)


def stores(brought: object) -> type[Any]:
    return plugin("stores", "blumfeld_object_stores", lambda _: brought, NoOptions)


def bringing(hook: str, *brought: object) -> type[Any]:
    """A plug-in that only brings these."""

    def made(self: object) -> Any:
        return brought

    return type("Plugin", (), {"options_class": NoOptions, "roles": ("assignors",), hook: hookimpl(made)})


def refusing(path: str, mistake: str, allowed: str) -> Callable[[Composition], Any]:
    def refuse(composition: Composition) -> Any:
        raise CompositionRefused(path, mistake, allowed)

    return refuse


def wrapping(composition: Composition) -> Any:
    part: Any = FakeStorage("wrapping storage", composition.options)
    part.inner = composition.local_storage
    return part


class LacksMethods(FakeStorage):
    """A storage that would serve until somebody asks for what it doesn't have."""

    delete_log = None

    async def open_log(self, partition: Any, topic_id: bytes) -> Any:
        raise AssertionError


class LacksLogMethods(FakeStorage):
    class Log(FakeLog):
        max_timestamp = batches = None

    log_class = Log


class HalfOptional(FakeStorage):
    """It has one method of an optional part of the contract, and not the others."""

    def moves(self) -> Sequence[Any]:
        return ()


class CompactsNothing(FakeStorage):
    """It says that it compacts, and has no segments."""

    compacts = True
    log_class = FakeLogInOne


class StorageFake:
    """A storage plug-in."""

    options_class: type[msgspec.Struct] = SizeOptions
    roles: tuple[str, ...] = ("storage",)

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> Any:
        return FakeStorage("storage", composition.options)


class WrongArguments(StorageFake):
    """It asks for an argument that the hook doesn't have."""

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition, budget: int) -> Any:  # type: ignore[override]
        return budget


class Misspelled(StorageFake):
    """Its author meant another hook."""

    @hookimpl
    def blumfeld_node_startet(self, composition: Composition) -> None:
        raise AssertionError


class Unmarked(StorageFake):
    """Its author forgot the mark."""

    def blumfeld_node_started(self, composition: Composition) -> None:
        raise AssertionError


class CreateTopicsAgain(CreateAcls):
    """A command that the core has."""

    request = CreateTopicsRequest


class PLUGINS:
    """By the names that manifests give them."""

    net_fake = NetFake
    storage_fake = StorageFake
    storages_fake = storage(lambda composition: FakeStorages("storage", composition.options))
    tiering_fake = type("TieringFake", (storage(lambda _: FakeTiering("storage")),), {"tiers": True})
    tiers_without_saying_so = storage(lambda _: FakeTiering("storage"))
    says_that_it_tiers = type("SaysThatItTiers", (StorageFake,), {"tiers": True})
    storage_wrap = storage(wrapping, WrapOptions)
    consensus_fake = plugin("consensus", "blumfeld_make_consensus", lambda _: FakeConsensus("consensus"))
    consensus_tree = type(
        "ConsensusTree",
        (plugin("consensus", "blumfeld_make_consensus", lambda _: FakeTree("consensus")),),
        {"quorum": False},
    )
    replication_fake = ReplicationFake
    groups_fake = plugin(
        "groups",
        "blumfeld_make_group_protocol",
        lambda composition: FakeGroups("groups", composition.options),
        SizeOptions,
    )
    compacts_nothing = storage(lambda _: CompactsNothing("storage"))
    half_optional = storage(lambda _: HalfOptional("storage"))
    lacks_log_methods = storage(lambda _: LacksLogMethods("storage"))
    lacks_methods = storage(lambda _: LacksMethods("storage"))
    makes_nothing = type("MakesNothing", (StorageFake,), {"blumfeld_make_storage": None})
    misspelled = Misspelled
    reads_too_early = storage(lambda composition: composition.metadata)
    refuses = storage(refusing("node.data_dirs", "2 directories", "one: it keeps one file"))
    refuses_groups = plugin(
        "groups",
        "blumfeld_make_group_protocol",
        refusing("", "a broker with another protocol", "one protocol"),
    )
    unmarked = Unmarked
    wrong_arguments = WrongArguments
    paper_store = stores({"paper": FakeAssignor})
    more_paper = paper_store
    wants_paper = storage(lambda made: FakeStorage(next(iter(made.object_stores)), made.options))
    no_stores = stores(["paper"])
    no_scheme = stores({"paper://": FakeAssignor})
    no_factory = stores({"paper": "a store"})
    paper_assignors = bringing("blumfeld_assignors", FakeAssignor("paper"), FakeAssignor("scissors"))
    more_assignors = paper_assignors
    paper_acls = bringing("blumfeld_image_sections", AclSection())
    more_acls = paper_acls
    no_section = bringing("blumfeld_image_sections", FakeAssignor("no section"))
    paper_commands = bringing("blumfeld_controller_commands", CreateAcls())
    more_commands = paper_commands
    core_commands = bringing("blumfeld_controller_commands", CreateTopicsAgain())


def registry(**more: str) -> Registry:
    """The fakes under their names, and more by ``name="module:Class"``."""
    places = {name: f"{__name__}:PLUGINS.{name}" for name in vars(PLUGINS) if not name.startswith("_")} | more
    places["groups_kip848"] = "blumfeld_groups_kip848:Plugin"
    places["transactions"] = "blumfeld_transactions:Plugin"
    return Registry(EntryPoint(name, value, "blumfeld.plugins") for name, value in places.items())


MANIFEST = """
[network]
plugin = "net_fake"
[storage]
plugin = "storage_fake"
[consensus]
plugin = "consensus_fake"
[replication]
plugin = "replication_fake"
[groups]
plugins = ["groups_fake"]
[transactions]
plugin = "none"
"""


def silent_logs() -> EventLogs:
    """Logs that nobody reads."""
    return EventLogs(lambda: lambda *_: None)


class Rendered:
    """A render that keeps (level, event, values)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def prepare(self) -> Render:
        return lambda _, level, logger, event, values: self.events.append((level, event, values))


def plan_of(
    *overrides: str,
    text: str = "",
    data_dir: object = None,
    listen: str | None = None,
    faults: Faults | None = None,
    **plugins: str,
) -> Plan:
    """The plan of the fakes' manifest with ``text`` after it, in a file m.toml, and these plug-ins beside the fakes."""
    directory = None if data_dir is None else str(data_dir)
    manifest = read_manifest(
        MANIFEST + text, "m.toml", overrides=overrides, data_dir=directory, listen=listen, faults=faults
    )
    return make_plan(manifest, "m.toml", registry(**plugins), faults)


def described(plan: Plan) -> str:
    """`blumfeld plan` of it."""
    return asyncio.run(describe(plan, cast("Any", FakeBroker))).text


def document(plan: Plan) -> PlanDocument:
    """`blumfeld plan --json` of it."""
    return asyncio.run(describe(plan, cast("Any", FakeBroker))).document


def complaints(*overrides: str, **manifest: Any) -> list[str]:
    """A line for each problem of the manifest that :func:`plan_of` reads."""
    with pytest.raises(ManifestError) as caught:
        plan_of(*overrides, faults=Faults("m.toml"), **manifest)
    return str(caught.value).splitlines()


def assert_refused(complaint: str, *overrides: str, **manifest: Any) -> None:
    """One of the problems begins so."""
    lines = complaints(*overrides, **manifest)
    assert any(line.startswith(f"m.toml: {complaint}") for line in lines), lines
