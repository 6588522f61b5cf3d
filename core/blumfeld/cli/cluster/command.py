"""``blumfeld cluster``: start nodes on this machine, hurt them, and look at what the cluster makes of it."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from blumfeld.cli.cluster import namespaces, processes
from blumfeld.cli.cluster.creation import new_cluster
from blumfeld.cli.cluster.discovery import addresses_of, discovered
from blumfeld.cli.cluster.questions import ask_all, joined, not_let_in, quorum_leader
from blumfeld.cli.cluster.state import ClusterError, ClusterState, NodeState, load_state, save_state
from blumfeld.cli.command_config import CommandConfig, security_of
from blumfeld.cli.manifest import BAD_MANIFEST, NOT_STARTED
from blumfeld.client.security.command_config import ClientSecurity, CommandConfigError
from blumfeld.kernel.node import StartError
from blumfeld.kernel.supervising.restarts import STOP_S_MAX, stop_order
from blumfeld.plugging.errors import ManifestError
from blumfeld.wire.errors import PluginContractError

READY_S_MAX = 60.0
"""Time of `up` until all nodes must serve, where the command says nothing else."""
KILL_S_MAX = 10.0
"""Time that the kernel has to end a process after SIGKILL."""
WIDTH = 120
"""Characters of a line where the tables go to a file or a pipe."""

Directory = Annotated[Path, typer.Option("--dir", help="The directory of the cluster.")]
NodeId = Annotated[int, typer.Argument(metavar="NODE", help="A node's id.")]

app = typer.Typer(
    name="cluster",
    help="Start several nodes on this machine for experiments, hurt them, and look at the cluster.",
    no_args_is_help=True,
)


@contextmanager
def _errors() -> Iterator[None]:
    """Print what a person must mend, and end with its status."""
    try:
        yield
    except (CommandConfigError, ManifestError, PluginContractError) as error:
        _complain(str(error))
        raise typer.Exit(BAD_MANIFEST) from None
    except (ClusterError, StartError) as error:
        _complain(str(error))
        raise typer.Exit(NOT_STARTED) from None


def _complain(text: str) -> None:
    for line in text.splitlines():
        typer.echo(f"blumfeld: {line}", err=True)


@app.command()
def up(
    count: Annotated[
        int | None,
        typer.Argument(metavar="N", help="How many nodes; the manifest's `nodes`, or 3, by default."),
    ] = None,
    manifest: Annotated[str | None, typer.Option(help="A TOML file for each of them.")] = None,
    directory: Directory = Path("cluster"),
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Lay a value over it.")
    ] = None,
    listen: Annotated[str | None, typer.Option(help="Where the first node's broker listener binds.")] = None,
    is_isolated: Annotated[
        bool, typer.Option("--isolated", help="A network namespace for each node, for `cut`. Needs root.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds until all must serve.")
    ] = READY_S_MAX,
    command_config: CommandConfig = None,
) -> None:
    """Make a cluster and start its nodes, or start those of a cluster that don't run."""
    with _errors():
        security = security_of(command_config)
        if (directory / "cluster.json").exists():
            state = load_state(directory)
            _check_same(state, count, manifest, overrides, listen, is_isolated=is_isolated)
        else:
            state = new_cluster(count, directory, manifest, overrides or (), listen, is_isolated=is_isolated)
        if state.bridge is not None:
            namespaces.check_possible()
            namespaces.make(state)
            save_state(directory, state)
        deadline = time.monotonic() + timeout_s
        ran = _start_dead(directory, state, deadline)
        _check_serving(ran, deadline, security)
    addresses = [f"{node.host}:{node.port}" for node in state.nodes if "broker" in node.roles]
    typer.echo(f"all {len(state.nodes)} nodes serve; bootstrap.servers={','.join(addresses)}")


def _check_same(
    state: ClusterState,
    count: int | None,
    manifest: str | None,
    overrides: list[str] | None,
    listen: str | None,
    *,
    is_isolated: bool,
) -> None:
    """Refuse to change a cluster that is there: its files and voters belong together."""
    given = manifest is not None or overrides or listen is not None or is_isolated
    if given or count not in (None, len(state.nodes)):
        raise ClusterError(
            f"there is a cluster of {len(state.nodes)} nodes already: `up` without arguments starts those of its "
            "nodes that don't run. Take another --dir for another cluster"
        )


