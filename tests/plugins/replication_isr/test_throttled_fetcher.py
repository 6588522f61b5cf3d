"""A follower of throttled partitions (KIP-73): it waits for the quota, and nothing else waits with it."""

from __future__ import annotations

from typing import Any

from blumfeld.spi.replication_quota import ReplicationQuota
from blumfeld.wire.messages.fetch import PartitionData
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.plugins.replication_isr.test_fetcher import Driver, Log, data

RATE = 100


def behind(index: int, records: bytes) -> PartitionData:
    """An answer of a leader that has committed much more."""
    part = data(index, records)
    part.high_watermark = 1_000_000
    return part


def throttled(*ends: int, quota: ReplicationQuota | None = None) -> tuple[Driver, ReplicationQuota]:
    """Returns a driver whose partition 0 is throttled."""
    driver = Driver()
    quota = ReplicationQuota(11, 1_000, RATE) if quota is None else quota
    driver.logs = [Log(driver, index, end) for index, end in enumerate(ends)]
    driver.logs[0].quota = quota
    for log in driver.logs:
        driver.follow(log)
    driver.turn()
    return driver, quota


def take(driver: Driver, *parts: PartitionData) -> None:
    driver.answer(*parts)
    for part in parts:
        if part.records:
            driver.logs[part.partition_index].write()
    driver.turn()


def test_a_throttled_partition_waits_alone_for_its_quota() -> None:
    driver, _ = throttled(10, 20)
    take(driver, behind(0, bytes(150)), behind(1, bytes(150)))
    request = driver.asked(2)
    assert driver.places() == {1: 170}
    assert [gone.partitions for gone in request.forgotten_topics_data] == [[0]]
    driver.runtime.advance(699)
    take(driver, behind(1, bytes(10)))
    assert driver.places() == {1: 180}
    assert driver.asked().max_wait_ms <= 1, "the pause is looked at again after replica.fetch.backoff.ms"
    driver.runtime.advance(2)
    take(driver)
    assert 0 not in driver.places(), "the quota is exceeded for 1.5 s"
    driver.runtime.advance(800)
    take(driver)
    assert driver.places() == {0: 160}


def test_only_throttled_bytes_count() -> None:
    driver, quota = throttled(10, 20)
    take(driver, behind(1, bytes(100_000)))
    assert not quota.is_exceeded(driver.runtime.monotonic_ms())
    take(driver, behind(0, bytes(101)))
    assert quota.is_exceeded(driver.runtime.monotonic_ms())


def test_a_follower_that_has_all_that_is_committed_does_not_wait() -> None:
    """It may be in the ISR: producers with acks=all wait for it."""
    driver, quota = throttled(10, 20)
    quota.record(100_000, driver.runtime.monotonic_ms())
    caught_up = data(0, bytes(40))
    caught_up.high_watermark = 50
    take(driver, caught_up)
    assert driver.places() == {0: 50}
    take(driver, behind(0, bytes(10)))
    driver.answer()
    assert 0 not in {p.partition for t in driver.asked().topics for p in t.partitions}
    assert [gone.partitions for gone in driver.asked().forgotten_topics_data] in ([[0]], [])


def test_a_new_follower_waits_from_its_first_request_on() -> None:
    quota = ReplicationQuota(11, 1_000, RATE)
    began_ms = FakeRuntime().monotonic_ms()
    quota.record(300, began_ms)
    driver, _ = throttled(10, 20, quota=quota)
    assert driver.places() == {1: 20}
    places: list[dict[int, int]] = []
    while driver.runtime.monotonic_ms() < began_ms + 3_100:
        driver.runtime.advance(100)
        take(driver)
        places += [driver.places()] if driver.places() else []
    assert places == [{0: 10}]


def test_a_throttle_that_is_taken_away_ends_with_the_next_look() -> None:
    driver, quota = throttled(10, 20)
    quota.bytes_per_s_max = 1
    take(driver, behind(0, bytes(1_000)), behind(1, b"x"))
    assert driver.places() == {1: 21}
    driver.logs[0].quota = None
    driver.runtime.advance(701)
    take(driver)
    assert driver.places() == {0: 1_010}


def test_with_nothing_else_to_fetch_no_request_leaves() -> None:
    driver, _ = throttled(10)
    take(driver, behind(0, bytes(200)))
    driver.asked(1)
    driver.runtime.advance(1_999)
    driver.asked(1)
    driver.runtime.advance(710)
    driver.asked(2)


def test_a_throttled_follower_that_stops_is_forgotten() -> None:
    driver, _ = throttled(10, 20)
    take(driver, behind(0, bytes(200)))
    driver.logs[0].follower.stop()
    driver.runtime.advance(5_000)
    take(driver)
    fetcher: Any = next(iter(driver.replication._fetchers.values()))
    assert len(fetcher._throttled) == 0
    assert 0 not in driver.places()
