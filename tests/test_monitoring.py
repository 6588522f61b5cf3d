"""The dashboard and the alert rules name metrics that a broker has, in expressions that Prometheus understands."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "monitoring"
ALERTS = FOLDER / "alerts.yml"
GRAFANAS = {"$job": "blumfeld", "$instance": ".*", "$__rate_interval": "1m"}
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Prometheus")


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "grafana_dashboard.py"))["dashboard"]()
    return board


def expressions() -> list[str]:
    """Returns the queries of the dashboard, with values in place of Grafana's variables."""
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    for name, value in GRAFANAS.items():
        queries = [query.replace(name, value) for query in queries]
    return queries


def metrics_of(text: str) -> set[str]:
    """The metrics that a text names, without the suffixes of a histogram's samples."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bblumfeld_\w+", text)}


def checked(tmp_path: Path, text: str, *command: str) -> str:
    file = tmp_path / "rules.yml"
    file.write_text(text)
    done = subprocess.run(
        ["promtool", *command, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_dashboard_is_what_the_tool_writes() -> None:
    """Red? Run ``python tools/grafana_dashboard.py > docs/monitoring/dashboard.json``."""
    assert (FOLDER / "dashboard.json").read_text() == json.dumps(dashboard(), indent=2) + "\n"


@pytest.mark.parametrize("name", ["alerts.yml", "dashboard.json", "README.md"])
def test_only_metrics_that_a_broker_has_are_named(name: str) -> None:
    known = metrics_of((ROOT / "docs" / "metrics.md").read_text())
    assert metrics_of((FOLDER / name).read_text()) <= known
    assert len(known) > 80


def test_what_deserves_an_alert_has_one() -> None:
    """docs/operations.md has the list."""
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = page.partition("These deserve an alert")[2].partition("\n\n`")[0]
    assert metrics_of(rows) <= metrics_of(ALERTS.read_text())
    assert len(metrics_of(rows)) > 10


@promtool
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    assert "SUCCESS" in checked(tmp_path, ALERTS.read_text(), "check", "rules")


@promtool
def test_prometheus_takes_each_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:number_{nth}", "expr": expression} for nth, expression in enumerate(expressions())
    ]
    text = json.dumps({"groups": [{"name": "dashboard", "rules": rules}]})  # YAML takes JSON
    assert f"{len(rules)} rules found" in checked(tmp_path, text, "check", "rules")


SERIES = {
    'blumfeld_active_controller{job="b", instance="1"}': "1 0 0 0",
    'blumfeld_active_controller{job="b", instance="2"}': "0 0 0 0",
    'blumfeld_metadata_applied_offset{job="b", instance="1"}': "5000+0x3",
    'blumfeld_metadata_applied_offset{job="b", instance="2"}': "5000 5000 100 100",
    'blumfeld_request_errors_total{job="b", instance="1", api="Fetch", error="UNKNOWN_SERVER_ERROR"}': "0 0 0 1",
    'blumfeld_topic_remote_copy_errors_total{job="b", instance="1", topic="t"}': "0+1x60",
    'blumfeld_topic_remote_copy_lag_bytes{job="b", instance="1", topic="t"}': "1000x60",
    'blumfeld_topic_remote_copy_errors_total{job="b", instance="1", topic="well"}': "0+1x60",
    'blumfeld_topic_remote_copy_lag_bytes{job="b", instance="1", topic="well"}': "0x60",
    'blumfeld_group_lag{group="g", topic="t", partition="0"}': "20000+1000x60",
    'blumfeld_group_lag{group="still", topic="t", partition="0"}': "20000+0x60",
}
FIRING = {
    ("BlumfeldNoActiveController", "3m"): [{"severity": "page", "job": "b"}],
    ("BlumfeldNoActiveController", "0m"): [],
    ("BlumfeldMetadataBehind", "3m"): [{"severity": "ticket", "job": "b", "instance": "2"}],
    ("BlumfeldRemoteCopiesFail", "45m"): [
        {"severity": "ticket", "job": "b", "instance": "1", "topic": "t"},
    ],
    ("BlumfeldGroupFallsBehind", "45m"): [{"severity": "ticket", "group": "g"}],
}
"""(Alert, moment) → the labels that it fires with."""


@promtool
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    tests = [
        {
            "eval_time": moment,
            "alertname": name,
            "exp_alerts": [
                {"exp_labels": labels, "exp_annotations": _said(name, labels)} for labels in fired
            ],
        }
        for (name, moment), fired in FIRING.items()
    ]
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    text = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "30s",
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": tests}],
    }
    assert "SUCCESS" in checked(tmp_path, json.dumps(text), "test", "rules")


def _said(name: str, labels: dict[str, str]) -> dict[str, str]:
    """The annotations, which promtool compares too."""
    rule = ALERTS.read_text().partition(f"alert: {name}\n")[2].partition("- alert:")[0]
    values = {
        "BlumfeldMetadataBehind": "4900",
        "BlumfeldGroupFallsBehind": "65000",
    }
    texts = dict(re.findall(r'(summary|description): "(.*)"', rule))
    for key, text in texts.items():
        text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels[match.group(1)], text)
        texts[key] = text.replace("{{ $value }}", values.get(name, "")).replace('\\"', '"')
    return texts
