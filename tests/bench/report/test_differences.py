"""The differences between the variants of a run."""

from __future__ import annotations

from typing import Any

from blumfeld_bench.report.differences import NO_DIFFERENCE, differences
from blumfeld_bench.result import Variant

MANIFEST = """
[network]
plugin = "net_uring"
[storage.options]
flush = "every"
[config]
"num.partitions" = 3
"""


def variant(label: str, manifest: str | None = None, *overrides: str, **more: Any) -> Variant:
    versions = {"blumfeld": "1", "python": "3.11", "net_asyncio": "blumfeld 1"}
    fields = {"kind": "manifest", "versions": versions, "given": label} | more
    return Variant(label=label, manifest=manifest, overrides=overrides, **fields)


def test_settings_that_differ_stand_with_each_variants_value() -> None:
    lines = differences([variant("a"), variant("b", MANIFEST, 'config."log.segment.bytes"=2097152')])
    assert lines == [
        'config."log.segment.bytes" — a: 1073741824 (the default); b: 2097152',
        'config."num.partitions" — a: 1 (the default); b: 3',
        'network.plugin — a: "net_asyncio" (the default); b: "net_uring"',
        'storage.options.flush — a: not given (the default); b: "every"',
    ]


def test_a_setting_that_all_have_is_no_difference() -> None:
    overrides = ("network.plugin=net_uring", "storage.options.flush=every", 'config."num.partitions"=3')
    same = [variant("a", MANIFEST), variant("b", None, *overrides)]
    assert differences(same) == [NO_DIFFERENCE]
    assert differences([*same, variant("c", MANIFEST, "storage.options.flush=never")]) == [
        'storage.options.flush — a: "every"; b: "every"; c: "never"'
    ]
    assert differences(same[:1]) == []
    as_it_comes = variant("b", None, "network.plugin=net_asyncio", 'config."log.cleanup.policy"=["delete"]')
    assert differences([variant("a"), as_it_comes]) == [NO_DIFFERENCE]


def test_versions_nodes_and_a_foreign_broker_are_told() -> None:
    kafka = variant(
        "kafka",
        kind="foreign",
        command=("kafka-peer", "start"),
        nodes=3,
        warm_up_s=25.0,
        versions={"kafka": "4.3.1"},
    )
    assert differences([variant("ours", MANIFEST, "network.plugin=net_asyncio"), kafka]) == [
        "server — ours: blumfeld run; kafka: kafka-peer start",
        "version — ours: blumfeld 1; kafka: 4.3.1",
        "nodes — ours: 1; kafka: 3",
        "extra warm-up — ours: 0 s; kafka: 25 s",
        'config."num.partitions" — ours: 3',
        'storage.options.flush — ours: "every"',
    ]


def test_a_result_of_another_release_is_shown_all_the_same() -> None:
    assert differences([variant("a", "no TOML ["), variant("b", None, "nodes")]) == [NO_DIFFERENCE]
