"""The life of a node, with parts that only note what is done to them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.node import Node, StartError
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.kernel.watching.event_log import EventLogs
from blumfeld.plugging.errors import ManifestError
from blumfeld.spi.transport import Listener
from blumfeld.wire.errors import BrokerError, ErrorCode, PluginContractError
from tests.kernel.fakes import (
    FREE_PORT,
    JOURNAL,
    FakeBroker,
    Rendered,
    complaints,
    described,
    plan_of,
    silent_logs,
)

STARTED = [
    "storage started",
    "consensus started",
    "consensus caught up",
    "replication started",
    "broker started",
    "PLAINTEXT listening",
    "node started",
]


async def never(node: Node) -> None:
    raise AssertionError


def test_a_controller_alone_knows_the_features_of_coordinators_and_coordinates_nothing(
    tmp_path: Path,
) -> None:
    """It decides on UpdateFeatures, also on ``group.version`` and ``transaction.version``, and formatting finalizes the
    levels that its plug-ins bring."""
    plan = plan_of(
        'node.roles=["controller"]',
        'transactions.plugin="transactions"',
        'groups.plugins=["groups_kip848"]',
        data_dir=tmp_path,
    )

    async def body(node: Node) -> None:
        features = [feature.name for feature in node.composition.features]
        assert "transaction.version" in features
        assert "group.version" in features
        assert node.composition.transactions is None
        assert node.composition.group_protocols == ()

    with_node(plan, body)


def with_node(
    plan: Plan,
    body: Callable[[Node], Coroutine[Any, Any, None]],
    logs: EventLogs | None = None,
    broker: type[FakeBroker] = FakeBroker,
) -> None:
    async def main() -> None:
        runtime = AsyncioRuntime(lambda where, error: pytest.fail(f"{where}: {error!r}"))
        await body(Node(plan, runtime, logs or silent_logs(), cast("Any", broker)))
        await runtime.close()

    asyncio.run(main())


async def started_and_stopped(node: Node) -> None:
    await node.start()
    await node.stop()


def test_security_may_stand_in_front_of_each_listener(tmp_path: Path) -> None:
    """Not of all together: one listener may ask for a password, and another one be between brokers."""

    class Guard:
        def connection_handler(self, listener: Listener, broker: Any) -> Any:
            return broker if listener.kind == "controller" else f"guard of {listener.name}, then {broker}"

        def byte_layer(self, listener: Listener) -> None:
            return None

        async def start(self) -> None:
            lives.append("started")

        async def stop(self) -> None:
            lives.append("stopped")

    class GuardedBroker(FakeBroker):
        def __init__(self, composition: Any, *arguments: Any) -> None:
            super().__init__(composition, *arguments)
            composition.security = Guard()

    async def body(node: Node) -> None:
        await node.start()
        handlers = cast("Any", node.composition.transport).handlers
        assert handlers == {
            listener.name: "handler of controller"
            if listener.kind == "controller"
            else f"guard of {listener.name}, then handler of broker"
            for listener in node.composition.listeners
        }
        assert any(text.startswith("guard of ") for text in handlers.values())
        assert lives == ["started"]
        await node.stop()
        assert lives == ["started", "stopped"]

    lives: list[str] = []
    with_node(plan_of(data_dir=tmp_path), body, broker=GuardedBroker)


def test_a_node_that_refuses_writes_is_not_well(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        broker = cast("FakeBroker", node.broker)
        assert node.health().status == "made"
        await node.start()
        assert node.health().status == "ok"
        broker.refusing_writes = 3
        health = node.health()
        assert (health.status, health.partitions_refusing_writes) == ("refusing writes", 3)
        broker.refusing_writes = 0
        assert node.health().status == "ok"
        await node.stop()
        broker.refusing_writes = 3
        assert node.health().status == "stopped"

    with_node(plan_of(data_dir=tmp_path), body)


def test_parts_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        assert JOURNAL.lines == []
        assert node.state == "made"
        await node.start()
        assert node.state == "ok"
        assert JOURNAL.lines == STARTED
        JOURNAL.lines.clear()
        await node.stop()
        await node.stop()
        assert node.state == "stopped"

    with_node(plan_of(data_dir=tmp_path), body)
    assert JOURNAL.lines == [
        "node stopping",
        "broker stopped",
        "controller stopped",
        "peers stopped",
        "transport stopped",
        "replication stopped",
        "consensus stopped",
        "storage stopped",
    ]


def test_controller_listeners_open_first_and_broker_listeners_last(tmp_path: Path) -> None:
    """Voters of a quorum wait for each other, and reach each other through controller listeners."""
    listeners = (
        'network.listeners=[{name="PLAINTEXT", bind="127.0.0.1:9192"},'
        ' {name="CONTROLLER", kind="controller", bind="127.0.0.1:9193"}]'
    )

    with_node(plan_of(listeners, data_dir=tmp_path), started_and_stopped)
    assert JOURNAL.lines[:7] == [
        "storage started",
        "CONTROLLER listening",
        "consensus started",
        "consensus caught up",
        "replication started",
        "broker started",
        "PLAINTEXT listening",
    ]


@pytest.mark.parametrize("failing", STARTED)
def test_a_failed_start_stops_what_had_started(tmp_path: Path, failing: str) -> None:
    """Nothing of it is left. A part that failed is not stopped, because it had not started; but broker and consensus
    may be in the middle of something."""
    JOURNAL.failing[failing] = OSError(errno.EACCES, "Permission denied", "data")

    async def body(node: Node) -> None:
        with pytest.raises(StartError) as caught:
            await node.start()
        part = "network" if "listening" in failing else failing.split()[0]
        if failing == "node started":
            part = "blumfeld_node_started"
        assert caught.value.part == part
        assert "Permission denied" in str(caught.value)
        assert node.state == "stopped"
        await node.stop()

    with_node(plan_of(data_dir=tmp_path), body)
    at = STARTED.index(failing)
    stopped = [
        *(["broker stopped"] if at >= STARTED.index("broker started") else []),
        *(["controller stopped"] if at >= STARTED.index("consensus started") else []),
        *(["peers stopped", "transport stopped"] if at > STARTED.index("storage started") else []),
        *(["replication stopped"] if at > STARTED.index("replication started") else []),
        *(["consensus stopped"] if at >= STARTED.index("consensus started") else []),
        *(["storage stopped"] if at > STARTED.index("storage started") else []),
    ]
    assert JOURNAL.lines == [*STARTED[: at + 1], *stopped]


def test_a_hook_that_fails_at_the_stop_keeps_no_part_running(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.start()
        JOURNAL.lines.clear()
        JOURNAL.failing["node stopping"] = RuntimeError("a defect of a plug-in")
        await node.stop()
        assert node.state == "stopped"

    with_node(plan_of(data_dir=tmp_path), body)
    assert JOURNAL.lines[0] == "node stopping"
    assert JOURNAL.lines[-1] == "storage stopped"
    assert "broker stopped" in JOURNAL.lines


def test_a_cancelled_start_stops_what_had_started(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        waits = asyncio.Event()

        async def wait() -> None:
            waits.set()
            await asyncio.sleep(600)

        cast("Any", node.composition.metadata).start = wait
        start = asyncio.ensure_future(node.start())
        await waits.wait()
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    with_node(plan_of(data_dir=tmp_path), body)
    assert JOURNAL.lines == [
        "storage started",
        "controller stopped",
        "peers stopped",
        "transport stopped",
        "consensus stopped",
        "storage stopped",
    ]


def test_a_start_that_waits_for_its_quorum_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blumfeld.kernel.node.WARN_MS", 5)
    rendered = Rendered()
    logs = EventLogs(rendered.prepare)

    async def body(node: Node) -> None:
        async def wait() -> None:
            await asyncio.sleep(0.05)

        cast("Any", node.composition.metadata).caught_up = wait
        await node.start()
        await node.stop()

    with_node(plan_of(data_dir=tmp_path), body, logs)
    logs.flush()
    assert "the metadata quorum has not answered yet" in [event for _, event, _ in rendered.events]


def test_a_part_that_fails_to_stop_is_logged_and_the_others_stop(tmp_path: Path) -> None:
    JOURNAL.failing["replication stopped"] = ValueError("stuck")
    rendered = Rendered()
    logs = EventLogs(rendered.prepare)

    with_node(plan_of(data_dir=tmp_path), started_and_stopped, logs)
    logs.flush()
    assert JOURNAL.lines[-2:] == ["consensus stopped", "storage stopped"]
    assert [(level, values["part"]) for level, _, values in rendered.events] == [("error", "replication")]


def test_stop_without_start_stops_nothing(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.stop()
        assert node.state == "stopped"

    with_node(plan_of(data_dir=tmp_path), body)
    assert JOURNAL.lines == []


def test_a_listener_with_any_port_is_bound_before_the_broker_registers(tmp_path: Path) -> None:
    plan = plan_of(
        'network.listeners=[{name="FIXED", bind="127.0.0.1:9192"}, {name="ANY", bind="127.0.0.1:0"}]',
        data_dir=tmp_path,
    )

    async def body(node: Node) -> None:
        await node.start()
        broker = cast("FakeBroker", node.broker)
        assert broker.ports_at_start == [9192, FREE_PORT]
        assert [listener.port for listener in node.listeners] == [9192, FREE_PORT]
        await node.stop()

    with_node(plan, body)
    assert JOURNAL.lines.index("ANY listening") < JOURNAL.lines.index("broker started")
    assert JOURNAL.lines.index("FIXED listening") > JOURNAL.lines.index("broker started")


def test_the_cluster_id_is_the_directorys_and_another_one_is_refused(tmp_path: Path) -> None:
    text = "version=1\ncluster.id=other\nnode.id=1\ndirectory.id=XXXXXXXXXXXXXXXXXXXXXg\n"
    (tmp_path / "meta.properties").write_text(text)

    async def body(node: Node) -> None:
        await node.start()
        assert node.composition.cluster_id == "other"
        await node.stop()

    with_node(plan_of(data_dir=tmp_path), body)
    with pytest.raises(StartError, match="of cluster other, not mine"):
        with_node(plan_of("node.cluster_id=mine", data_dir=tmp_path), started_and_stopped)


def test_a_consensus_that_keeps_the_cluster_id_is_asked_before_the_storage_starts(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.start()
        assert node.composition.cluster_id == "of-the-tree"
        assert not node.composition.single_node
        await node.stop()

    with_node(plan_of("consensus.plugin=consensus_tree", data_dir=tmp_path), body)
    assert JOURNAL.lines[:2] == ["consensus agreed, None here", "storage started"]
    assert JOURNAL.lines.count("consensus stopped") == 1


def test_a_consensus_that_disagrees_on_the_cluster_id_stops_the_start(tmp_path: Path) -> None:
    """It may have opened something by then."""
    JOURNAL.failing["consensus agreed, mine here"] = BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID)
    plan = plan_of("consensus.plugin=consensus_tree", "node.cluster_id=mine", data_dir=tmp_path)
    with pytest.raises(StartError) as caught:
        with_node(plan, started_and_stopped)
    assert caught.value.is_final
    assert JOURNAL.lines == ["consensus agreed, mine here", "consensus stopped"]


def test_each_plugin_is_handed_its_own_options(tmp_path: Path) -> None:
    plan = plan_of(
        "storage.options.size_bytes=5", "groups.options.groups_fake.size_bytes=6", data_dir=tmp_path
    )

    async def body(node: Node) -> None:
        storage: Any = node.composition.storage
        groups: Any = node.composition.group_protocols[0]
        assert (storage.options.size_bytes, groups.options.size_bytes) == (5, 6)
        assert node.composition.local_storage is node.composition.storage
        assert [feature.name for feature in node.composition.features] == ["paper.version"]
        assert [handler.key for handler in cast("FakeBroker", node.broker).registered] == [23]

    with_node(plan, body)


def test_a_wrapping_storage_finds_the_inner_one(tmp_path: Path) -> None:
    plan = plan_of("storage.plugin=storage_wrap", "storage.local_options.size_bytes=9", data_dir=tmp_path)

    async def body(node: Node) -> None:
        outer: Any = node.composition.storage
        inner: Any = node.composition.local_storage
        assert outer.name == "wrapping storage"
        assert outer.inner is inner
        assert inner.options.size_bytes == 9

    with_node(plan, body)


@pytest.mark.parametrize(
    ("plugin", "complaint"),
    [
        ("reads_too_early", "metadata was read before it was made"),
        ("makes_nothing", "makes_nothing fills storage, but its blumfeld_make_storage made nothing"),
        ("wrong_arguments", "plug-in wrong_arguments: .*budget"),
        ("lacks_methods", "plug-in lacks_methods: .*no LogStorage.*no delete_log.partition."),
        (
            "lacks_methods",
            r"open_log.*: it is called as open_log.partition, topic_id, config, listener, directory",
        ),
        ("lacks_log_methods", r"log_class Log: no batches.offset.*: no max_timestamp"),
        ("half_optional", r"no SeveralDirectories.*no watch.watcher.*no move_log.partition, directory_id"),
        (
            "compacts_nothing",
            r"compacts is true, and its log_class FakeLogInOne is no SegmentedLog.*no compact",
        ),
        ("tiers_without_saying_so", "tiers is False in the plug-in's class, and its storage has a log_with"),
        ("says_that_it_tiers", "tiers is True in the plug-in's class, and its storage has no log_with"),
        ("misspelled", "blumfeld_node_startet is no hook .did you mean blumfeld_node_started"),
        ("unmarked", "plug-in unmarked: blumfeld_node_started is not marked with hookimpl"),
    ],
)
def test_a_plugin_that_breaks_its_contract_is_named(tmp_path: Path, plugin: str, complaint: str) -> None:
    with pytest.raises(PluginContractError, match=complaint):
        with_node(plan_of(f"storage.plugin={plugin}", data_dir=tmp_path), never)


def test_a_plugin_can_refuse_a_composition(tmp_path: Path) -> None:
    """It is said as every problem of a manifest."""

    with pytest.raises(ManifestError) as caught:
        with_node(plan_of("storage.plugin=refuses", data_dir=tmp_path), never)
    said = "m.toml: node.data_dirs: found 2 directories; allowed: one: it keeps one file (plug-in refuses)"
    assert str(caught.value) == said


def test_keys_of_tiered_storage_have_their_effect_where_the_storage_tiers(tmp_path: Path) -> None:
    keys = "remote.list.offsets.request.timeout.ms", "remote.log.storage.system.enable"
    for storage, tiers in (("tiering_fake", True), ("storage_fake", False)):
        overrides = (f"storage.plugin={storage}", f'config."{keys[0]}"=5')
        plan = plan_of(*overrides, data_dir=tmp_path)
        assert plan.config.bool(keys[1]) is tiers
        assert (
            f"{keys[0]} " in described(plan).partition("configuration without effect here")[2]
        ) is not tiers
        said = complaints(*overrides, f'config."{keys[1]}"=true')
        assert said == [
            f'm.toml: config."{keys[1]}": found true; allowed: nothing here: say it in storage.plugin'
        ]


def test_several_directories_need_a_storage_that_can_have_them(tmp_path: Path) -> None:
    plan = plan_of('node.data_dirs=["a", "/disk/b"]')
    with pytest.raises(
        ManifestError, match=r"node\.data_dirs: found 2 directories; allowed: one: storage_fake"
    ):
        with_node(plan, never)


def test_log_directories_are_known_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's tools name a directory by its whole path, wherever the node was started."""
    monkeypatch.chdir(tmp_path)

    async def body(node: Node) -> None:
        assert node.composition.data_dirs == (str(tmp_path / "a"), "/disk/b")
        assert node.composition.data_dir == str(tmp_path / "a")

    with_node(plan_of('node.data_dirs=["a", "/disk/b"]', "storage.plugin=storages_fake"), body)