def _start_dead(directory: Path, state: ClusterState, deadline: float) -> list[NodeState]:
    """Start the nodes that don't run, all at once: voters wait for each other. If one fails, stop those again.

    :return: the nodes that ran already
    """
    dead = [node for node in state.nodes if processes.state_of(node) == processes.DEAD]
    ran = [node for node in state.nodes if node not in dead]
    begun: list[tuple[NodeState, int]] = []
    try:
        begun.extend((node, processes.start(node, namespaces.prefix(node))) for node in dead)
        save_state(directory, state)
        for node, log_from in begun:
            processes.wait_until_ready(node, log_from, max(0.1, deadline - time.monotonic()))
            typer.echo(f"node {node.id} ({', '.join(node.roles)}) at {node.host}:{node.port}, pid {node.pid}")
    except BaseException:
        _end([node for node, _ in begun], signal.SIGKILL)
        save_state(directory, state)
        raise
    return ran


def _check_serving(nodes: list[NodeState], deadline: float, security: ClientSecurity) -> None:
    """Check that nodes that ran before this command serve: a process may be paused, or hang.

    :raises ClusterError: one doesn't, and the time is over or can't change it
    """
    silent = nodes
    while silent:
        paused = [node.id for node in silent if processes.state_of(node) == processes.PAUSED]
        if paused:
            resume = " and ".join(f"`blumfeld cluster resume {node}`" for node in paused)
            raise ClusterError(f"not all nodes serve: {_named(paused)} paused. {resume} lets them go on")
        answered = {node.node_id for node in asyncio.run(ask_all(silent, security))}
        silent = [node for node in silent if node.id not in answered]
        _check_let_in(silent, security)
        if silent and time.monotonic() >= deadline:
            ids = [node.id for node in silent]
            logs = ", ".join(node.log for node in silent)
            raise ClusterError(f"not all nodes serve: {_named(ids)} running without an answer; see {logs}")


def _check_let_in(silent: list[NodeState], security: ClientSecurity) -> None:
    """
    :raises ClusterError: one of these nodes, which didn't answer, doesn't let this client in
    """
    addresses = [(node.host, node.port) for node in silent]
    if (reason := asyncio.run(not_let_in(addresses, security))) is not None:
        raise ClusterError(reason)


def _named(ids: list[int]) -> str:
    return f"node {ids[0]} is" if len(ids) == 1 else f"nodes {', '.join(map(str, ids))} are"


@app.command()
def status(
    directory: Directory = Path("cluster"),
    bootstrap: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Any cluster that a broker here belongs to, instead of --dir."
        ),
    ] = None,
    command_config: CommandConfig = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the quorum, the nodes with their partitions, and the partitions that lack something."""
    with _errors():
        security = security_of(command_config)
        state = load_state(directory) if bootstrap is None else _discovered(bootstrap, security)
        # Where a node is dead, another cluster's node may listen by now.
        alive = [node for node in state.nodes if processes.state_of(node) != processes.DEAD]
        answers = asyncio.run(ask_all(alive, security))
        if not answers:
            _check_let_in(alive, security)
        view = joined(state, answers)
        if any(answer.quorum is not None and answer.quorum.quorum is None for answer in answers):
            _complain("this user may not Describe the cluster: its quorum and the brokers' lag aren't shown")
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(view)))
        return
    from rich.console import Console

    from blumfeld.cli.cluster.table import print_view

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    print_view(view, console)


def _discovered(bootstrap: str, security: ClientSecurity) -> ClusterState:
    return asyncio.run(discovered(addresses_of(bootstrap), security))


@app.command()
def kill(node_id: NodeId, directory: Directory = Path("cluster")) -> None:
    """Kill a node's process at once (SIGKILL). `up` starts it again."""
    _signal(directory, node_id, signal.SIGKILL)


@app.command()
def pause(node_id: NodeId, directory: Directory = Path("cluster")) -> None:
    """Stop a node's process in the middle of what it does (SIGSTOP)."""
    _signal(directory, node_id, signal.SIGSTOP)


@app.command()
def resume(node_id: NodeId, directory: Directory = Path("cluster")) -> None:
    """Let a paused node go on (SIGCONT)."""
    _signal(directory, node_id, signal.SIGCONT)


