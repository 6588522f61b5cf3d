"""Twelve differences, each planted in a manifest: the plan of two builds finds it, and names it."""

from __future__ import annotations

import asyncio

import pytest

from blumfeld.cli.plan.composed import composed
from blumfeld.kernel.describing import describe
from blumfeld.kernel.description.differences import differences
from blumfeld.kernel.description.document import PlanDocument

PLANTED: dict[str, tuple[tuple[str, ...], set[tuple[str, str]]]] = {
    "another storage": (
        ("storage.plugin=storage_memory",),
        {("plug-in", "storage storage_local"), ("plug-in", "storage storage_memory"), ("ack", "1")},
    ),
    "no transactions": (
        ("transactions.plugin=none",),
        {
            ("plug-in", "transactions transactions"),
            ("feature", "transaction.version"),
            ("not done", "transactions"),
        },
    ),
    "APIs less": (
        ("transactions.plugin=none",),
        {("API of brokers", "EndTxn"), ("API of brokers", "AddOffsetsToTxn")},
    ),
    "one group protocol": (
        ('groups.plugins=["groups_classic"]',),
        {
            ("plug-in", "groups groups_kip848"),
            ("feature", "group.version"),
            ("API of brokers", "ConsumerGroupDescribe"),
        },
    ),
    "no groups": (("groups.plugins=[]",), {("not done", "groups"), ("API of brokers", "JoinGroup")}),
    "quotas": (
        ("quotas.plugin=quotas",),
        {("plug-in", "quotas quotas"), ("API of brokers", "AlterClientQuotas")},
    ),
    "another transport": (
        ("network.plugin=net_uring",),
        {("plug-in", "network net_asyncio"), ("plug-in", "network net_uring")},
    ),
    "an option": (
        ("consensus.options.notice_dead_nodes=false",),
        {("option", "consensus consensus_kraft: notice_dead_nodes")},
    ),
    "a key": (('config."log.segment.bytes"=1048576',), {("configuration", "log.segment.bytes")}),
    "a key without effect": (('config."num.io.threads"=9',), {("without effect", "num.io.threads")}),
    "the roles": (
        ('node.roles=["controller"]',),
        {("node", "roles"), ("ack", "all"), ("API of brokers", "Produce"), ("API of controllers", "Vote")},
    ),
    "security": (
        ("security.plugin=security",),
        {("plug-in", "security security"), ("not done", "security"), ("default", "sasl.enabled.mechanisms")},
    ),
}


def planned(*overrides: str) -> PlanDocument:
    return asyncio.run(describe(composed(None, overrides)[0])).document


@pytest.fixture(scope="module")
def default() -> PlanDocument:
    return planned()


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_difference_is_found_and_named(planted: str, default: PlanDocument) -> None:
    overrides, named = PLANTED[planted]
    found = {(difference.part, difference.name) for difference in differences(default, planned(*overrides))}
    assert named <= found


def test_two_plans_of_one_manifest_do_not_differ(default: PlanDocument) -> None:
    assert len(PLANTED) == 12
    assert differences(default, planned()) == []
    assert (
        differences(default, planned("node.id=3", "node.data_dir=elsewhere", "metrics.bind=127.0.0.1:1"))
        == []
    )
