"""A storage that lasts, as a stranger would write it: found, passed by its kit, killed, simulated, refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.examples.stranger import EXAMPLES, Stranger, consumed, fresh_stranger_of

EXAMPLE = EXAMPLES / "acme_storage_flat"
MANIFEST = '[storage]\nplugin = "storage_flat"\n'
RECORDS = 50


def check_it_is_found(stranger: Stranger) -> None:
    """The plan says what it doesn't do."""
    plan = " ".join(stranger.plan().split())
    assert "acme-storage-flat 0.1.0" in plan
    assert "survives a kill, not a power cut" in plan
    assert "retention.ms and retention.bytes take nothing away" in plan


def check_it_lasts(stranger: Stranger) -> None:
    """A broker with it is killed behind an acknowledgement, and the next one has every record."""
    values = [b"%d" % n for n in range(RECORDS)]
    with stranger.broker(killed=True) as address:
        producer = Producer({"bootstrap.servers": address, "acks": "all"})
        for value in values:
            producer.produce("kept", value)
        assert producer.flush(20) == 0
    with stranger.broker() as address:
        assert consumed(address, "kept", values[-1]) == values


def test_it_is_found_by_its_entry_point(stranger: Stranger) -> None:
    check_it_is_found(stranger)


def test_a_broker_with_it_is_killed_and_loses_nothing(stranger: Stranger) -> None:
    check_it_lasts(stranger)


def test_it_passes_the_contract_kit_as_its_author_would_run_it(stranger: Stranger) -> None:
    printed = stranger.kit(EXAMPLE)
    assert "promises that were not tried" in printed
    assert "survives_" not in printed, "everything that can be claimed of restarts and crashes is"


def test_it_passes_the_simulation(stranger: Stranger) -> None:
    """Whole brokers under all faults. With this seed a flush once waited for ever behind a sync that failed."""
    printed = stranger.run(
        *("blumfeld.cli.main", "simulate", "--storage", "storage_flat", "--seeds", "9", "--nodes", "3"),
        *("--clients", "6", "--seconds", "120"),
    )
    assert "no promise broken" in printed


def test_it_refuses_two_directories_as_the_manifest_is_refused(stranger: Stranger) -> None:
    stranger.manifest.write_text(MANIFEST + '[node]\ndata_dirs = ["a", "b"]\n')
    said = r"node\.data_dirs: found 2 directories; allowed: one: its logs never move \(plug-in storage_flat\)"
    with pytest.raises(AssertionError, match=said) as refused:
        stranger.plan()
    assert "Traceback" not in str(refused.value)


@pytest.mark.wheel
@pytest.mark.timeout(600)
def test_it_works_with_the_built_wheel_in_a_fresh_environment(tmp_path: Path, wheels: Path) -> None:
    """What is packaged is all that is needed: nothing of this checkout is on the path."""
    stranger = fresh_stranger_of(EXAMPLE, MANIFEST, tmp_path, wheels)
    check_it_is_found(stranger)
    check_it_lasts(stranger)
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    stranger.kit(tmp_path)
