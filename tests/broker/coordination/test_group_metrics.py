"""What a scrape tells of a broker's groups."""

from __future__ import annotations

from blumfeld.broker.serving.counts import NodeMetrics
from blumfeld.coordinator.runtime.coordinator import RELOAD_DELAY_MS
from blumfeld.wire.messages.sync_group import SyncGroupRequest
from tests.broker.coordination.test_group_coordination import Grouped, join_request
from tests.broker.plain_storage import PlainStorage
from tests.coordinator.groups.test_offsets import commit_request
from tests.kernel.watching.test_metrics_endpoint import ask, with_endpoint


def scrape(broker: Grouped) -> dict[str, float]:
    """Name and labels → value, of what is told of groups."""
    metrics = NodeMetrics()
    for metric in broker.broker.gauges():
        metrics.add(metric)
    text = ""

    async def body(port: int) -> None:
        nonlocal text
        text = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")

    with_endpoint(metrics, "ok", body)
    lines = [line for line in text.splitlines() if line.startswith("blumfeld_group")]
    return {name.removeprefix("blumfeld_"): float(value) for name, value in (s.split(" ") for s in lines)}


def rebalance(broker: Grouped) -> None:
    """A group of one member, to the end."""
    joined = broker.ask(join_request(), 9)
    sync = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, group_instance_id="one"
    )
    assert broker.ask(sync, 4).error_code == 0


def test_a_scrape_counts_groups_by_type_and_state() -> None:
    """A group that only has offsets is a classic one, and empty: as ListGroups shows it."""
    broker = Grouped()
    broker.commit(5)
    broker.ask(join_request(), 9)
    samples = scrape(broker)
    assert samples['groups{state="CompletingRebalance",type="classic"}'] == 1
    assert samples["group_offsets"] == 1
    assert samples["group_offset_commits_total"] == 1
    assert samples["group_rebalances_total"] == 0
    assert samples['group_shards{state="active"}'] == 1
    assert samples['group_shards{state="loading"}'] == 0


def test_a_rebalance_counts_when_it_has_an_assignment() -> None:
    broker = Grouped()
    rebalance(broker)
    samples = scrape(broker)
    assert samples['groups{state="Stable",type="classic"}'] == 1
    assert samples["group_rebalances_total"] == 1


def test_who_waits_is_seen() -> None:
    """For a commit here."""
    broker = Grouped()
    assert scrape(broker)["group_pending_replies"] == 0
    broker.offsets_log.hold_writes = True
    broker.send(commit_request(offset=5), 9)
    assert scrape(broker)["group_pending_replies"] == 1
    broker.offsets_log.let_write()
    broker.runtime.run_turn()
    assert scrape(broker)["group_pending_replies"] == 0


def test_a_load_is_seen_and_not_counted_as_new() -> None:
    """What a shard replays, nobody has just committed."""
    storage = PlainStorage()
    broker = Grouped(storage)
    broker.commit(5)
    rebalance(broker)
    broker.stop()
    again = Grouped(storage)
    samples = scrape(again)
    assert samples["group_loads_total"] == 1
    assert samples["group_records_replayed_total"] == 2
    assert samples["group_offset_commits_total"] == 0
    assert samples["group_rebalances_total"] == 0
    assert samples["group_records_appended_total"] == 0
    assert samples["group_offsets"] == 1
    assert samples["group_load_max_seconds"] >= samples["group_load_last_seconds"] >= 0


def test_a_dropped_shard_is_seen_and_takes_no_count_with_it() -> None:
    """Counters only go up."""
    broker = Grouped()
    broker.commit(1)
    broker.offsets_log.fail_next_write = True
    broker.commit(2)
    samples = scrape(broker)
    assert samples['group_shards{state="dropped"}'] == 1
    assert samples["group_shards_dropped_total"] == 1
    broker.runtime.advance(RELOAD_DELAY_MS)
    broker.commit(3)
    samples = scrape(broker)
    assert samples['group_shards{state="active"}'] == 1
    assert samples["group_offset_commits_total"] == 3, "the one that failed was placed"
    assert samples["group_loads_total"] == 2