def _signal(directory: Path, node_id: int, number: signal.Signals) -> None:
    with _errors():
        node = load_state(directory).node(node_id)
        processes.send(node, number)
        if number == signal.SIGKILL and not processes.wait_until_dead(node, KILL_S_MAX):
            raise ClusterError(f"node {node_id} didn't end within {KILL_S_MAX:g} s")
    typer.echo(f"node {node_id}: {number.name}")


@app.command()
def cut(
    sender: Annotated[int, typer.Argument(metavar="A", help="A node's id.")],
    receiver: Annotated[int, typer.Argument(metavar="B", help="Another node's id.")],
    directory: Directory = Path("cluster"),
    one_way: Annotated[bool, typer.Option("--one-way", help="Only packets from A to B.")] = False,
) -> None:
    """Drop the packets between two nodes of an isolated cluster. Clients still reach both."""
    with _errors():
        state = load_state(directory)
        _check_pair(state, sender, receiver)
        for pair in _pairs(sender, receiver, one_way=one_way):
            # Written down before it is done: `heal` knows of a cut even if this command is killed in between.
            if pair not in state.cuts:
                state.cuts.append(pair)
                save_state(directory, state)
            try:
                namespaces.cut(*map(state.node, pair))
            except ClusterError:
                state.cuts.remove(pair)
                save_state(directory, state)
                raise
    typer.echo(f"cut: {sender} {'→' if one_way else '↔'} {receiver}")


@app.command()
def heal(directory: Directory = Path("cluster")) -> None:
    """Undo every cut."""
    with _errors():
        state = load_state(directory)
        healed = len(state.cuts)
        for pair in list(state.cuts):
            namespaces.heal(*map(state.node, pair))
            state.cuts.remove(pair)
            save_state(directory, state)
    typer.echo(f"healed: {healed} directions")


def _check_pair(state: ClusterState, sender: int, receiver: int) -> None:
    state.node(sender), state.node(receiver)
    if sender == receiver:
        raise ClusterError(f"cut: {sender} twice: two nodes are needed")
    if state.bridge is None:
        raise ClusterError(namespaces.NOT_ISOLATED)


def _pairs(sender: int, receiver: int, *, one_way: bool) -> list[tuple[int, int]]:
    return [(sender, receiver)] if one_way else [(sender, receiver), (receiver, sender)]


@app.command()
def stop(
    node_id: Annotated[
        int | None, typer.Argument(metavar="NODE", help="Only this one; all by default.")
    ] = None,
    directory: Directory = Path("cluster"),
    command_config: CommandConfig = None,
) -> None:
    """Stop one node cleanly, or all of them: brokers first, the quorum's leader last."""
    with _errors():
        security = security_of(command_config)
        state = load_state(directory)
        chosen = state.nodes if node_id is None else [state.node(node_id)]
        running = {node.id: node for node in chosen if processes.state_of(node) != processes.DEAD}
        controllers = [node.id for node in state.nodes if node.is_controller]
        leader = None
        if len(running) > 1:
            addresses = [(node.host, node.port) for node in running.values()]
            leader = asyncio.run(quorum_leader(addresses, security))
            if leader is None and (reason := asyncio.run(not_let_in(addresses, security))) is not None:
                _complain(f"the quorum's leader isn't known, so it may not be stopped last: {reason}")
        for group in stop_order(list(running), controllers, leader):
            _end([running[node] for node in group], signal.SIGTERM)
            typer.echo(f"stopped: {', '.join(f'node {node}' for node in group)}")
        if node_id is None:
            namespaces.remove(state)
        save_state(directory, state)


def _end(nodes: list[NodeState], number: signal.Signals) -> None:
    """End these nodes: all get the signal, and SIGKILL if they are still there later."""
    _each(nodes, lambda node: processes.send(node, number))
    if number == signal.SIGTERM:
        _each(nodes, lambda node: processes.send(node, signal.SIGCONT))  # a paused one handles nothing
    for node in nodes:
        if not processes.wait_until_dead(node, STOP_S_MAX):
            _complain(f"node {node.id} didn't stop within {STOP_S_MAX:g} s: killed")
            _each([node], lambda target: processes.send(target, signal.SIGKILL))
            processes.wait_until_dead(node, KILL_S_MAX)


def _each(nodes: list[NodeState], doing: Callable[[NodeState], None]) -> None:
    for node in nodes:
        try:
            doing(node)
        except ClusterError:
            continue  # it has ended by itself, which is what was wanted
