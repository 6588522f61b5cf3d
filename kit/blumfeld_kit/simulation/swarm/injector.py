"""Brings the faults of a run about, restarts what ended, and heals everything at the end."""

from __future__ import annotations

import asyncio
import errno
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from blumfeld.kernel.node import StartError
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.swarm.decision_faults import DecisionFaults
from blumfeld_kit.simulation.swarm.faults import FaultClass, chance_of, drawn, lasts_s
from blumfeld_kit.simulation.swarm.joining_faults import JoiningFaults
from blumfeld_kit.simulation.swarm.network_faults import NetworkFaults
from blumfeld_kit.simulation.swarm.world import World
from blumfeld_kit.simulation.swarm.zookeeper_faults import ZooKeeperFaults

DOWN_S = 5.0
"""Mean time until a process that ended is started again."""
START_ENDS_CHANCE = 0.25
"""Probability that a start is cut short inside a disk operation, by each class of the seed that does such things."""
STOP_ENDS_CHANCE = 0.3
"""Probability that the process is killed, or its machine loses the power, in an orderly stop."""
ENDS_IN_OPERATION = {FaultClass.KILL: False, FaultClass.POWER: True}
"""Class that ends a process inside a disk operation → whether by a power cut."""
STAYS_OFFLINE = ("partition offline", "log not opened")
"""The broker's events for a partition whose files failed in another way than by a write of records."""
DISK_PLACES = ("", "", CLUSTER_METADATA_TOPIC)
"""Parts of paths that a disk's fault strikes: the first operation, or the first one on the cluster's metadata."""
OPERATIONS = {
    FaultClass.WRITE_ERROR: "pwritev",
    FaultClass.SYNC_ERROR: "fdatasync",
    FaultClass.READ_ERROR: "pread",
}
STORE_LASTS = 4
"""A store fails for so many times as long as other things."""
RATES = (0.8, 0.95, 1.05, 1.25)
WRONG_MS_MAX = 1_200_000
"""A wall clock is wrong by at most this. Beyond an hour a broker rightly refuses the timestamps of producers
(``message.timestamp.after.max.ms``).
"""


