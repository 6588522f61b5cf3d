"""Write docs/monitoring/dashboard.json, a dashboard for Grafana, from the rows below.

    python tools/grafana_dashboard.py > docs/monitoring/dashboard.json

tests/test_monitoring.py holds the file to what this prints, and each expression to the metrics that a broker has.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

WIDTH = 24
"""Columns of a dashboard of Grafana's."""
NODES = 'job="$job", instance=~"$instance"'


class Line(NamedTuple):
    """One expression of a panel. ``$$`` stands for the labels that choose the nodes."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """One panel."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    description: str = ""
    stat: bool = False
    """A number instead of a graph. It is red from 1 on, unless ``good`` says what it should be."""
    good: float | None = None


def _quantile(quantile: float, metric: str, by: str = "", more: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({quantile}, sum by ({labels}) (rate({metric}_bucket{{$${more}}}[$__rate_interval])))"


def _quantiles(metric: str, more: str = "") -> tuple[Line, ...]:
    return tuple(
        Line(_quantile(quantile, metric, more=more), f"p{quantile * 100:g}")
        for quantile in (0.5, 0.99, 0.999)
    )


def _rate(metric: str, by: str, more: str = "") -> Line:
    legend = ", ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    return Line(f"sum by ({by}) (rate({metric}{{$${more}}}[$__rate_interval]))", legend)


def _each(metric: str, legend: str = "{{instance}}") -> Line:
    return Line(f"{metric}{{$$}}", legend)


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Cluster",
        (
            Panel(
                "Active controllers",
                "none",
                (Line('sum(blumfeld_active_controller{job="$job"})'),),
                "One, but for the moments of an election.",
                stat=True,
                good=1,
            ),
            Panel(
                "Partitions without a leader",
                "none",
                (Line("max(blumfeld_offline_partitions{$$})"),),
                stat=True,
            ),
            Panel(
                "Under min.insync.replicas",
                "none",
                (Line("sum(blumfeld_under_min_isr_partitions{$$})"),),
                "Producers with acks=all are refused there.",
                stat=True,
            ),
            Panel(
                "Under-replicated",
                "none",
                (Line("sum(blumfeld_under_replicated_partitions{$$})"),),
                stat=True,
            ),
            Panel(
                "Refusing writes", "none", (Line("sum(blumfeld_partitions_refusing_writes{$$})"),), stat=True
            ),
            Panel(
                "Fenced brokers",
                "none",
                (Line('max(blumfeld_cluster_brokers{$$, state="fenced"})'),),
                stat=True,
            ),
            Panel(
                "Failed directories", "none", (Line("sum(blumfeld_offline_log_directories{$$})"),), stat=True
            ),
            Panel(
                "Unclean elections, last day",
                "none",
                (Line("sum(increase(blumfeld_unclean_leader_elections_total{$$}[1d]))"),),
                "Each may have lost records that were acknowledged.",
                stat=True,
            ),
        ),
    ),
    (
        "Traffic",
        (
            Panel("Bytes in by topic", "Bps", (_rate("blumfeld_topic_bytes_in_total", "topic"),)),
            Panel("Bytes out by topic", "Bps", (_rate("blumfeld_topic_bytes_out_total", "topic"),)),
            Panel("Records in by topic", "cps", (_rate("blumfeld_topic_log_end_offset", "topic"),)),
            Panel("Requests by API", "reqps", (_rate("blumfeld_requests_total", "api"),)),
            Panel(
                "Errors by API and code",
                "cps",
                (_rate("blumfeld_request_errors_total", "api, error"),),
                "One for each topic, partition or group with an error. Clients send most of them again.",
            ),
            Panel(
                "Connections",
                "none",
                (_each("blumfeld_connections", "{{instance}} {{listener}}"),),
            ),
        ),
    ),
    (
        "Latency",
        (
            Panel(
                "Produce, from frame to answer",
                "s",
                _quantiles("blumfeld_request_latency_seconds", ', api="Produce"'),
            ),
            Panel(
                "Fetch, waiting for records included",
                "s",
                _quantiles("blumfeld_request_latency_seconds", ', api="Fetch"'),
            ),
            Panel(
                "Event loop lag, p99",
                "s",
                (Line(_quantile(0.99, "blumfeld_loop_lag_seconds", "instance"), "{{instance}}"),),
                "How long a request may wait before the node looks at it.",
            ),
            Panel(
                "Syncs to the device, p99",
                "s",
                (
                    Line(
                        _quantile(0.99, "blumfeld_log_sync_seconds", "instance, directory"),
                        "{{instance}} {{directory}}",
                    ),
                ),
            ),
            Panel("Requests that wait", "none", (_each("blumfeld_parked_requests"),)),
        ),
    ),
    (
        "Replication",
        (
            Panel(
                "Records that the slowest follower lacks",
                "none",
                (_each("blumfeld_replica_max_lag_records"),),
            ),
            Panel(
                "Replicas that left and joined ISRs",
                "cps",
                (
                    Line("-sum(rate(blumfeld_isr_shrinks_total{$$}[$__rate_interval]))", "left"),
                    Line("sum(rate(blumfeld_isr_expands_total{$$}[$__rate_interval]))", "joined"),
                ),
            ),
            Panel(
                "Leader elections",
                "cps",
                (
                    Line("sum(rate(blumfeld_leader_elections_total{$$}[$__rate_interval]))", "all"),
                    Line(
                        "sum(rate(blumfeld_unclean_leader_elections_total{$$}[$__rate_interval]))", "unclean"
                    ),
                ),
            ),
            Panel("Partitions led", "none", (_each("blumfeld_led_partitions"),)),
            Panel(
                "Reassigned, and not led by the preferred replica",
                "none",
                (
                    Line("sum(blumfeld_reassigning_partitions{$$})", "reassigned"),
                    Line("sum(blumfeld_preferred_replica_imbalance{$$})", "not preferred"),
                ),
            ),
            Panel(
                "Metadata behind the newest node",
                "none",
                (
                    Line(
                        'scalar(max(blumfeld_metadata_applied_offset{job="$job"}))'
                        " - blumfeld_metadata_applied_offset{$$}",
                        "{{instance}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Groups and transactions",
        (
            Panel(
                "Lag by group",
                "none",
                (Line('sum by (group) (blumfeld_group_lag{job=~"$job(-lag)?"})', "{{group}}"),),
                "From /lag, which is a scrape of its own: see README.md.",
            ),
            Panel("Groups by state", "none", (Line("sum by (state) (blumfeld_groups{$$})", "{{state}}"),)),
            Panel("Rebalances", "cps", (_rate("blumfeld_group_rebalances_total", "instance"),)),
            Panel("Open transactions", "none", (_each("blumfeld_transactions_open"),)),
            Panel("Oldest open transaction", "s", (_each("blumfeld_transactions_oldest_open_seconds"),)),
        ),
    ),
    (
        "Processes",
        (
            Panel(
                "CPU",
                "percentunit",
                (_rate("blumfeld_process_cpu_seconds_total", "instance"),),
                "A node's loop has one core: near 100 % it is full. Workers that sync and clean come on top.",
            ),
            Panel("Resident memory", "bytes", (_each("blumfeld_process_resident_memory_bytes"),)),
            Panel(
                "Open descriptors",
                "percentunit",
                (
                    Line(
                        "blumfeld_process_open_fds{$$} / blumfeld_process_max_fds{$$}",
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "Memory of requests and answers",
                "bytes",
                (
                    _each("blumfeld_network_request_memory_bytes", "{{instance}} requests"),
                    _each("blumfeld_network_answer_memory_bytes", "{{instance}} answers"),
                ),
            ),
            Panel(
                "Log bytes by topic",
                "bytes",
                (Line("sum by (topic) (blumfeld_topic_log_bytes{$$})", "{{topic}}"),),
            ),
            Panel(
                "Build",
                "none",
                (Line("count by (version) (blumfeld_build_info{$$})", "{{version}}"),),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Returns the dashboard, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top},
            }
        )
        top += 1
        left = 0
        for panel in row:
            width, height = (WIDTH // 8, 4) if panel.stat else (WIDTH // 3, 8)
            if left + width > WIDTH:
                left, top = 0, top + height
            panels.append(_panel(panel, len(panels) + 1, {"h": height, "w": width, "x": left, "y": top}))
            left += width
        top += 4 if row[0].stat else 8
    return {
        "uid": "blumfeld",
        "title": "Blumfeld",
        "tags": ["blumfeld"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _variables() -> list[dict[str, Any]]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "type": "query",
            "datasource": source,
            "query": "label_values(blumfeld_build_info, job)",
            "refresh": 2,
        },
        {
            "name": "instance",
            "label": "Node",
            "type": "query",
            "datasource": source,
            "query": 'label_values(blumfeld_build_info{job="$job"}, instance)',
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
        },
    ]


def _panel(panel: Panel, panel_id: int, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0 if not _has_negative(panel) else None}
    if panel.stat:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": 1}]
        if panel.good is not None:
            steps = [
                {"color": "red", "value": None},
                {"color": "green", "value": panel.good},
                {"color": "red", "value": panel.good + 1},
            ]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "id": panel_id,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {
                "refId": "ABCDEF"[nth],
                "datasource": source,
                "expr": line.expression.replace("$$", NODES),
                "legendFormat": line.legend or "__auto",
                "instant": panel.stat,
                "range": not panel.stat,
            }
            for nth, line in enumerate(panel.lines)
        ],
    }


def _has_negative(panel: Panel) -> bool:
    return any(line.expression.startswith("-") for line in panel.lines)


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=2))
