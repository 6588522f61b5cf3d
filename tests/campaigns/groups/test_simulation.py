"""The simulation of groups keeps every promise on a few seeds, is the same each time, and bites."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from blumfeld.coordinator.groups.offsets import CommittedOffset, offset_record
from blumfeld_kit.groups.model import compacted
from campaigns.groups.__main__ import TYPES_OF_MODE, main, protocols_of
from campaigns.groups.classic_member import ClassicMember
from campaigns.groups.consumer_member import ConsumerMember
from campaigns.groups.member import Member, MemberSettings, Topic
from campaigns.groups.node import GroupsNode
from campaigns.groups.oracle import Oracle, ViolationError
from campaigns.groups.simulation import MODES, Simulation

SETTINGS = MemberSettings(group_id="g", client_id="c", topics=("t",), session_timeout_ms=10_000)
VIEW = {"t": Topic(b"t" * 16, 4)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_few_seeds_keep_every_promise(mode: str, seed: int) -> None:
    """`make` runs many more; this is what everyone runs before a commit."""
    simulation = Simulation(seed, 0.7, mode, protocols_of(TYPES_OF_MODE[mode]))
    simulation.run()
    assert simulation.oracle.rebalances
    assert simulation.node.loads


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_many_seeds_keep_every_promise(mode: str) -> None:
    """More seeds, each for longer."""
    assert main(["--seeds", "100-119", "--minutes", "5", "--mode", mode]) == 0


def test_a_seed_is_the_same_run_whatever_the_hash_seed() -> None:
    """Or no violation could be looked at twice."""
    call = [
        sys.executable,
        "-m",
        "campaigns.groups",
        "--seeds",
        "5",
        "--minutes",
        "0.5",
        "--mode",
        "mixed",
    ]
    digests = set()
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=110, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        digests.add(done.stdout.splitlines()[1].split()[-1])
    assert len(digests) == 1


# The oracle


def oracle() -> Oracle:
    """One that has seen nothing yet."""
    return Oracle(GroupsNode(protocols_of(("groups_classic",))), "g")


def reader(member: Member, *partitions: int) -> Member:
    """A member in a generation, whose session has just been renewed."""
    member.owned = frozenset(("t", index) for index in partitions)
    member.epoch, member.confirmed_ms = 3, 1_000
    return member


def test_two_readers_of_one_partition_are_seen() -> None:
    """Whatever protocol they speak."""
    seen = oracle()
    seen.owns("a", reader(ConsumerMember(SETTINGS, VIEW, "a"), 0, 1), 1_000)
    with pytest.raises(ViolationError, match="t-1 has two owners"):
        seen.owns("b", reader(ClassicMember(SETTINGS, VIEW), 1, 2), 1_000)


def test_a_reader_whose_session_may_be_over_is_no_second_one() -> None:
    """It can't know yet: until it hears of it, it reads on."""
    seen = oracle()
    seen.owns("a", reader(ConsumerMember(SETTINGS, VIEW, "a"), 1), 1_000)
    late = reader(ConsumerMember(SETTINGS, VIEW, "b"), 1)
    late.confirmed_ms = 12_000
    seen.owns("b", late, 12_000)


def test_an_epoch_that_is_taken_back_is_seen() -> None:
    """Only who is fenced begins anew."""
    member = reader(ConsumerMember(SETTINGS, VIEW, "a"), 1)
    assert isinstance(member, ConsumerMember)
    member.went_back = (4, 3)
    with pytest.raises(ViolationError, match="was in epoch 4"):
        oracle().owns("a", member, 1_000)


def test_an_offset_that_goes_back_is_seen() -> None:
    """By the log, whoever committed it."""
    node = GroupsNode(protocols_of(("groups_classic",)))
    seen = Oracle(node, "g")

    def at(offset: int) -> object:
        return offset_record("g", "t", 0, CommittedOffset(offset, -1, "", 0, -1, b"t" * 16))

    assert node.shard is not None
    node.shard.replay(at(7))  # type: ignore[arg-type]
    seen.placed([at(7)])  # type: ignore[list-item]
    with pytest.raises(ViolationError, match="from 7 to 6"):
        seen.placed([at(6)])  # type: ignore[list-item]


def test_state_that_no_record_tells_of_is_seen() -> None:
    """A command wrote it."""
    node = GroupsNode(protocols_of(("groups_classic",)))
    seen = Oracle(node, "g")
    seen.live_is_replayed()
    value = CommittedOffset(7, -1, "", 0, -1, b"t" * 16)
    assert node.shard is not None
    node.shard.replay(offset_record("g", "t", 0, value))
    with pytest.raises(ViolationError, match="a command wrote state"):
        seen.live_is_replayed()


def test_compaction_leaves_the_last_of_each_key() -> None:
    """And no tombstones."""
    value = CommittedOffset(7, -1, "", 0, -1, b"t" * 16)
    first, other = offset_record("g", "t", 0, value), offset_record("g", "t", 1, value)
    gone = type(other)(other.key, None)
    assert compacted([first, other, first, gone]) == [first]
