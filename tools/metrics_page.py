"""Write docs/metrics.md from what a running broker answers to /metrics.

    python tools/metrics_page.py > docs/metrics.md

tests/test_metrics_page.py holds the page to what this prints.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from blumfeld.bench.running.wire_client import WireClient
from blumfeld.testing import EmbeddedBroker

INTRODUCTION = """\
# Metrics

What `/metrics` answers for the default composition, in the text form of Prometheus. Written by
`tools/metrics_page.py` from a running broker; don't edit it by hand. `metrics.bind` in the
[manifest](manifest.md) opens the port, and [operations.md](operations.md#metrics) says which of these to
watch. A plug-in may add its own.

A counter begins at 0 with each start of the process. A name ends with its unit. A label has a bounded number
of values: the APIs of the protocol, the listeners of the node, the topics that it hosts.
"""


def page() -> list[str]:
    """The page's lines."""
    return [
        INTRODUCTION,
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
        *sorted(_rows()),
    ]


def scraped() -> tuple[str, dict[str, tuple[str, ...]]]:
    """The text that a broker with one topic gives to a scraper, and labels by metric as far as its parts name them."""
    manifest = {"metrics": {"bind": "127.0.0.1:0"}}
    with EmbeddedBroker(storage="storage_local", manifest=manifest) as broker:
        with WireClient(broker.host, broker.port) as client:
            client.create_topic("letters", 1)
            client.wait_for_leaders("letters")
        address = f"http://127.0.0.1:{broker.node.metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=30) as answer:
            text = answer.read().decode()
        return text, {metric.name: metric.labels for metric in broker.node.metrics.values()}


def _rows() -> Iterator[str]:
    text, labels = scraped()
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        shown = ", ".join(f"`{label}`" for label in sorted({*labels.get(name, ()), *_labels(family)}))
        yield f"| `{name}` | {family.type} | {shown} | {family.documentation} |"


def _labels(family: Family) -> set[str]:
    """The names of its labels, as far as there are samples; ``le`` names a histogram's bucket."""
    return {label for sample in family.samples for label in sample.labels} - {"le"}


if __name__ == "__main__":
    print("\n".join(page()))