class Injector:
    """The faults of one run.

    :param on_error: called with what made a machine unable to start although its disk is well
    """

    def __init__(
        self,
        world: World,
        allowed: frozenset[FaultClass],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.on = drawn(world.shape.seed, allowed)
        """Class → mean time between two faults."""
        self.counts: Counter[str] = Counter()
        """Faults that happened, by class."""
        self._world = world
        self._on_error = on_error
        self._tasks: list[asyncio.Task[None]] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._healed = False
        self._stop_ends = self._chance("stop/ends")
        self._rotten: set[str] = set()
        """Addresses of machines whose disk rotted."""
        self._network = NetworkFaults(world, self.counts)
        self._zookeeper = ZooKeeperFaults(world, self.counts)
        self._bring: dict[FaultClass, Callable[[random.Random], Awaitable[None]]] = {
            FaultClass.KILL: self._kill,
            FaultClass.POWER: self._power,
            FaultClass.POWER_TOGETHER: self._power_together,
            FaultClass.STOP: self._stop,
            FaultClass.PAUSE: self._pause,
            FaultClass.LOAD: self._load,
            FaultClass.CLOCK_JUMP: self._jump,
            FaultClass.CLOCK_RATE: self._rate,
            FaultClass.DISK_FULL: self._full,
            FaultClass.DISK_SLOW: self._slow,
            FaultClass.WRITE_ERROR: lambda chance: self._disk_error(FaultClass.WRITE_ERROR, chance),
            FaultClass.SYNC_ERROR: lambda chance: self._disk_error(FaultClass.SYNC_ERROR, chance),
            FaultClass.READ_ERROR: lambda chance: self._disk_error(FaultClass.READ_ERROR, chance),
            FaultClass.BIT_ROT: self._rot,
            FaultClass.ROLLING: self._rolling,
            FaultClass.KILL_TWICE: self._kill_twice,
            FaultClass.AIMED: self._aimed,
            FaultClass.TIMELY: self._timely,
            FaultClass.POWER_AT_SYNC: self._power_at_sync,
            FaultClass.LOST_DISK: self._lose_disk,
            FaultClass.STORE: self._fail_store,
            **self._network.by_class(),
            **self._zookeeper.by_class(),
            **DecisionFaults(world, self._network, self.counts).by_class(),
            **JoiningFaults(
                world, self._network, self._start_again, self._stop_in_order, self.counts
            ).by_class(),
        }

    def begin(self) -> None:
        """Let faults happen, and restart what ends."""
        for machine in self._world.machines:
            self._keepers.append(self._task(self._keep(machine)))
        for fault_class, mean_s in self.on.items():
            self._tasks.append(self._task(self._happen(fault_class, mean_s)))

    def heal(self) -> None:
        """End every fault. Machines that are down are started again.

        A process whose disk was bad, and that says that a partition is offline, is killed, as its operator would do
        once the disk is well: such a partition stays offline as long as the process lives. A full disk excuses nothing:
        once there is room, each replica must come back by itself.
        """
        self._healed = True
        for task in self._tasks:
            task.cancel()
        world = self._world
        world.network.trace.note("heal everything")
        world.network.heal_all()
        self._zookeeper.heal()
        if world.bucket is not None:
            world.bucket.faults.heal()
        for machine in world.machines:
            machine.spare()
            machine.at_sync = None
            machine.resume()
            machine.disk.heal()
            machine.disk_slow_ms = 0.0
            machine.clock.set_rate(1.0, world.loop.time())
            machine.clock.jump(-machine.clock.offset_ms)
            if machine.turn_cost_s:
                machine.load(0.0)
            was_bad = machine.disk.errors or machine.address in self._rotten
            if was_bad and any(machine.said[event] for event in STAYS_OFFLINE):
                machine.crash(power_cut=False)

    def end(self) -> None:
        """Restart nothing any more."""
        for task in [*self._tasks, *self._keepers]:
            task.cancel()

    def _task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._world.loop.create_task(coroutine)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)

    async def _keep(self, machine: Machine) -> None:
        """Start a machine's process again each time it ended."""
        chance, ends = self._chance(f"keep/{machine.address}"), self._chance(f"start/{machine.address}")
        while True:
            if machine.is_running or machine.is_serving:
                await machine.down.wait()
            await asyncio.sleep(0.1 + chance.random() * 2 * DOWN_S)
            if machine.is_running:
                continue
            self._end_in_operation(machine, ends, START_ENDS_CHANCE, 120)
            await self._start_again(machine)

    def _end_in_operation(
        self, machine: Machine, chance: random.Random, probability: float, nth_max: int
    ) -> None:
        """Let the process end inside one of its next disk operations, unless the faults are over."""
        for fault_class, power_cut in ENDS_IN_OPERATION.items() if self._world.cuts_starts else ():
            if fault_class in self.on and not self._healed and chance.random() < probability:
                self.counts[fault_class.value] += 1
                machine.crash_in_operation(1 + chance.randrange(nth_max), power_cut=power_cut)

    async def _start_again(self, machine: Machine) -> None:
        """Start a process, which goes on if :meth:`heal` ends the fault that asked for it. A disk that failed excuses a
        start that fails."""

        async def start() -> None:
            if machine.is_running:
                return  # a crash cut a stop short, and both asked for the next start at one moment
            struck, began_s = machine.disk.struck, self._world.loop.time()
            try:
                await machine.start()
            except StartError:
                if machine.disk.struck == struck and not self._zookeeper.was_away(began_s):
                    raise

        await asyncio.shield(self._task(start()))

    async def _happen(self, fault_class: FaultClass, mean_s: float) -> None:
        chance = self._chance(fault_class.value)
        while True:
            await asyncio.sleep(chance.random() * 2 * mean_s)
            before = self.counts[fault_class.value]
            await self._bring[fault_class](chance)
            if self.counts[fault_class.value] > before:
                self._world.network.trace.note(f"fault {fault_class.value}")

    def _chance(self, name: str) -> random.Random:
        return chance_of(self._world.shape.seed, f"fault/{name}")

    def _machine(self, chance: random.Random) -> Machine:
        machines = self._world.machines
        return machines[chance.randrange(len(machines))]

    async def _last(self, chance: random.Random) -> None:
        await asyncio.sleep(lasts_s(chance))

    # Processes

    async def _kill(self, chance: random.Random) -> None:
        self._crash(self._machine(chance), chance, FaultClass.KILL)

    async def _power(self, chance: random.Random) -> None:
        self._crash(self._machine(chance), chance, FaultClass.POWER)

    def _crash(self, machine: Machine, chance: random.Random, fault_class: FaultClass) -> None:
        power_cut = fault_class is FaultClass.POWER
        inside = chance.random() < 0.5
        nth = 1 + chance.randrange(40)
        if not machine.is_running:
            return
        self.counts[fault_class.value] += 1
        if inside:
            machine.crash_in_operation(nth, power_cut=power_cut)
        else:
            machine.crash(power_cut=power_cut)

    async def _power_together(self, chance: random.Random) -> None:
        struck = self._several(chance)
        self.counts[FaultClass.POWER_TOGETHER.value] += 1
        for machine in struck:
            machine.crash(power_cut=True)

    def _several(self, chance: random.Random) -> list[Machine]:
        machines = self._world.machines
        fewest = min(2, len(machines))
        wanted = fewest + chance.randrange(len(machines) - fewest + 1)
        return [machines[nth] for nth in sorted(chance.sample(range(len(machines)), wanted))]

    async def _power_at_sync(self, chance: random.Random) -> None:
        machines = self._world.important()
        if not machines:
            return
        machine = machines[chance.randrange(len(machines))]
        struck = [machine, *(other for other in self._several(chance) if other is not machine)]

        def strike() -> None:
            self._world.look()
            self.counts[FaultClass.POWER_AT_SYNC.value] += 1
            for victim in struck:
                victim.crash(power_cut=True)

        machine.at_sync = strike
        await self._last(chance)
        machine.at_sync = None

    async def _stop(self, chance: random.Random) -> None:
        machine = self._machine(chance)
        if machine.is_serving and not machine.is_paused:
            self.counts[FaultClass.STOP.value] += 1
            self._end_in_operation(machine, self._stop_ends, STOP_ENDS_CHANCE, 30)
            await self._stop_in_order(machine)

    async def _stop_in_order(self, machine: Machine) -> None:
        """Stop a process. The stop goes on if :meth:`heal` ends this fault meanwhile: a process that was told to stop
        ends, and a half-stopped one would stay for ever."""

        async def stop() -> None:
            await machine.stop()
            if not machine.is_running:  # it may have been killed meanwhile, and another process be there
                machine.down.set()

        await asyncio.shield(self._task(stop()))

    async def _rolling(self, chance: random.Random) -> None:
        self.counts[FaultClass.ROLLING.value] += 1
        for machine in self._world.machines:
            if machine.is_serving and not machine.is_paused:
                await self._stop_in_order(machine)
                while not machine.is_serving:
                    await asyncio.sleep(0.1)
                await asyncio.sleep(chance.random() * 2.0)

    async def _kill_twice(self, chance: random.Random) -> None:
        machines = self._world.machines
        self.counts[FaultClass.KILL_TWICE.value] += 1
        for nth in chance.sample(range(len(machines)), min(2, len(machines))):
            machines[nth].crash(power_cut=False)
            await asyncio.sleep(chance.random() * 3.0)

    async def _aimed(self, chance: random.Random) -> None:
        machines = self._world.important()
        if machines:
            await self._strike(machines[chance.randrange(len(machines))], chance, FaultClass.AIMED)

    async def _timely(self, chance: random.Random) -> None:
        machine = await self._world.next_moment()
        # Mostly at once, and now and then when the first requests have come.
        await asyncio.sleep(chance.random() ** 3)
        await self._strike(machine, chance, FaultClass.TIMELY)

    async def _strike(self, machine: Machine, chance: random.Random, fault_class: FaultClass) -> None:
        """Kill a process, stop it for a while, or cut it off from the other nodes: out, in, or both ways."""
        how = chance.randrange(5)
        if not machine.is_running or machine.is_paused:
            return
        self.counts[fault_class.value] += 1
        if how == 0:
            machine.crash(power_cut=False)
        elif how == 1:
            machine.pause()
            await self._last(chance)
            machine.resume()
        else:
            others = [other.address for other in self._world.machines if other is not machine]
            ways = [(machine.address, other) for other in others if how != 2]
            ways += [(other, machine.address) for other in others if how != 3]
            await self._network.cut_ways(ways, lasts_s(chance))

    async def _lose_disk(self, chance: random.Random) -> None:
        machines = [machine for machine in self._world.replaceable() if machine.is_running]
        if machines:
            self.counts[FaultClass.LOST_DISK.value] += 1
            machines[chance.randrange(len(machines))].lose_disk()

    async def _pause(self, chance: random.Random) -> None:
        machine = self._machine(chance)
        if machine.is_running and not machine.is_paused:
            self.counts[FaultClass.PAUSE.value] += 1
            machine.pause()
            await self._last(chance)
            machine.resume()

    async def _load(self, chance: random.Random) -> None:
        machine = self._machine(chance)
        self.counts[FaultClass.LOAD.value] += 1
        machine.load(0.0002 + chance.random() * 0.005)
        await self._last(chance)
        machine.load(0.0)

    # Clocks

    async def _jump(self, chance: random.Random) -> None:
        self.counts[FaultClass.CLOCK_JUMP.value] += 1
        clock = self._machine(chance).clock
        clock.jump(chance.randrange(2 * WRONG_MS_MAX) - WRONG_MS_MAX - clock.offset_ms)

    async def _rate(self, chance: random.Random) -> None:
        self.counts[FaultClass.CLOCK_RATE.value] += 1
        machine = self._machine(chance)
        machine.clock.set_rate(RATES[chance.randrange(len(RATES))], self._world.loop.time())

    # Disks

    async def _full(self, chance: random.Random) -> None:
        disk = self._machine(chance).disk
        self.counts[FaultClass.DISK_FULL.value] += 1
        disk.room = chance.randrange(4_000)
        await self._last(chance)
        disk.room = None

    async def _slow(self, chance: random.Random) -> None:
        machine = self._machine(chance)
        self.counts[FaultClass.DISK_SLOW.value] += 1
        machine.disk_slow_ms = 20.0 + chance.random() * 500.0
        await self._last(chance)
        machine.disk_slow_ms = 0.0

    async def _disk_error(self, fault_class: FaultClass, chance: random.Random) -> None:
        machine = self._machine(chance)
        place = DISK_PLACES[chance.randrange(len(DISK_PLACES))]
        fault = Fault(operation=OPERATIONS[fault_class], error_number=errno.EIO, path_part=place)
        machine.disk.inject(fault)
        try:
            await self._last(chance)
        finally:  # it has happened, too, if heal() cuts it short
            machine.disk.withdraw(fault)
            self.counts[fault_class.value] += not fault.times

    # The object store

    async def _fail_store(self, chance: random.Random) -> None:
        bucket = self._world.bucket
        if bucket is None:
            return
        self.counts[FaultClass.STORE.value] += 1
        faults = bucket.faults
        # Denied it never is: a node doesn't start then, and says so.
        if chance.random() < 0.3:
            faults.away_until_ms = math.inf
        else:
            faults.unavailable, faults.throttled = chance.random() * 0.3, chance.random() * 0.3
            faults.lost_answer, faults.cut_upload = chance.random() * 0.2, chance.random() * 0.3
            faults.slow, faults.slow_ms = chance.random() * 0.2, chance.random() * 12_000
            faults.stale_list_ms = chance.choice([0, 1_000, 5_000])
        await asyncio.sleep(lasts_s(chance) * STORE_LASTS)
        faults.heal()

    async def _rot(self, chance: random.Random) -> None:
        machine = self._machine(chance)
        if self._world.flip(machine, chance):
            self.counts[FaultClass.BIT_ROT.value] += 1
            self._rotten.add(machine.address)
