"""What ``blumfeld migrate`` says and refuses, phase by phase."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.plugging.errors import ManifestError
from blumfeld.spi.cluster import Endpoint
from blumfeld_consensus_zk_compat.commands.tree_work import (
    Facts,
    NotRolledBackError,
    facts_of,
    options_of,
    refusal,
    roll_back,
    status_lines,
)
from blumfeld_consensus_zk_compat.tree.forms import ControllerNode, MigrationNode
from tests.plugins.consensus_zk_compat.migration.migrating import Migrating

NONE = MigrationNode()
BEGUN = MigrationNode(kraft_controller_epoch=3, kraft_controller_id=3000, kraft_metadata_offset=17)


def facts(
    migration: MigrationNode = NONE,
    *,
    brokers: tuple[int, ...] = (1, 2),
    unready: tuple[int, ...] = (),
    absent: tuple[int, ...] = (),
) -> Facts:
    controller = ControllerNode(3000, 0, 3, Endpoint("CONTROLLER", "127.0.0.1", 1))
    return Facts(migration, controller, brokers, unready, absent, "")


@pytest.mark.parametrize(
    ("found", "phase", "step"),
    [
        (facts(unready=(2,)), "phase 1", "start brokers 2 again with options.metadata_migration_enable"),
        (facts(), "phase 2", "start the controllers with [migration]"),
        (facts(MigrationNode(kraft_controller_epoch=3)), "phase 2: the tree is being copied", "wait"),
        (facts(BEGUN), "phase 3: the log decides", "phase 4: start those that read the tree again"),
        (facts(BEGUN, brokers=(), absent=(1, 2)), "phase 3", "phase 5: start the controllers again without"),
    ],
)
def test_each_phase_is_named_with_the_next_step(found: Facts, phase: str, step: str) -> None:
    text = status_lines(found)
    assert text[0].startswith(phase)
    assert any(line.startswith("next: ") and step in line for line in text), text


@pytest.mark.parametrize(
    ("found", "listens", "reason"),
    [
        (facts(), False, "no migration has begun"),
        (facts(BEGUN), True, "still listens"),
        (facts(BEGUN, absent=(3,)), False, "brokers 3 have replicas and no znode"),
        (facts(BEGUN), False, ""),
    ],
)
def test_a_tree_is_given_back_only_to_brokers_that_are_all_there(
    found: Facts, listens: bool, reason: str
) -> None:
    refused = refusal(found, controller_listens=listens)
    assert reason in refused
    assert bool(reason) is bool(refused)


def test_a_tree_that_is_given_back_has_a_controller_of_its_own_again() -> None:
    nodes = Migrating(quorum=1)

    async def listens(endpoint: Endpoint) -> bool:
        assert (endpoint.listener, endpoint.port) == ("CONTROLLER", 9093)
        return nodes.all[4].is_running

    async def story() -> None:
        await nodes.begin()
        assert facts_of(await nodes.tree(), MigrationNode()).absent == ()
        await nodes.machine(3).stop()
        async with nodes.tree_session() as session:
            with pytest.raises(NotRolledBackError, match="still listens"):
                await roll_back(session, listens)
        await nodes.all[4].stop()
        async with nodes.tree_session() as session:
            with pytest.raises(NotRolledBackError, match="brokers 3 have replicas and no znode"):
                await roll_back(session, listens)
        assert await nodes.machine(3).start()
        async with nodes.tree_session() as session:
            assert "its brokers' again" in (await roll_back(session, listens))[0]
            with pytest.raises(NotRolledBackError, match="no migration has begun"):
                await roll_back(session, listens)
        await nodes.until(lambda: nodes.controller > 0)
        await nodes.write("orders", b"a")

    nodes.run(story())


def test_the_tree_is_that_of_the_manifest(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    text = '[{}]\nplugin = "consensus_zk_compat"\noptions.connect = "zk:2181/{}"\n'
    path.write_text(text.format("migration", "a"))
    assert options_of(path).connect == "zk:2181/a"
    path.write_text(text.format("consensus", "b"))
    assert options_of(path).connect == "zk:2181/b"
    path.write_text("")
    with pytest.raises(ManifestError, match=r"\[migration\] or \[consensus\]"):
        options_of(path)
    with pytest.raises(ManifestError):
        options_of(tmp_path / "none.toml")
