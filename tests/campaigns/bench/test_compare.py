"""The bench takes the variants that `python -m campaigns compare` gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld_bench.plan.variants import parse_variants
from campaigns.bench.compare import VERSIONS, variants


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_bench_takes_the_variants(nodes: int) -> None:
    specs = parse_variants(variants(Path("/a folder/kafka-peer"), nodes))
    assert [spec.label for spec in specs] == ["blumfeld", *(f"Kafka {version}" for version in VERSIONS)]
    assert {spec.variant.nodes for spec in specs} == {nodes}
    for version, spec in zip(VERSIONS, specs[1:], strict=True):
        command = spec.variant.command
        assert command[:4] == ("env", f"KAFKA_PEER_VERSION={version}", "/a folder/kafka-peer", "start")
        assert command[4:6] == ("{folder}/data", "{port}")
        assert ("controller.quorum.voters={voters}" in command) is (nodes > 1)
        assert ("listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}" in command) is (
            nodes > 1
        )
