"""``python -m campaigns groups --seeds 0-99 --minutes 10``: run seeds, print what they came to."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from blumfeld.config.values import BrokerConfig
from blumfeld.spi.groups import GroupProtocol
from blumfeld_kit.simulation.seeds import seeds_of
from campaigns.groups.oracle import ViolationError
from campaigns.groups.simulation import MODES, Simulation

TYPES_OF_MODE = {
    "classic": ("groups_classic",),
    "consumer": ("groups_kip848",),
    "mixed": ("groups_classic", "groups_kip848"),
}
TAIL = 60
"""Events printed of a seed that fails."""


def protocols_of(names: tuple[str, ...]) -> list[GroupProtocol]:
    """The group types of these installed plug-ins, with the assignors that they bring."""
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group="blumfeld.plugins")}
    plugins: list[Any] = [points[name].load()() for name in names]
    assignors = [
        assignor
        for plugin in plugins
        if hasattr(plugin, "blumfeld_assignors")
        for assignor in plugin.blumfeld_assignors()
    ]
    composition = cast("Any", SimpleNamespace(assignors=assignors, config=BrokerConfig({})))
    return [plugin.blumfeld_make_group_protocol(composition) for plugin in plugins]


def main(arguments: list[str] | None = None) -> int:
    """0 if every seed kept every promise, else 1."""
    parser = argparse.ArgumentParser(prog="python -m campaigns groups")
    parser.add_argument("--seeds", type=seeds_of, default=list(range(10)), help="3, 0-19 or 1,5,7-9")
    parser.add_argument("--minutes", type=float, default=10.0, help="virtual minutes for each seed")
    parser.add_argument(
        "--mode", choices=MODES, action="append", help="may be given again; all of them unless told"
    )
    parser.add_argument("--keep-going", action="store_true", help="run the other seeds after a violation")
    wanted = parser.parse_args(arguments)
    total: Counter[str] = Counter()
    print(f"{'mode':>9} {'seed':>6} {'faults':>7} {'requests':>9} {'rebalances':>10} {'loads':>6}", end="")
    print(f" {'checks':>8} {'settled s':>9} {'real s':>7}  trace")
    for mode in wanted.mode or MODES:
        for seed in wanted.seeds:
            if not run_one(seed, wanted.minutes, mode, total) and not wanted.keep_going:
                return 1
    print(
        f"{total['seeds']} seeds, {total['faults']} faults, {total['requests']} requests, "
        f"{total['rebalances']} rebalances, {total['resolutions']} resolutions of expressions "
        f"({total['overtaken']} overtaken), {total['checks']} invariants checked, "
        f"{total['violations']} violations"
    )
    return 1 if total["violations"] else 0


def run_one(seed: int, minutes: float, mode: str, total: Counter[str]) -> bool:
    """Run a seed, print its row, and add it up; whether it kept every promise."""
    began_s = time.monotonic()
    simulation = Simulation(seed, minutes, mode, protocols_of(TYPES_OF_MODE[mode]))
    failure = None
    try:
        simulation.run()
    except ViolationError as violation:
        failure = violation
    oracle = simulation.oracle
    total.update(
        seeds=1,
        faults=simulation.events,
        requests=simulation.requests,
        rebalances=oracle.rebalances,
        resolutions=oracle.resolutions,
        overtaken=oracle.overtaken,
        checks=oracle.checks,
        violations=int(failure is not None),
    )
    print(
        f"{mode:>9} {seed:>6} {simulation.events:>7} {simulation.requests:>9} {oracle.rebalances:>10} "
        f"{simulation.node.loads:>6} {oracle.checks:>8} {simulation.longest_calm_ms / 1000:>9.1f} "
        f"{time.monotonic() - began_s:>7.1f}  {simulation.trace.digest()}",
        flush=True,
    )
    if failure is not None:
        print(*list(simulation.trace.newest)[-TAIL:], sep="\n")
        print(f"seed {seed} FAILED: {failure}")
        print(f"again: python -m campaigns groups --seeds {seed} --minutes {minutes:g} --mode {mode}")
    return failure is None


if __name__ == "__main__":
    sys.exit(main())
