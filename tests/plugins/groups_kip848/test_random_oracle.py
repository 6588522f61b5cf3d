"""Random scripts of KIP-848 groups against Apache Kafka 4.3.1: the same answers, step by step. Slow: starts Java."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.plugins.groups_both.test_migration_oracle import Brokers, settings_of
from tests.plugins.groups_classic.classic_trace import GROUP
from tests.plugins.groups_kip848 import consumer_trace
from tests.plugins.groups_kip848.consumer_trace import ConsumerScript
from tests.plugins.groups_kip848.test_oracle import Answered, LiveConsumers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SEEDS = range(20)
STEPS = 60
CLIENTS = {"a": "", "b": "", "c": "i", "d": "j", "e": "i", "f": "j"}
"""Client → its instance id. Each keeps it: what Kafka does with a member that turns static is none of its rules. Static
ones commit in their epoch only: Kafka forgets since when who comes back had its partitions.
"""
TOPICS = ("t", "t", "u", "t,u", "t,u", "z")
"""There is no z. Who joins without any topic is dealt partitions by Kafka now and then, which it then doesn't get."""
ANSWER = re.compile(r"(\w) hb \S+ NONE epoch=(-?\d+)(?: \[(.*?)\])?")


class RandomScript:
    """Commands that mostly make sense: clients say what they have, and follow what they are told, or not quite."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.script = ConsumerScript()
        self.has: dict[str, str] = {}
        self.said: list[tuple[str, list[str]]] = []

    def run(self) -> list[tuple[str, list[str]]]:
        """The commands, and what we answered to each."""
        for _ in range(STEPS):
            self._do(self._next(self.random.choice("abcdef")))
        self._do("describe")
        return self.said

    def _do(self, line: str) -> None:
        answers = [said for said in self.script.run(line) if not said.startswith("log ")]
        self.said.append((line, sorted(answers)))
        for name, epoch, assigned in (match.groups() for match in map(ANSWER.match, answers) if match):
            if assigned is not None or int(epoch) < 0:
                self.has[name] = assigned or ""

    def _next(self, name: str) -> str:
        has, epoch = self.has.get(name, ""), self.script._client(name).generation
        part = "+".join(p for p in has.split("+") if p and self.random.random() < 0.5)
        joins = f"hb {name} epoch=0 assignor=range topics={self.random.choice(TOPICS)}"
        if CLIENTS[name]:
            joins += f" instance={CLIENTS[name]}"
        if epoch <= 0:
            return joins
        weighed = {
            joins: 8,
            f"hb {name}": 27,
            f"hb {name} owned={has}": 25,
            f"hb {name} owned={part}": 6,
            f"hb {name} epoch={max(epoch - 1, 1)} owned={has}": 5,
            f"hb {name} epoch={epoch + 1}": 2,
            f"hb {name} epoch=-1": 4,
            f"hb {name} epoch=-2": 6 if CLIENTS[name] else 1,
            f"hb {name} topics={self.random.choice(TOPICS)} owned={has}": 3,
            f"hb {name} topics={self.random.choice(TOPICS)}": 3,
            f"hb {name} full owned={has}": 2,
            f"commit {name} p=t0+t3 epoch={epoch - (0 if CLIENTS[name] else self.random.randrange(3))}": 4,
            f"fetch {name}": 2,
            "describe": 5,
        }
        return self.random.choices(list(weighed), list(weighed.values()))[0]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ExitStack() as stack:
        brokers = Brokers(tmp_path_factory.mktemp("kafka"), stack)
        more = tuple(f"{key}={value}" for key, value in consumer_trace.CONFIG.items())
        yield brokers.address((*settings_of(""), *more))


@pytest.mark.parametrize("seed", SEEDS)
def test_kafka_answers_each_step_as_we_do(seed: int, kafka: str) -> None:
    """Members of both kinds, who join, go on, say too little, lag, leave and come back, with changing subscriptions."""
    ours = RandomScript(seed).run()
    live = Answered(kafka, f"random-{seed}-{time.monotonic_ns()}")
    try:
        live.wait_for_coordinator()
        script = LiveConsumers(live)
        for nth, (line, answers) in enumerate(ours):
            theirs = sorted(said.replace(live.group_id, GROUP) for said in script.run(line))
            assert theirs == answers, f"after {[line for line, _ in ours[: nth + 1]]}"
    finally:
        live.close()
