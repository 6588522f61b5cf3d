"""A start pays for no API: its module is imported with the first request of it."""

from __future__ import annotations

import json
import subprocess
import sys

STARTED = """
import json, sys
from blumfeld.testing import EmbeddedBroker

with EmbeddedBroker() as broker:
    print(json.dumps([sorted(broker.node.broker.advertised("broker")), sorted(sys.modules)]))
"""


def test_a_started_broker_has_imported_no_handler() -> None:
    """Those on groups neither, although both group protocols are composed."""
    ran = subprocess.run(
        [sys.executable, "-c", STARTED], capture_output=True, text=True, check=True, timeout=60
    )
    advertised, modules = json.loads(ran.stdout)
    assert {8, 9, 11, 68} <= set(advertised), "the APIs of both group protocols are served"
    assert "blumfeld.broker.handlers.groups" in modules, "the room is where this test looks for it"
    assert [
        name for name in modules if name.startswith("blumfeld.broker.handlers.") and ".api_" in name
    ] == []
    assert {24, 25, 26, 65, 66} <= set(advertised), "the APIs of transactions are served"
    assert [name for name in modules if name.startswith("blumfeld_transactions.")] == [
        "blumfeld_transactions.plugin",
    ]
    assert "blumfeld.wire.messages.add_partitions_to_txn" not in modules
