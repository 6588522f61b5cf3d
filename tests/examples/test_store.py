"""An object store as a stranger would write it: found, named in a manifest, and offered to the storage."""

from __future__ import annotations

import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.examples.stranger import EXAMPLES, Stranger

EXAMPLE = EXAMPLES / "acme_store_folder"
MANIFEST = '[plugins]\nstores = ["store_folder"]\n'


def test_it_is_found_by_its_entry_point(stranger: Stranger) -> None:
    plan = stranger.plan()
    assert any("stores" in line and "acme-store-folder 0.1.0" in line for line in plan.splitlines()), plan


def test_a_broker_that_tiers_keeps_its_old_segments_in_it(stranger: Stranger) -> None:
    archive = stranger.folder / "archive"
    stranger.manifest.write_text(
        f'{MANIFEST}[storage]\nplugin = "storage_tiered"\n[storage.options]\nstore = "folder://{archive}"\n'
        '[config]\n"remote.log.manager.task.interval.ms" = 100\n'
    )
    with stranger.broker() as address:
        admin = AdminClient({"bootstrap.servers": address})
        config = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20)}
        (made,) = admin.create_topics([NewTopic("ticks", 1, 1, config=config)]).values()
        made.result(20)
        producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
        for _ in range(3):
            producer.produce("ticks", bytes(700_000))
            assert producer.flush(20) == 0
        deadline = time.monotonic() + 30
        while not list(archive.glob("ticks-0-*/*.manifest")):
            assert time.monotonic() < deadline, sorted(archive.rglob("*"))
            time.sleep(0.05)
    assert (archive / "blumfeld-cluster.json").exists()
    names = {path.name.partition(".")[2] for path in archive.glob("ticks-0-*/00000000000000000000-*")}
    assert names == {"index", "leader_epoch_checkpoint", "log", "manifest", "snapshot", "timeindex"}


def test_it_passes_the_contract_kit_as_its_author_would_run_it(stranger: Stranger) -> None:
    stranger.kit(EXAMPLE)
