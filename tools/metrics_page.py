"""Write docs/metrics.md from what a running broker answers to /metrics.

    python tools/metrics_page.py > docs/metrics.md

tests/test_metrics_page.py holds the page to what this prints.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import SimpleNamespace

from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from blumfeld.spi.hooks import Metric
from blumfeld.testing import EmbeddedBroker
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_consensus_zk_compat.counts import Counts
from blumfeld_consensus_zk_compat.counts import metrics as zookeeper_metrics
from blumfeld_storage_tiered.tasks.gauges import gauges

MEASURED = {"metrics": {"bind": "127.0.0.1:0"}}
INTRODUCTION = """\
# Metrics

What `/metrics` answers for the default composition, in the text form of Prometheus. Written by
`tools/metrics_page.py` from a running broker; don't edit it by hand. `metrics.bind` in the
[manifest](manifest.md) opens the port, and [operations.md](operations.md#metrics) says which of these to
watch. A plug-in may add its own.

A counter begins at 0 with each start of the process. A name ends with its unit. A label has a bounded number
of values: the APIs of the protocol, the listeners of the node, the topics that it hosts.

[monitoring/](monitoring/README.md) has a dashboard for Grafana and alert rules for Prometheus.
"""

TIERED = """
## With tiered storage

What `storage_tiered` adds ([tiered.md](tiered.md)). A topic has its samples on the nodes that lead its partitions.

| metric | kind | labels | meaning |
|---|---|---|---|
"""

ZOOKEEPER = """
## With a ZooKeeper

What `consensus_zk_compat` adds ([operations.md](operations.md#with-a-zookeeper)).

| metric | kind | labels | meaning |
|---|---|---|---|
"""

SECURED = """
## With security and quotas

What the plug-ins `security` ([security.md](security.md)) and `quotas` ([quotas.md](quotas.md)) add.

| metric | kind | labels | meaning |
|---|---|---|---|
"""

LAG = """
## What `/lag` answers

| metric | kind | labels | meaning |
|---|---|---|---|
"""

KAFKA = """
## For a dashboard of Kafka's

The MBeans that dashboards and alerts for Kafka read, and what to read here. Kafka's rates are counters here:
`rate(…[1m])` in PromQL makes the same of them. Kafka counts many of them by broker; the label of the scrape's
`instance` does that.

| Kafka's MBean | here |
|---|---|
"""

HERE_INSTEAD = "one loop serves a node: `blumfeld_loop_lag_seconds` is how long a request waits for it"
SERVER, NETWORK, LOG = "kafka.server:type=", "kafka.network:type=", "kafka.log:type="
CONTROLLER, REPLICAS = "kafka.controller:type=KafkaController,name=", f"{SERVER}ReplicaManager,name="
TOPICS, REQUESTS = f"{SERVER}BrokerTopicMetrics,name=", f"{NETWORK}RequestMetrics,name="
MBEANS = (
    (f"{TOPICS}MessagesInPerSec", "`blumfeld_topic_log_end_offset`: its rate"),
    (f"{TOPICS}BytesInPerSec", "`blumfeld_topic_bytes_in_total`"),
    (f"{TOPICS}BytesOutPerSec", "`blumfeld_topic_bytes_out_total`"),
    (f"{TOPICS}TotalProduceRequestsPerSec", '`blumfeld_requests_total{api="Produce"}`'),
    (f"{TOPICS}TotalFetchRequestsPerSec", '`blumfeld_requests_total{api="Fetch"}`'),
    (f"{TOPICS}FailedProduceRequestsPerSec", '`blumfeld_request_errors_total{api="Produce"}`'),
    (f"{TOPICS}FailedFetchRequestsPerSec", '`blumfeld_request_errors_total{api="Fetch"}`'),
    (f"{REQUESTS}RequestsPerSec,request=*", "`blumfeld_requests_total`"),
    (f"{REQUESTS}ErrorsPerSec,request=*,error=*", "`blumfeld_request_errors_total`"),
    (f"{REQUESTS}TotalTimeMs,request=*", "`blumfeld_request_latency_seconds`"),
    (f"{REQUESTS}RequestBytes,request=*", "`blumfeld_request_bytes_total`"),
    (f"{REQUESTS}RequestQueueTimeMs,request=*", HERE_INSTEAD),
    (f"{NETWORK}RequestChannel,name=RequestQueueSize", HERE_INSTEAD),
    (
        f"{NETWORK}SocketServer,name=NetworkProcessorAvgIdlePercent",
        "1 less the rate of `blumfeld_process_cpu_seconds_total`",
    ),
    (
        f"{SERVER}KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        "1 less the rate of `blumfeld_process_cpu_seconds_total`",
    ),
    (f"{SERVER}socket-server-metrics: connection-count", "`blumfeld_connections`"),
    (f"{SERVER}socket-server-metrics: connection-creation-rate", "`blumfeld_connections_accepted_total`"),
    (f"{SERVER}DelayedOperationPurgatory,name=PurgatorySize", "`blumfeld_parked_requests`"),
    (f"{REPLICAS}PartitionCount", "`blumfeld_hosted_partitions`"),
    (f"{REPLICAS}LeaderCount", "`blumfeld_led_partitions`"),
    (f"{REPLICAS}UnderReplicatedPartitions", "`blumfeld_under_replicated_partitions`"),
    (f"{REPLICAS}UnderMinIsrPartitionCount", "`blumfeld_under_min_isr_partitions`"),
    (f"{REPLICAS}AtMinIsrPartitionCount", "`blumfeld_at_min_isr_partitions`"),
    (f"{REPLICAS}OfflineReplicaCount", "`blumfeld_offline_replicas`"),
    (f"{REPLICAS}ReassigningPartitions", "`blumfeld_reassigning_partitions`"),
    (
        f"{REPLICAS}IsrShrinksPerSec",
        "`blumfeld_isr_shrinks_total`: replicas, and also those that the controller took out",
    ),
    (f"{REPLICAS}IsrExpandsPerSec", "`blumfeld_isr_expands_total`: replicas"),
    (
        f"{SERVER}ReplicaFetcherManager,name=MaxLag,clientId=Replica",
        "`blumfeld_replica_max_lag_records`, on the leader",
    ),
    (f"{CONTROLLER}ActiveControllerCount", "`blumfeld_active_controller`"),
    (f"{CONTROLLER}OfflinePartitionsCount", "`blumfeld_offline_partitions`, on every node"),
    (
        f"{CONTROLLER}PreferredReplicaImbalanceCount",
        "`blumfeld_preferred_replica_imbalance`: the sum over all nodes",
    ),
    (f"{CONTROLLER}ActiveBrokerCount, FencedBrokerCount", "`blumfeld_cluster_brokers`"),
    (
        f"{CONTROLLER}GlobalTopicCount, GlobalPartitionCount",
        "`blumfeld_cluster_topics`, `blumfeld_cluster_partitions`",
    ),
    (
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
        "`blumfeld_unclean_leader_elections_total`; all elections: `blumfeld_leader_elections_total`",
    ),
    (
        f"{SERVER}raft-metrics: current-leader, current-epoch",
        "`blumfeld_controller_id`, `blumfeld_controller_epoch`",
    ),
    (f"{SERVER}broker-metadata-metrics: last-applied-record-offset", "`blumfeld_metadata_applied_offset`"),
    (f"{LOG}LogFlushStats,name=LogFlushRateAndTimeMs", "`blumfeld_log_sync_seconds`"),
    (f"{LOG}Log,name=Size", "`blumfeld_topic_log_bytes`"),
    (f"{LOG}Log,name=LogEndOffset", "`blumfeld_topic_log_end_offset`"),
    (f"{LOG}LogManager,name=OfflineLogDirectoryCount", "`blumfeld_offline_log_directories`"),
    (
        f"{LOG}LogCleanerManager,name=uncleanable-partitions-count",
        "`blumfeld_log_cleaner_uncleanable_partitions`",
    ),
    (f"{LOG}LogCleaner,name=max-clean-time-secs", "`blumfeld_log_cleaner_max_clean_time_seconds`"),
    (f"{SERVER}group-coordinator-metrics: group-count", "`blumfeld_groups`"),
    (f"{SERVER}group-coordinator-metrics: offset-commit-rate", "`blumfeld_group_offset_commits_total`"),
    (
        f"{SERVER}group-coordinator-metrics: group-completed-rebalance-rate",
        "`blumfeld_group_rebalances_total`",
    ),
    (f"{SERVER}group-coordinator-metrics: partition-load-time-max", "`blumfeld_group_load_max_seconds`"),
    ("kafka.consumer:type=consumer-fetch-manager-metrics: records-lag", "`blumfeld_group_lag`, from `/lag`"),
    ("java.lang:type=OperatingSystem: ProcessCpuTime", "`blumfeld_process_cpu_seconds_total`"),
    (
        "java.lang:type=OperatingSystem: OpenFileDescriptorCount, MaxFileDescriptorCount",
        "`blumfeld_process_open_fds`, `blumfeld_process_max_fds`",
    ),
    ("java.lang:type=Memory: HeapMemoryUsage", "`blumfeld_process_resident_memory_bytes`"),
    ("java.lang:type=GarbageCollector", "`blumfeld_loop_lag_seconds` has its pauses"),
    *(
        (f"{TOPICS}Remote{kafkas}", f"`blumfeld_topic_remote_{ours}`")
        for kafkas, ours in (
            ("CopyBytesPerSec", "copy_bytes_total"),
            ("CopyRequestsPerSec", "copy_requests_total"),
            ("CopyErrorsPerSec", "copy_errors_total"),
            ("CopyLagBytes", "copy_lag_bytes"),
            ("CopyLagSegments", "copy_lag_segments"),
            ("FetchBytesPerSec", "fetch_bytes_total"),
            ("FetchRequestsPerSec", "fetch_requests_total"),
            ("FetchErrorsPerSec", "fetch_errors_total"),
            ("DeleteRequestsPerSec", "delete_requests_total"),
            ("DeleteErrorsPerSec", "delete_errors_total"),
            ("DeleteLagBytes", "delete_lag_bytes"),
            ("DeleteLagSegments", "delete_lag_segments"),
            ("LogSizeBytes", "log_bytes"),
            ("LogMetadataCount", "log_segments"),
        )
    ),
    (f"{TOPICS}BuildRemoteLogAuxStateRequestsPerSec", "`blumfeld_topic_remote_build_state_requests_total`"),
    (f"{TOPICS}BuildRemoteLogAuxStateErrorsPerSec", "`blumfeld_topic_remote_build_state_errors_total`"),
    (
        "org.apache.kafka.storage.internals.log:type=RemoteStorageThreadPool,name=RemoteLogReaderTaskQueueSize",
        "`blumfeld_remote_reads_waiting`",
    ),
    (f"{SERVER}DelayedRemoteFetchMetrics,name=ExpiresPerSec", "`blumfeld_remote_fetches_expired_total`"),
    (
        f"{SERVER}SessionExpireListener,name=ZooKeeperExpiresPerSec",
        "`blumfeld_zookeeper_sessions_expired_total`",
    ),
    (f"{SERVER}app-info: version", "`blumfeld_build_info`"),
)
"""Kafka's MBean → the metric here."""
WITHOUT_SAMPLES = {
    "blumfeld_group_lag": ("group", "partition", "topic"),
    "blumfeld_group_lag_partitions_left_out": ("group",),
    "blumfeld_request_errors_total": ("api", "error"),
}
"""Labels of metrics that show nothing on a broker without errors and groups."""


def page() -> list[str]:
    """The page's lines."""
    return [
        INTRODUCTION,
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
        *sorted(_rows(*measured())),
        TIERED.rstrip(),
        *sorted(_told_rows(gauges(SimpleNamespace(cache=None)))),  # type: ignore[arg-type]  # nothing is read
        ZOOKEEPER.rstrip(),
        *sorted(_told_rows(zookeeper_metrics(Counts()))),
        SECURED.rstrip(),
        *sorted(_told_rows(_secured())),
        LAG.rstrip(),
        *sorted(_rows(lag_scraped(), WITHOUT_SAMPLES)),
        KAFKA.rstrip(),
        *(f"| `{mbean}` | {here} |" for mbean, here in MBEANS),
    ]


@cache
def _answers() -> tuple[str, str, dict[str, tuple[str, ...]]]:
    with EmbeddedBroker(storage="storage_local", manifest=MEASURED) as broker:
        with WireClient(broker.host, broker.port) as client:
            client.create_topic("letters", 1)
            client.wait_for_leaders("letters")
        address = f"http://127.0.0.1:{broker.node.metrics_port}"
        texts = []
        for path in ("/metrics", "/lag"):
            with urllib.request.urlopen(address + path, timeout=30) as answer:
                texts.append(answer.read().decode())
        labels = {metric.name: metric.labels for metric in broker.node.metrics.values()}
        return texts[0], texts[1], labels | WITHOUT_SAMPLES


def measured() -> tuple[str, dict[str, tuple[str, ...]]]:
    """The text that a broker with one topic gives to a scraper, and labels by metric as far as its parts name them."""
    text, _, labels = _answers()
    return text, labels


def _secured() -> list[Metric]:
    """The metrics that a broker has more with both plug-ins."""
    plugins = {name: {"plugin": name} for name in ("security", "quotas")}
    with EmbeddedBroker(manifest={**MEASURED, **plugins}) as broker:
        return [metric for metric in broker.node.metrics.values() if metric.name not in _answers()[2]]


def lag_scraped() -> str:
    """The text of ``/lag``. There is no group, so that it has no sample of one."""
    return _answers()[1]


def _rows(text: str, labels: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        shown = ", ".join(f"`{label}`" for label in sorted({*labels.get(name, ()), *_labels(family)}))
        yield f"| `{name}` | {family.type} | {shown} | {family.documentation} |"


def _told_rows(metrics: Iterable[Metric]) -> Iterator[str]:
    """The rows of metrics that the default composition hasn't."""
    for metric in metrics:
        shown = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {shown} | {metric.help} |"


def _labels(family: Family) -> set[str]:
    """The names of its labels, as far as there are samples; ``le`` names a histogram's bucket."""
    return {label for sample in family.samples for label in sample.labels} - {"le"}


if __name__ == "__main__":
    print("\n".join(page()))
