"""A storage that lasts, as a stranger would write it: found, passed by its kit, killed, simulated, refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from blumfeld.testing.process import free_port
from tests.examples.test_plugin import ROOT, Stranger, lay_out

EXAMPLE = ROOT / "examples" / "acme_storage_flat"
MANIFEST = '[storage]\nplugin = "storage_flat"\n'
RECORDS = 50


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    """With the plug-in in a folder on the path."""
    target = tmp_path / "site"
    target.mkdir()
    lay_out(target, EXAMPLE)
    made = Stranger(sys.executable, tmp_path, target)
    made.manifest.write_text(MANIFEST)
    return made


def check_it_is_found(stranger: Stranger) -> None:
    """With what it doesn't do."""
    plan = " ".join(stranger.run("blumfeld.cli.main", "plan", str(stranger.manifest)).split())
    assert "acme-storage-flat 0.1.0" in plan
    assert "survives a kill, not a power cut" in plan
    assert "retention.ms and retention.bytes take nothing away" in plan


def check_it_lasts(stranger: Stranger) -> None:
    """A broker with it is killed behind an acknowledgement, and the next one has every record."""
    port = free_port()
    server = {"bootstrap.servers": f"127.0.0.1:{port}"}
    process = stranger.broker(port)
    try:
        producer = Producer({**server, "acks": "all"})
        for n in range(RECORDS):
            producer.produce("kept", b"%d" % n)
        assert producer.flush(20) == 0
    finally:
        process.kill()
        process.communicate(timeout=60)
    process = stranger.broker(port)
    try:
        consumer = Consumer({**server, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["kept"])
        found: list[bytes | None] = []
        while len(found) < RECORDS:
            message = consumer.poll(20)
            assert message is not None, found
            assert message.error() is None, message.error()
            found.append(message.value())
        consumer.close()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert found == [b"%d" % n for n in range(RECORDS)]


def test_it_is_found_by_its_entry_point(stranger: Stranger) -> None:
    check_it_is_found(stranger)


def test_a_broker_with_it_is_killed_and_loses_nothing(stranger: Stranger) -> None:
    check_it_lasts(stranger)


def test_it_passes_the_contract_kit_as_its_author_would_run_it(stranger: Stranger) -> None:
    printed = stranger.run(
        "pytest", "-q", "--hypothesis-seed=0", "-p", "no:cacheprovider", str(EXAMPLE / "tests"), timeout_s=200
    )
    assert " passed" in printed
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
        stranger.run("blumfeld.cli.main", "plan", str(stranger.manifest))
    assert "Traceback" not in str(refused.value)


@pytest.mark.wheel
@pytest.mark.timeout(600)
def test_it_works_with_the_built_wheel_in_a_fresh_environment(tmp_path: Path) -> None:
    """What is packaged is all that is needed: nothing of this checkout is on the path."""
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [
        *pip,
        "wheel",
        "--no-deps",
        "--wheel-dir",
        str(wheels),
        str(ROOT),
        str(ROOT / "kit"),
        str(EXAMPLE),
    ]
    subprocess.run(build, check=True, timeout=300)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True, timeout=120)
    python = str(tmp_path / "fresh" / "bin" / "python")
    packages = [str(wheel) for wheel in wheels.glob("*.whl")]
    install = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *packages]
    subprocess.run(install, check=True, timeout=300)
    stranger = Stranger(python, tmp_path)
    stranger.manifest.write_text(MANIFEST)
    check_it_is_found(stranger)
    check_it_lasts(stranger)
    tests = tmp_path / "tests"
    shutil.copytree(EXAMPLE / "tests", tests)
    assert " passed" in stranger.run(
        "pytest", "-q", "--hypothesis-seed=0", "-p", "no:cacheprovider", str(tests)
    )
