"""The state of a cluster as tables that a person reads."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from blumfeld.cli.cluster.processes import RUNNING, UNKNOWN
from blumfeld.cli.cluster.view import ClusterView, NodeView, QuorumView


def print_view(view: ClusterView, console: Console) -> None:
    """Print the quorum, the nodes, and the partitions that lack something."""
    console.print(f"cluster {view.cluster_id or 'unknown'}", highlight=False)
    if view.quorum is None:
        console.print("quorum: no leader answers", highlight=False)
    else:
        console.print(_quorum(view.quorum))
    console.print(_nodes(view.nodes))
    if view.partitions is None:
        console.print("partitions: no node answered", highlight=False)
    else:
        console.print(
            f"{view.topics} topics, {view.partitions} partitions: {view.without_leader} without a leader, "
            f"{view.under_replicated} under-replicated",
            highlight=False,
        )
    if view.named:
        console.print(_partitions(view))
    if view.cuts:
        cut = ", ".join(f"{sender} → {receiver}" for sender, receiver in view.cuts)
        console.print(f"cut: {cut}", highlight=False)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for column in columns:
        is_number = column.startswith("#")
        table.add_column(column.removeprefix("#"), justify="right" if is_number else "left", no_wrap=True)
    return table


def _quorum(quorum: QuorumView) -> Table:
    leader = "no leader" if quorum.leader < 0 else f"leader {quorum.leader}"
    title = f"quorum: {leader}, epoch {quorum.epoch}, committed up to {quorum.high_watermark}"
    table = _table(title, "#node", "part", "#log end", "#lag", "caught up")
    for replica in quorum.replicas:
        part = (
            "active controller"
            if replica.id == quorum.leader
            else "voter"
            if replica.is_voter
            else "observer"
        )
        ago = "" if replica.caught_up_ms_ago is None else f"{replica.caught_up_ms_ago:,} ms ago"
        table.add_row(
            str(replica.id),
            part,
            str(replica.log_end_offset),
            str(replica.lag),
            "" if replica.id == quorum.leader else ago,
        )
    return table


def _nodes(nodes: list[NodeView]) -> Table:
    columns = (
        "#node",
        "roles",
        "address",
        "process",
        "in the quorum",
        "#leads",
        "#replicas",
        "#not in sync",
        "#lag",
    )
    table = _table("nodes", *columns)
    for node in nodes:
        # A paused process accepts connections and answers none, and so does one that hangs or was cut off.
        process = "running, no answer" if node.process == RUNNING and not node.answers else node.process
        if node.process == UNKNOWN:
            process = "answers" if node.answers else "no answer"
        is_broker = "broker" in node.roles
        counts = [str(node.leads), str(node.replicas), str(node.not_in_sync)] if is_broker else ["", "", ""]
        lag = "" if node.lag is None else str(node.lag)
        table.add_row(str(node.id), ", ".join(node.roles), node.address, process, _place(node), *counts, lag)
    return table


def _place(node: NodeView) -> str:
    """Say what a voter knows of the quorum. A broker alone isn't asked: it has no part in an election."""
    if node.place is None:
        return ""
    leader = node.place.leader
    knows = "no leader" if leader < 0 else "leads" if leader == node.id else f"follows {leader}"
    return f"{knows}, epoch {node.place.epoch}"


def _partitions(view: ClusterView) -> Table:
    count = max(view.without_leader or 0, view.under_replicated or 0)
    more = f" (the first {len(view.named)})" if count > len(view.named) else ""
    table = _table(
        f"partitions that lack something{more}", "topic", "#partition", "#leader", "replicas", "in sync"
    )
    for partition in view.named:
        leader = "none" if partition.leader is None else str(partition.leader)
        replicas, isr = (" ".join(map(str, ids)) for ids in (partition.replicas, partition.isr))
        table.add_row(partition.topic, str(partition.partition), leader, replicas, isr)
    return table
