"""A storage that keeps the newest bytes: found by its entry point, named in a manifest, held by its contract kit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.examples.stranger import EXAMPLES, Stranger, consumed, fresh_stranger_of

EXAMPLE = EXAMPLES / "acme_storage_ring"
MANIFEST = """
[storage]
plugin = "storage_ring"

[storage.options]
bytes_per_partition_max = 65536

[config]
"group.initial.rebalance.delay.ms" = 0
"""


def check_it_is_found(stranger: Stranger) -> None:
    """``plugins`` tells its distribution, ``plan`` its promise."""
    listed = stranger.run("blumfeld.cli.main", "plugins")
    assert any("storage_ring" in line and "acme-storage-ring" in line for line in listed.splitlines()), listed
    plan = stranger.plan()
    assert "storage_ring" in plan
    assert "newest 65536 bytes" in " ".join(plan.split())


def check_it_serves(stranger: Stranger) -> None:
    """A client produces more than the ring holds, and reads what is left: the newest, to the end."""
    with stranger.broker() as address:
        producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
        values = [b"%d:" % n + bytes(500) for n in range(400)]
        for n, value in enumerate(values):
            producer.produce("ticks", value)
            producer.poll(0)
            if n % 10 == 9:
                assert producer.flush(10) == 0
        left = consumed(address, "ticks", values[-1])
    assert left == values[-len(left) :]
    assert 30 < len(left) < 200


def test_it_is_found_by_its_entry_point(stranger: Stranger) -> None:
    check_it_is_found(stranger)


def test_a_broker_with_it_serves_clients(stranger: Stranger) -> None:
    check_it_serves(stranger)


def test_it_passes_the_contract_kit_as_its_author_would_run_it(stranger: Stranger) -> None:
    stranger.kit(EXAMPLE)


def test_a_wrong_option_of_it_is_refused_with_its_place(stranger: Stranger) -> None:
    """The kernel knows nothing of the plug-in but its options class."""
    stranger.manifest.write_text(MANIFEST.replace("bytes_per_partition_max", "bytes_per_partition"))
    with pytest.raises(AssertionError, match=r"storage\.options\.bytes_per_partition"):
        stranger.plan()


@pytest.mark.wheel
@pytest.mark.timeout(600)
def test_it_works_with_the_built_wheel_in_a_fresh_environment(tmp_path: Path, wheels: Path) -> None:
    """What is packaged is all that is needed: nothing of this checkout is on the path."""
    stranger = fresh_stranger_of(EXAMPLE, MANIFEST, tmp_path, wheels)
    check_it_is_found(stranger)
    check_it_serves(stranger)
    with pytest.raises(AssertionError, match=r"^blumfeld: confluent_kafka is not installed: pip install"):
        stranger.run("blumfeld.cli.main", "demo")
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    stranger.kit(tmp_path)
