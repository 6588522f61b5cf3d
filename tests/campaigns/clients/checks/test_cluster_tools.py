"""What Kafka's tools for operators print is read cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.clients import java
from campaigns.clients.checks.cluster_tools import ClusterTools, cells, events, numbers, plan, table
from campaigns.clients.checks.scene import Scene
from campaigns.clients.verdicts import CheckFailed, NotOffered

ENDPOINTS = """\
ID         HOST      PORT       RACK       STATE      ENDPOINT_TYPE
1          127.0.0.1 21100      null       unfenced   broker
2          127.0.0.1 21110      null       unfenced   broker
"""
DESCRIBED = """\
Topic: t\tTopicId: E3cmkrh1pcPlcGYYm2hV9A\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: min.insync.replicas=2
\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 2,1\tElr: \tLastKnownElr:
\tTopic: t\tPartition: 1\tLeader: 2\tReplicas: 2,3\tIsr: 2\tElr: \tLastKnownElr:
"""
DIRECTORIES = """\
Querying brokers for log directories information
{"brokers":[{"broker":1,"logDirs":[{"partitions":[{"partition":"t-0","size":7}],"logDir":"/a"}]},{"broker":2,"logDirs":[]}]}
"""
SENT = """\
{"timestamp":1,"name":"startup_complete"}
{"timestamp":2,"name":"producer_send_success","partition":0}
"""


class Printing(ClusterTools):
    """Tools that print what the test says, by the name of the class."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **printed: str) -> None:
        script = tmp_path / "peer"
        cases = "\n".join(f"*.{tool}*) cat {tmp_path / tool} ;;" for tool in printed)
        for tool, text in printed.items():
            (tmp_path / tool).write_text(text)
        script.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}\n*) echo no such tool >&2; exit 1 ;;\nesac\n')
        script.chmod(0o755)
        monkeypatch.setenv(java.PEER_VARIABLE, str(script))
        scene = Scene.__new__(Scene)
        scene.bootstrap = "127.0.0.1:1"
        super().__init__(scene)


def test_rows_and_cells_are_read_by_their_titles() -> None:
    assert [(row["ID"], row["STATE"]) for row in table(ENDPOINTS)] == [("1", "unfenced"), ("2", "unfenced")]
    assert table("") == []
    assert cells("\tTopic: t\tIsr: 2,1\tElr: ") == {"Topic": "t", "Isr": "2,1", "Elr": ""}
    assert numbers("2,1") == [2, 1]
    assert numbers("") == []
    assert [event["name"] for event in events("a log line\n" + SENT)] == [
        "startup_complete",
        "producer_send_success",
    ]
    assert plan("t", {1: [2, 3]})["partitions"] == [{"topic": "t", "partition": 1, "replicas": [2, 3]}]


def test_each_tool_is_read_as_it_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tools = Printing(
        monkeypatch,
        tmp_path,
        TopicCommand=DESCRIBED,
        GetOffsetShell="t:0:20\nt:1:\n",
        LogDirsCommand=DIRECTORIES,
        VerifiableProducer=SENT,
        ConfigCommand="Dynamic configs for broker 1 are:\n  log.cleaner.threads=2 sensitive=false synonyms={}\n",
    )
    assert tools.leaders("t") == [1, 2]
    assert tools.replicas("t") == [[1, 2], [2, 3]]
    assert tools.offsets("t", "latest") == {0: 20}
    assert tools.log_dirs("t") == {1: {"t-0": {"partition": "t-0", "size": 7, "logDir": "/a"}}, 2: {}}
    assert tools.configs("brokers") == {"log.cleaner.threads": "2"}
    tools.write("t", 1)
    with pytest.raises(CheckFailed, match="1 of 2 records"):
        tools.write("t", 2)


def test_what_must_be_refused_is_no_failure_and_success_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = Printing(monkeypatch, tmp_path, FeatureCommand="done\n")
    assert "no such tool" in tools.refusal("TopicCommand", "--delete")
    with pytest.raises(CheckFailed, match="was not refused"):
        tools.refusal("FeatureCommand", "describe")


def test_checks_of_replicas_need_three_brokers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tools = Printing(monkeypatch, tmp_path, ClusterTool=ENDPOINTS)
    assert tools.all_brokers() == [1, 2]
    with pytest.raises(NotOffered, match="needs 3 brokers"):
        tools.brokers()