def test_the_builds_assignors_are_there_when_groups_are_made(tmp_path: Path) -> None:
    """And a name that two plug-ins bring is nobody's."""

    async def body(node: Node) -> None:
        assert [assignor.name for assignor in node.composition.assignors] == ["paper", "scissors"]

    with_node(plan_of('groups.assignors=["paper_assignors"]', data_dir=tmp_path), body)
    twice = plan_of('groups.assignors=["paper_assignors", "more_assignors"]', data_dir=tmp_path)
    with pytest.raises(PluginContractError, match="more_assignors brings the assignor paper again"):
        with_node(twice, body)


def test_object_stores_of_plugins_are_there_when_a_storage_is_made(tmp_path: Path) -> None:
    """And a scheme that two plug-ins bring is nobody's."""

    async def body(node: Node) -> None:
        assert list(node.composition.object_stores) == ["paper"]

    with_node(plan_of('plugins.stores=["paper_store"]', data_dir=tmp_path), body)
    early = plan_of('plugins.stores=["paper_store"]', "storage.plugin=wants_paper", data_dir=tmp_path)
    with_node(early, body)
    twice = plan_of('plugins.stores=["paper_store", "more_paper"]', data_dir=tmp_path)
    with pytest.raises(PluginContractError, match="more_paper brings a store for paper:// again"):
        with_node(twice, body)


