"""Which word was meant."""

from __future__ import annotations

import pytest

from blumfeld.config.definitions import BROKER_CONFIGS, TOPIC_CONFIGS
from blumfeld.config.typos import likely_meant

PLUGINS = ["groups_classic", "net_asyncio", "net_uring", "storage_local", "storage_memory", "transactions"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("storage_locl", "storage_local"),
        ("storage_loacl", "storage_local"),
        ("storage-local", "storage_local"),
        ("net_uringg", "net_uring"),
        ("transactoin", "transactions"),
    ],
)
def test_slips_of_the_keyboard_lead_to_the_word(text: str, meant: str) -> None:
    assert likely_meant(text, PLUGINS)[:1] == [meant]


@pytest.mark.parametrize("text", ["storage_rocks", "storage_tiered", "net_tcp", "groups_share", "", "x"])
def test_another_word_is_no_slip(text: str) -> None:
    assert likely_meant(text, PLUGINS) == []


def test_a_short_word_may_have_one_slip() -> None:
    assert likely_meant("jsn", ["console", "json"]) == ["json"]
    assert likely_meant("jn", ["console", "json"]) == []


def test_the_closest_word_stands_first() -> None:
    assert likely_meant("retention.mss", ["retention.mzzs", "retention.ms"]) == [
        "retention.ms",
        "retention.mzzs",
    ]


def test_a_key_of_the_other_scope_leads_to_its_name_in_this_one() -> None:
    """``retention.ms`` in a manifest and ``log.retention.ms`` for a topic are no slips, and the commonest mistakes."""
    assert BROKER_CONFIGS.suggest("retention.ms") == ("log.retention.ms",)
    assert TOPIC_CONFIGS.suggest("log.retention.ms") == ("retention.ms",)
    assert TOPIC_CONFIGS.suggest("retnetion.ms") == ("retention.ms",)
    assert BROKER_CONFIGS.suggest("compression.typ") == ("compression.type",)
