"""Variants as they may be typed, and the refusals of the rest. Nothing is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from blumfeld.testing.cluster import NODE_SETTINGS
from blumfeld_bench.plan.variants import VariantError, parse_variant, parse_variants


def manifest(folder: Path, text: str = "", name: str = "a.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_manifest_is_described_as_plan_would(tmp_path: Path) -> None:
    text = '[storage]\nplugin = "storage_memory"\n'
    variant = parse_variant(manifest(tmp_path, text)).variant
    assert (variant.label, variant.kind, variant.manifest) == ("a", "manifest", text)
    assert variant.network == "net_asyncio (epoll)"
    assert variant.durability.startswith("acks=1: memory: gone with the process; acks=all: ")
    assert set(variant.versions) >= {"blumfeld", "python", "net_asyncio", "storage_memory"}
    assert variant.command[:5] == (sys.executable, "-m", "blumfeld.cli.main", "run", "{folder}/manifest.toml")


def test_overrides_are_checked_kept_and_shown_in_the_label(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    text = f"{path} --set storage.plugin=storage_memory --set 'config.\"log.flush.interval.messages\"=1'"
    variant = parse_variant(text).variant
    assert variant.overrides == ("storage.plugin=storage_memory", 'config."log.flush.interval.messages"=1')
    assert variant.label == "a storage_memory log.flush.interval.messages=1"
    assert variant.command.count("--set") == 2
    assert "memory" in variant.durability


def test_no_file_at_all_is_a_variant() -> None:
    variant = parse_variant("default").variant
    assert (variant.label, variant.manifest) == ("default", None)
    assert "manifest.toml" not in " ".join(variant.command)


def test_equal_variants_get_labels_of_their_own() -> None:
    assert [spec.label for spec in parse_variants(["default", "default", "default --label x"])] == [
        "default",
        "default (2)",
        "x",
    ]


def test_a_foreign_broker_is_its_command() -> None:
    text = (
        "kafka://127.0.0.1:0 --start 'kafka-peer start {folder}/data {port}' --warm-up 5 --durability cache"
    )
    spec = parse_variant(text)
    variant = spec.variant
    assert (variant.label, variant.kind, spec.port) == ("kafka-peer", "foreign", 0)
    assert variant.command == ("kafka-peer", "start", "{folder}/data", "{port}")
    assert (variant.warm_up_s, variant.durability, variant.network) == (5.0, "cache", "not known")


def test_a_program_is_found_from_any_folder_and_stays_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to an interpreter is an environment of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").symlink_to(sys.executable)
    assert parse_variant("kafka://127.0.0.1:0 --start './python {port}'").variant.command[0] == str(
        tmp_path / "python"
    )


def test_a_foreign_broker_is_warmed_unless_told_otherwise() -> None:
    assert parse_variant("kafka://127.0.0.1:0 --start 'k {port}'").variant.warm_up_s == 25.0


def test_a_running_broker_must_be_asked_for_by_name() -> None:
    spec = parse_variant("kafka://127.0.0.1:9092 --running")
    assert (spec.variant.kind, spec.port, spec.variant.warm_up_s) == ("running", 9092, 0.0)


def test_a_cluster_of_ours_is_one_command_for_every_node(tmp_path: Path) -> None:
    """Its places are filled in for each node; what the variant sets is beneath what makes it one of several."""
    text = f"{manifest(tmp_path)} --nodes 3 --set node.id=9 --set storage.plugin=storage_memory"
    variant = parse_variant(text).variant
    assert (variant.nodes, variant.label) == (3, "a id=9 storage_memory nodes=3")
    assert "--listen" not in variant.command
    sets = [variant.command[nth + 1] for nth, part in enumerate(variant.command) if part == "--set"]
    assert sets == ["node.id=9", "storage.plugin=storage_memory", *NODE_SETTINGS]
    assert "memory" in variant.durability
    assert variant.overrides == ("node.id=9", "storage.plugin=storage_memory")


def test_a_foreign_cluster_says_where_ids_and_ports_go() -> None:
    spec = parse_variant("kafka://127.0.0.1:9600 --nodes 3 --start 'k {port} {id} {voters}' --label k3")
    assert (spec.variant.nodes, spec.port, spec.label) == (3, 9600, "k3")
    assert spec.variant.command == ("k", "{port}", "{id}", "{voters}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere.toml", "nowhere.toml: no such file"),
        ("default --set network.plugin=net_carrier_pigeon", "net_carrier_pigeon"),
        ("default --set config.nonsense=1", "nonsense"),
        ("default --set broken", "section.key=value"),
        ("default --sett x=1", "unrecognized arguments"),
        ("default 'unbalanced", "No closing quotation"),
        ("default --nodes 0", "--nodes: found 0; allowed: 1 and more"),
        ("default --nodes three", "invalid int value"),
        ("kafka://127.0.0.1:0 --nodes 3 --start 'x {port}'", "put {id} and {port} into it"),
        ("kafka://127.0.0.1:9092 --running --nodes 3", "--nodes is for servers that the bench starts"),
        ("default --warm-up 3", "--warm-up is for kafka://"),
        ("default --running", "--running is for kafka://"),
        ("kafka://127.0.0.1:9092", "data isn't fresh"),
        ("kafka://127.0.0.1:9092 --running --start 'x {port}'", "say how it is started"),
        ("kafka://127.0.0.1:0 --running", "needs the broker's port"),
        ("kafka://127.0.0.1:0 --start 'x'", "{port}"),
        ("kafka://127.0.0.1:0 --start 'x {port}' --set a.b=1", "--set is for manifests"),
        ("kafka://elsewhere:9092 --running", "allowed: kafka://127.0.0.1:PORT"),
        ("kafka://127.0.0.1:many --running", "allowed: kafka://127.0.0.1:PORT"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(VariantError, match=said.replace("{", r"\{").replace("(", r"\(")):
        parse_variant(text)


def test_two_variants_may_not_share_a_label_that_would_be_made_unique() -> None:
    with pytest.raises(VariantError, match="the same --label"):
        parse_variants(["default", "default", "default --label 'default (2)'"])