@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        ("no_stores", r"no_stores: blumfeld_object_stores gave \['paper'\], which is no mapping"),
        (
            "no_scheme",
            r"gave 'paper://': .*; allowed: the scheme of a URL, and a function that makes the store",
        ),
        ("no_factory", r"gave 'paper': 'a store'; allowed: the scheme of a URL"),
    ],
)
def test_stores_that_are_none_are_refused(tmp_path: Path, plugin: str, told: str) -> None:
    async def body(node: Node) -> None:
        pytest.fail("the node was made")

    with pytest.raises(PluginContractError, match=told):
        with_node(plan_of(f'plugins.stores=["{plugin}"]', data_dir=tmp_path), body)


def test_the_builds_image_sections_and_commands_are_there_when_consensus_is_made(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        assert [section.name for section in node.composition.image_sections] == ["acls"]
        assert len(node.composition.controller_commands) == 1

    with_node(plan_of('groups.assignors=["paper_acls", "paper_commands"]', data_dir=tmp_path), body)


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        ("paper_acls,more_acls", "plug-in more_acls: two sections of the image are called acls"),
        (
            "paper_commands,more_commands",
            "more_commands brings a command for CreateAclsRequest, which has one already",
        ),
        ("core_commands", "core_commands brings a command for CreateTopicsRequest, which has one already"),
        ("no_section", "plug-in no_section: FakeAssignor is no ImageSection: .*replay"),
    ],
)
def test_sections_and_commands_that_do_not_fit_are_refused(tmp_path: Path, plugins: str, said: str) -> None:
    named = ", ".join(f'"{name}"' for name in plugins.split(","))
    with pytest.raises(PluginContractError, match=said):
        with_node(plan_of(f"groups.assignors=[{named}]", data_dir=tmp_path), never)


def test_plugins_that_cant_be_part_of_the_node_are_all_told_with_their_paths(tmp_path: Path) -> None:
    plan = plan_of(
        'groups.plugins=["groups_kip848", "refuses_groups"]',
        'config."group.consumer.assignors"=["sticky"]',
        data_dir=tmp_path,
    )

    with pytest.raises(ManifestError) as caught:
        with_node(plan, never)
    assert str(caught.value) == (
        'm.toml: config."group.consumer.assignors": found "sticky"; allowed: some of uniform, range; '
        "for another one, name its plug-in in groups.assignors\n"
        "m.toml: groups.plugins[1]: found a broker with another protocol; allowed: one protocol "
        "(plug-in refuses_groups)"
    )
