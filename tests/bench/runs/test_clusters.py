"""The nodes of a cluster as processes: up together, measured together, gone together."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from blumfeld.kernel.runtime.process_ends import has_ended
from blumfeld_bench.plan.variants import VariantSpec, parse_variant
from blumfeld_bench.runs import servers
from blumfeld_bench.runs.servers import Server, ServerCluster, ServerError, start_variant
from blumfeld_bench.usage import summed
from tests.bench.lingering_server import READY, TOLD

SMALL = Path(__file__).parents[1] / "small_server.py"
LINGERING = SMALL.with_name("lingering_server.py")
NODES = 3


def small(known: int = NODES, nodes: int = NODES, program: str = f"-S {SMALL}") -> VariantSpec:
    """Nodes that are up at once, each of which names ``known`` brokers."""
    start = f"{sys.executable} {program} {{port}} {{folder}} {known} {{id}} {{voters}}"
    return parse_variant(
        f"kafka://127.0.0.1:0 --label c --warm-up 0 --nodes {nodes} --start {shlex.quote(start)}"
    )


def test_all_nodes_are_up_are_counted_together_and_end_together(tmp_path: Path) -> None:
    cluster = start_variant(small(), tmp_path / "c")
    assert isinstance(cluster, ServerCluster)
    try:
        ports = [node.port for node in cluster.nodes]
        assert len(set(ports)) == NODES
        assert all(node.answers() for node in cluster.nodes)
        assert cluster.port == ports[0]
        assert cluster.is_up
        assert cluster.ready_s > 0
        pids = cluster.pids()
        assert len(pids) == 2 * NODES  # each has a child
        assert set(pids) == {pid for node in cluster.nodes for pid in node.pids()}
        by_node = cluster.totals_by_node()
        assert [node.rss_bytes > 4_000_000 for node in by_node] == [True] * NODES
        assert summed(by_node).rss_bytes == sum(node.rss_bytes for node in by_node)
        assert [node.folder.name for node in cluster.nodes] == ["node1", "node2", "node3"]
    finally:
        cluster.stop()
    assert all(map(has_ended, pids))
    assert not any((node.folder / "data").exists() for node in cluster.nodes)
    assert not cluster.is_up


def test_a_node_gets_its_own_id_and_all_voters(tmp_path: Path) -> None:
    cluster = start_variant(small(), tmp_path / "c")
    assert isinstance(cluster, ServerCluster)
    try:
        lines = [Path(f"/proc/{node.pid}/cmdline").read_text().split("\0") for node in cluster.nodes]
        assert [words[6] for words in lines] == ["1", "2", "3"]
        assert len({words[7] for words in lines}) == 1
        voters = [voter.partition("@") for voter in lines[0][7].split(",")]
        assert [voter[0] for voter in voters] == ["1", "2", "3"]
        assert not {int(at.rpartition(":")[2]) for _, _, at in voters} & {node.port for node in cluster.nodes}
    finally:
        cluster.stop()


def test_each_node_is_told_once_to_end(tmp_path: Path) -> None:
    """A second SIGTERM would end a node of this build at once. The second node ends after the first one."""
    nodes = []
    for nth, seconds in enumerate(("0.1", "0.4")):
        command = [sys.executable, "-S", str(LINGERING), seconds]
        nodes.append(Server(f"node {nth}", command, tmp_path / str(nth), port=0))
        nodes[-1].launch()
    for node in nodes:
        while READY not in node.printed():
            time.sleep(0.01)
    ServerCluster("c", tuple(nodes), tmp_path).stop()
    assert [node.printed().count(TOLD) for node in nodes] == [1, 1]
    assert [node.wait(0) for node in nodes] == [0, 0]


def test_a_cluster_whose_node_ends_is_not_up_and_says_what_that_node_printed(tmp_path: Path) -> None:
    cluster = start_variant(small(), tmp_path / "c")
    assert isinstance(cluster, ServerCluster)
    try:
        (cluster.nodes[1].folder / "log").write_text("out of luck")
        os.kill(cluster.nodes[1].pid, 9)
        cluster.nodes[1].wait()
        assert not cluster.is_up
        assert cluster.printed().startswith("c, node 2:\nout of luck")
    finally:
        cluster.stop()


def test_nodes_that_do_not_know_each_other_are_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "READY_TIMEOUT_S", 0.2)
    with pytest.raises(ServerError, match="c, node 1 did not name 3 brokers"):
        start_variant(small(known=NODES - 1), tmp_path / "c")


def test_a_node_that_ends_at_its_start_ends_the_others(tmp_path: Path) -> None:
    """The last one of them, so that the others are up by then."""
    script = tmp_path / "picky.py"
    script.write_text(
        f"import os, sys\nsys.argv[4] == '3' and sys.exit('not me')\n"
        f"os.execv(sys.executable, [sys.executable, '-S', {str(SMALL)!r}, *sys.argv[1:]])\n"
    )
    with pytest.raises(ServerError, match=r"(?s)c, node 3 ended; .*\nnot me"):
        start_variant(small(program=str(script)), tmp_path / "c")
    folder = str(tmp_path / "c")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and not has_ended(int(entry.name)):
            assert folder not in (entry / "cmdline").read_text()


def test_one_node_is_a_server(tmp_path: Path) -> None:
    server = start_variant(small(known=1, nodes=1), tmp_path / "s")
    try:
        assert isinstance(server, Server)
    finally:
        server.stop()
