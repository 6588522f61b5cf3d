"""A consensus without a metadata quorum: what only a quorum has is left out of the plan, and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.formatting.directories import format_directories
from blumfeld.kernel.manifest.sections import read_manifest
from blumfeld.kernel.supervising.derivation import node_manifests
from blumfeld.plugging.errors import ManifestError
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.kernel.fakes import MANIFEST, assert_refused, described, plan_of, registry

TREE = "consensus.plugin=consensus_tree"
VOTERS = 'config."controller.quorum.voters"="1@h:9093"'
SERVERS = 'config."controller.quorum.bootstrap.servers"="h:9093"'
LISTENERS = (
    "network.listeners=["
    '{name="PLAINTEXT", bind="127.0.0.1:9092"}, {name="C", kind="controller", bind="127.0.0.1:9093"}]'
)


def test_the_default_roles_need_no_change() -> None:
    plan = plan_of(TREE)
    assert not plan.quorum
    assert plan.left_out == ()
    assert plan.manifest.node.roles == ("broker",)
    assert [listener.kind for listener in plan.listeners] == ["broker"]


def test_a_broker_alone_names_no_controllers() -> None:
    assert plan_of(TREE, 'node.roles=["broker"]').left_out == ()


def test_listeners_and_keys_of_a_quorum_are_left_out_and_told(tmp_path: Path) -> None:
    plan = plan_of(TREE, VOTERS, LISTENERS, data_dir=tmp_path)
    left_out = ("network.listeners[1] (C)", 'config."controller.quorum.voters"')
    assert plan.left_out == left_out
    assert [listener.name for listener in plan.listeners] == ["PLAINTEXT"]
    assert "controller.quorum.voters" not in plan.manifest.config
    page = described(plan)
    assert "left out: this consensus has no metadata quorum" in page
    assert all(place in page for place in left_out)


def test_both_keys_that_name_a_quorum_are_told_when_they_are_written_by_hand() -> None:
    plan = plan_of(TREE, VOTERS, SERVERS)
    assert plan.left_out == (
        'config."controller.quorum.voters"',
        'config."controller.quorum.bootstrap.servers"',
    )


def test_what_is_written_for_the_nodes_of_one_manifest_is_told_and_what_they_add_is_not() -> None:
    tuned = 'config."controller.quorum.election.timeout.ms"=900'
    manifest = read_manifest(MANIFEST, "m.toml", overrides=(TREE, "nodes=4", tuned, LISTENERS))
    nodes = node_manifests(manifest, "m.toml")
    plans = [make_plan(node, "m.toml", registry(), written=manifest) for node in nodes]
    assert {plan.left_out for plan in plans} == {
        ("network.listeners[1] (C)", 'config."controller.quorum.election.timeout.ms"')
    }


def test_a_controller_alone_is_refused() -> None:
    assert_refused(
        "node.roles: found controller alone; allowed: the role broker", TREE, 'node.roles=["controller"]'
    )


def test_the_nodes_of_one_manifest_get_no_quorum() -> None:
    manifest = read_manifest(MANIFEST, "m.toml", overrides=(TREE, "nodes=4"))
    plans = [
        make_plan(node, "m.toml", registry(), written=manifest) for node in node_manifests(manifest, "m.toml")
    ]
    assert [plan.manifest.node.id for plan in plans] == [1, 2, 3, 4]
    for plan in plans:
        assert plan.left_out == ()
        assert [listener.kind for listener in plan.listeners] == ["broker"]
        assert not [key for key in plan.manifest.config if key.startswith("controller.")]


def test_there_is_nothing_to_format(tmp_path: Path) -> None:
    plan: Plan = plan_of(TREE, data_dir=tmp_path)
    with pytest.raises(ManifestError, match="formats its directories when it starts"):
        format_directories(plan, FakeRuntime())
