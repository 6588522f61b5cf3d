"""The plan of faults, and the node that each of them hits."""

from __future__ import annotations

import attrs
import pytest

from campaigns.cluster.faults import (
    CUTS,
    ENSEMBLE_FAULTS,
    ZOOKEEPER_FAULTS,
    BadFaultError,
    Leadership,
    NoTargetError,
    parse_fault,
    plan_of,
    targets_of,
)
from campaigns.zookeeper_server import ZOOKEEPER

ALL = (1, 2, 3)
NOW = Leadership(controller=1, leaders=(2, 3, 1, 2, 3, 1), nodes=ALL, brokers=ALL)
THREE_SERVERS = attrs.evolve(NOW, servers=(-1, 0, -2))
APART = Leadership(controller=5, leaders=(2, 3, 1), nodes=(1, 2, 3, 4, 5, 6), brokers=ALL)


def test_a_plan_is_the_list_so_many_times() -> None:
    names = [fault.name for fault in plan_of(("kill-leader", "rolling"), 2)]
    assert names == ["kill-leader", "rolling", "kill-leader", "rolling"]


@pytest.mark.parametrize("name", [*ZOOKEEPER_FAULTS, *ENSEMBLE_FAULTS, *CUTS, "cut-zookeeper-follower"])
def test_every_fault_of_the_lists_is_one(name: str) -> None:
    assert parse_fault(name).name == name


@pytest.mark.parametrize(
    "name", ["kill", "kill-", "part-zookeeper", "drown-leader", "kill-king", "kill--1", "rolling-leader", ""]
)
def test_a_name_that_is_none_is_refused_with_the_names_that_are(name: str) -> None:
    with pytest.raises(BadFaultError, match=f"found {name}; allowed: rolling, or kill, .*-controller"):
        plan_of([name], 1)


@pytest.mark.parametrize(
    ("name", "now", "hit"),
    [
        ("kill-leader", NOW, (2,)),
        ("kill-controller", NOW, (1,)),
        ("kill-follower", NOW, (3,)),
        ("kill-both", NOW, (2, 1)),
        ("rolling", NOW, ALL),
        ("kill-3", NOW, (3,)),
        ("kill-zookeeper", NOW, (ZOOKEEPER,)),
        ("kill-zookeeper", THREE_SERVERS, (-1, 0, -2)),
        ("pause-zookeeper-leader", THREE_SERVERS, (-1,)),
        ("cut-zookeeper-follower", THREE_SERVERS, (-2,)),
        ("expire-leader", NOW, (2,)),
        # the controller leads partition 0
        ("pause-leader", Leadership(2, (2, 2, 3), ALL, ALL), (3,)),
        ("pause-both", Leadership(2, (2, 2, 3), ALL, ALL), (3, 2)),
        ("pause-follower", Leadership(2, (2, 2, 3), ALL, ALL), (1,)),
        # controllers and brokers are not the same nodes
        ("kill-controller", APART, (5,)),
        ("kill-leader", APART, (2,)),
        ("kill-follower", APART, (1,)),
        ("kill-both", APART, (2, 5)),
        ("rolling", APART, (1, 2, 3, 4, 5, 6)),
        # partition 0 has no leader
        ("stop-leader", Leadership(1, (-1, 3), ALL, ALL), (3,)),
        ("stop-follower", Leadership(1, (-1, 3), ALL, ALL), (2,)),
    ],
)
def test_a_fault_hits_the_node_with_that_part(name: str, now: Leadership, hit: tuple[int, ...]) -> None:
    assert targets_of(parse_fault(name), now) == hit


@pytest.mark.parametrize(
    ("name", "now", "why"),
    [
        ("kill-controller", Leadership(-1, (1,), ALL, ALL), "no controller"),
        ("kill-leader", Leadership(1, (1, 1), ALL, ALL), "no partition has a leader that is not"),
        ("kill-both", Leadership(1, (-1,), ALL, ALL), "no partition has a leader"),
        ("kill-follower", Leadership(1, (2,), (1, 2), (1, 2)), "every broker"),
        ("kill-4", NOW, "no node 4"),
    ],
)
def test_a_fault_without_a_node_says_why(name: str, now: Leadership, why: str) -> None:
    with pytest.raises(NoTargetError, match=why):
        targets_of(parse_fault(name), now)
