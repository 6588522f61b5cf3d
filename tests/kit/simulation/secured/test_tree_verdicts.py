"""The rights of a tree, as its znodes have them."""

from __future__ import annotations

import base64
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from blumfeld.spi.zookeeper import Create, Delete, Set
from blumfeld_kit.simulation.secured.rights import ALLOW, DENY, LITERAL, PREFIXED, READ, TOPIC, WRITE, Rule
from blumfeld_kit.simulation.secured.tree_verdicts import TreeVerdicts
from blumfeld_kit.simulation.zookeeper.tree_oracle import TreeOracle

ACL = "/kafka-acl/Topic/work"
PREFIX = "/kafka-acl-extended/prefixed/Topic/wo"


def acls(*entries: tuple[str, str, str]) -> bytes:
    shown = [
        {"principal": principal, "permissionType": permission, "operation": operation, "host": "*"}
        for principal, permission, operation in entries
    ]
    return json.dumps({"version": 1, "acls": shown}).encode()


def test_acls_and_credentials_are_those_of_the_znodes() -> None:
    tree = TreeOracle()
    verdicts = TreeVerdicts(tree, Counter())
    tree.on_write(Create("/kafka-acl/Topic", b""))
    tree.on_write(Create(ACL, acls(("User:ada", "Allow", "Read"), ("User:bob", "Deny", "Write"))))
    tree.on_write(Create(PREFIX, acls(("User:ada", "Allow", "Write"))))
    ada, bob = Rule(TOPIC, "work", LITERAL, "User:ada", "*", READ, ALLOW), "User:bob"
    prefixed = Rule(TOPIC, "wo", PREFIXED, "User:ada", "*", WRITE, ALLOW)
    assert sorted(state(verdicts).rules.values()) == sorted(
        [ada, Rule(TOPIC, "work", LITERAL, bob, "*", WRITE, DENY), prefixed]
    )
    tree.on_write(Set(ACL, acls(("User:ada", "Allow", "Read")), 0))
    tree.on_write(Delete(PREFIX, 0))
    assert list(state(verdicts).rules.values()) == [ada]
    key = base64.b64encode(b"stored").decode()
    config = {"SCRAM-SHA-256": f"salt=c2FsdA==,stored_key={key},server_key=AA==,iterations=4096"}
    tree.on_write(Create("/config/users/ada", json.dumps({"version": 1, "config": config}).encode()))
    assert state(verdicts).keys == {"ada": b"stored"}
    tree.on_write(Set("/config/users/ada", json.dumps({"version": 1, "config": {}}).encode(), 0))
    assert not state(verdicts).keys
    token = {"version": 3, "owner": "User%3Aada", "tokenId": "t"}
    tree.on_write(Create("/delegation_token/tokens/t", json.dumps(token).encode()))
    assert state(verdicts).tokens == {"t": "User:ada"}
    tree.on_write(Delete("/delegation_token/tokens/t"))
    assert not state(verdicts).tokens


def state(verdicts: TreeVerdicts) -> Any:
    assert verdicts.newest is not None
    return verdicts.newest


def test_a_change_is_looked_for_in_the_states_since_it_was_sent() -> None:
    tree = TreeOracle()
    verdicts = TreeVerdicts(tree, Counter())
    machine = cast(Any, SimpleNamespace(address="a", incarnations=1))
    tree.on_write(Create(ACL, acls(("User:ada", "Allow", "Read"))))
    since = verdicts.change_begins(machine)
    tree.on_write(Delete(ACL, 0))
    assert [len(state.rules) for state in verdicts.changed(since)] == [1, 0]
