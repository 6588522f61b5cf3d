"""Many seeds of a swarm of pure replicas, and what they add up to.

``python -m tests.plugins.consensus_kraft.raft.sweep raft|voters|hostile [--seeds 0-299] [--minutes N]`` ends with
status 1 at the first seed that breaks a promise, and prints the totals as JSON otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence

from blumfeld_kit.simulation.seeds import seeds_of
from tests.plugins.consensus_kraft.raft.hostile_swarm import HostileSwarm
from tests.plugins.consensus_kraft.raft.swarm import Swarm
from tests.plugins.consensus_kraft.raft.voter_swarm import VoterSwarm

SWARMS: dict[str, type[Swarm]] = {"raft": Swarm, "voters": VoterSwarm, "hostile": HostileSwarm}


class Totals:
    """Sums over seeds."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def add(self, swarm: Swarm) -> None:
        """Take a run that kept its promises."""
        world = swarm.world
        self.faults.update({name.lstrip("_"): count for name, count in world.faults.items()})
        self.counts.update(
            {
                "seeds": 1,
                "virtual ms": int(world.now_ms),
                "leaders": len(world.leaders),
                "records committed": len(world.committed),
                "messages": world.messages,
            }
        )
        if isinstance(swarm, VoterSwarm):
            self.counts.update({"voter sets": swarm.changed, "disks lost": swarm.lost})

    def told(self) -> str:
        """Return all of it as JSON."""
        counts = dict(self.counts)
        hours = round(counts.pop("virtual ms", 0) / 3_600_000, 2)
        return json.dumps({**counts, "virtual hours": hours, "faults": dict(sorted(self.faults.items()))})


def sweep(name: str, seeds: Sequence[int], minutes: float | None = None) -> tuple[Totals, str | None]:
    """Run seeds. Return the totals, and what the first seed that failed said.

    :param minutes: real time after which no other seed begins
    """
    ends_s = float("inf") if minutes is None else time.monotonic() + minutes * 60.0
    totals = Totals()
    for seed in seeds:
        swarm = SWARMS[name](seed)
        try:
            swarm.run()
        except Exception as error:
            return totals, f"FAILED seed {seed}: {error!r}"
        totals.add(swarm)
        if time.monotonic() >= ends_s:
            break
    return totals, None


def main(arguments: list[str] | None = None) -> int:
    """Run a sweep. Return the exit status."""
    parser = argparse.ArgumentParser(prog="sweep", description=__doc__.partition("\n")[0])
    parser.add_argument("swarm", choices=SWARMS)
    parser.add_argument("--seeds", type=seeds_of, default="0-299")
    parser.add_argument("--minutes", type=float)
    wanted = parser.parse_args(arguments)
    totals, failure = sweep(wanted.swarm, wanted.seeds, wanted.minutes)
    print(failure or totals.told())
    return int(failure is not None)


if __name__ == "__main__":
    sys.exit(main())
