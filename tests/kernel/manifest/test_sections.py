"""Every mistake in a manifest names its place, what was found and what is allowed, before anything opens."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from blumfeld.kernel.composing.plan import make_plan
from blumfeld.kernel.manifest.sections import Manifest, listener_sections, read_manifest
from blumfeld.plugging.errors import ManifestError
from blumfeld.plugging.sections import decode_section
from tests.kernel.fakes import MANIFEST, assert_refused, complaints, plan_of


class Wordy(msgspec.Struct):
    flush: Literal["never", "interval", "every"] = "never"


class WordyOptions(msgspec.Struct):
    deep: Wordy | None = None


def listeners(*rows: str) -> str:
    """An override that names these listeners."""
    return "network.listeners=[" + ", ".join("{" + row + "}" for row in rows) + "]"


PLAIN = 'name="PLAINTEXT", bind="127.0.0.1:9092"'


def test_transactions_are_composed_unless_they_are_left_out() -> None:
    assert Manifest().transactions.plugin == "transactions"
    assert not [plugin for plugin in plan_of().plugins if plugin.role == "transactions"]
    assert complaints('transactions.options={ "fast" = true }') == [
        "m.toml: transactions.options: found options without a plug-in; "
        'allowed: none beside transactions.plugin = "none"'
    ]


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("node.id=one", 'node.id: found "one"; allowed: an integer'),
        ("node.id=-1", "node.id: found -1; allowed: an integer >= 0"),
        ("node.id=true", "node.id: found true; allowed: an integer"),
        ("node.roles=broker", 'node.roles: found "broker"; allowed: a list'),
        ('node.roles=["broker", 1]', "node.roles[1]: found 1; allowed: a string"),
        (
            'node.roles=["brokr"]',
            'node.roles[0]: found "brokr"; allowed: broker, controller (did you mean broker?)',
        ),
        ('node.roles=["broker", "broker"]', "node.roles[1]: found broker twice; allowed: each role once"),
        ("node.roles=[]", "node.roles: found no role; allowed: broker, controller, or both"),
        ('node.data_dir=""', 'node.data_dir: found ""; allowed: the path of a directory'),
        (
            "node.rolse=1",
            "node.rolse: found an unknown key; allowed: cluster_id, data_dir, data_dirs, id, rack, roles "
            "(did you mean roles?)",
        ),
        ("node.cluster_id=a b", 'node.cluster_id: found "a b"; allowed: 1 to 64 letters, digits, - and _'),
        ("nodes=0", "nodes: found 0; allowed: an integer >= 1"),
        ("nodes=3", "nodes: found 3; allowed: 1 for one node: `blumfeld run FILE` starts all of them"),
        ("strage.plugin=x", "strage: found an unknown key; allowed: "),
        ("logging.level=loud", 'logging.level: found "loud"; allowed: debug, info, warning, error'),
        ("logging.format=jsn", 'logging.format: found "jsn"; allowed: console, json (did you mean json?)'),
        ("metrics.bind=9404", "metrics.bind: found 9404; allowed: a string"),
        ("metrics.bind=:x", 'metrics.bind: found ":x"; allowed: HOST:PORT with a port from 0 to 65535'),
        ('plugins.stores=["a", "a"]', "plugins.stores[1]: found a twice; allowed: each plug-in once"),
        ('groups.plugins=["a", "a"]', "groups.plugins[1]: found a twice; allowed: each group protocol once"),
        (
            "groups.options.groups_fak.size_bytes=1",
            "groups.options.groups_fak: found options for a plug-in that isn't named; "
            "allowed: groups_fake (did you mean groups_fake?)",
        ),
        (
            "security.options.x=1",
            "security.options: found options without a plug-in; allowed: name it: security.plugin",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_place(override: str, complaint: str) -> None:
    assert_refused(complaint, override)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ((PLAIN, PLAIN), '[1].name: found "PLAINTEXT", as listeners[0]; allowed: a name of its own'),
        (
            (PLAIN, 'name="B", bind="[::1]:9092"'),
            "[1].bind: found port 9092, as PLAINTEXT; allowed: a port",
        ),
        (
            ('name="plain", bind="h:1"',),
            '[0].name: found "plain"; allowed: capital letters, digits and _',
        ),
        ((f'{PLAIN}, kind="brooker"',), '[0].kind: found "brooker"; allowed: broker, controller'),
        (
            (f"{PLAIN}, port=1",),
            "[0].port: found an unknown key; allowed: advertised, bind, inter_broker",
        ),
        (('name="P"',), "[0]: found no bind; allowed: a table with bind"),
        (('name="P", bind="here"',), '[0].bind: found "here"; allowed: HOST:PORT'),
        (('name="P", bind="::1:9092"',), '[0].bind: found "::1:9092"; allowed: HOST:PORT'),
        (('name="P", bind="h:65536"',), '[0].bind: found "h:65536"; allowed: HOST:PORT'),
        (('name="P", bind="h:1", advertised="x"',), '[0].advertised: found "x"; allowed: HOST:PORT'),
        (
            ('name="P", bind="0.0.0.0:1"',),
            '[0].advertised: found none, with bind "0.0.0.0:1"; allowed: a HOST',
        ),
        (
            ('name="C", bind="h:1", kind="controller"',),
            ": found no listener of kind broker; allowed: one at least",
        ),
        (
            (PLAIN, 'name="C", bind="h:1", kind="controller", inter_broker=true'),
            "[1].inter_broker: found true; allowed: only on a listener of kind broker",
        ),
        (
            (f"{PLAIN}, inter_broker=true", 'name="B", bind="h:1", inter_broker=true'),
            ": found PLAINTEXT and B with inter_broker; allowed: one listener",
        ),
    ],
)
def test_listeners_that_cannot_be(rows: tuple[str, ...], complaint: str) -> None:
    assert_refused(f"network.listeners{complaint}", listeners(*rows))


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        (
            '"log.segment.bites" = 1',
            'config."log.segment.bites": no broker key of Kafka\'s; did you mean log.segment.bytes?',
        ),
        (
            '"super.users" = "User:admin"',
            'config."super.users": its place here is security.options.acls.super_users (docs/security.md)',
        ),
        ('"log.segment.bytes" = "big"', 'config."log.segment.bytes": found "big"; allowed: '),
        ('"log.segment.bytes" = 1', 'config."log.segment.bytes": found 1; allowed: '),
        (
            "log.segment.bytes = 1",
            'config.log: found a table; allowed: flat keys in quotes: "log.segment.bytes" = …',
        ),
        ('"node.id" = 4', 'config."node.id": found 4; allowed: nothing here: say it in node.id'),
        (
            '"listeners" = "x"',
            'config."listeners": found "x"; allowed: nothing here: say it in network.listeners',
        ),
    ],
)
def test_kafkas_own_keys_are_checked_by_kafkas_table(key: str, complaint: str) -> None:
    assert_refused(complaint, text=f"[config]\n{key}\n")


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        (
            "network.plugin=net_fke",
            'network.plugin: found "net_fke", which isn\'t installed; allowed: net_fake (did you mean net_fake?)',
        ),
        (
            "network.plugin=storage_fake",
            'network.plugin: found "storage_fake", which fills storage; allowed: a plug-in for network: net_fake',
        ),
        (
            "security.plugin=broken",
            "security.plugin: found \"broken\" of unknown, which can't be imported (No module named 'nowhere')",
        ),
        (
            'groups.plugins=["groups_fake", "net_fake"]',
            'groups.plugins[1]: found "net_fake", which fills network',
        ),
        (
            "storage.options.size_byte=1",
            "storage.options.size_byte: found an unknown key; allowed: size_bytes (did you mean size_bytes?)",
        ),
        ("storage.options.size_bytes=big", 'storage.options.size_bytes: found "big"; allowed: an integer'),
        (
            "groups.options.groups_fake.x=1",
            "groups.options.groups_fake.x: found an unknown key; allowed: size_bytes",
        ),
        (
            "storage.local_options.x=1",
            "storage.local_options: found options; allowed: none: storage_fake wraps no",
        ),
    ],
)
def test_plugins_that_cannot_be(override: str, complaint: str) -> None:
    assert_refused(complaint, override, broken="nowhere.to.be.found:Plugin")


FAULTY = """
[node]
id = "one"
idd = 1
roles = ["brokr", "controller"]
data_dir = "${DATA}/blumfeld"

[logging]
level = "loud"

[config]
"retnetion.ms" = 5
"log.segment.bytes" = "big"
"max.connections.per.ip" = 0

[plugins]
observers = ["adit"]
"""
ALL_FAULTS = """\
--set: found 'node.rack'; allowed: section.key=value; a key with dots in it is quoted: \
'config."log.segment.bytes"=1048576'
m.toml: node.data_dir: found "${DATA}/blumfeld"; allowed: the text that ${DATA} stands for: a manifest expands \
nothing, a shell does (--set)
m.toml: node.id: found "one"; allowed: an integer
m.toml: node.idd: found an unknown key; allowed: cluster_id, data_dir, data_dirs, id, rack, roles (did you mean id?)
m.toml: storage.options.size_bytes: found "big"; allowed: an integer
m.toml: node.roles[0]: found "brokr"; allowed: broker, controller (did you mean broker?)
m.toml: logging.level: found "loud"; allowed: debug, info, warning, error
m.toml: network.listeners[0].name: found "plain"; allowed: capital letters, digits and _
m.toml: metrics.bind: found port 9092, as plain; allowed: a port of its own, or 0
m.toml: config."retnetion.ms": no broker key of Kafka's; did you mean log.retention.ms?
m.toml: config."log.segment.bytes": found "big"; allowed: a whole number of 32 bits, 1048576 or more
m.toml: config."max.connections.per.ip": found 0; allowed: 1 or more, unless max.connections.per.ip.overrides is set
m.toml: plugins.observers[0]: found "adit", which isn't installed; allowed: no installed plug-in fills observers"""


def test_one_run_tells_every_fault_and_none_twice() -> None:
    problems = complaints(
        "node.rack",
        'network.listeners=[{ name = "plain", bind = "127.0.0.1:9092" }]',
        "metrics.bind=127.0.0.1:9092",
        "storage.options.size_bytes=big",
        text=FAULTY,
    )
    assert "\n".join(sorted(problems)) == "\n".join(sorted(ALL_FAULTS.splitlines()))


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        # Each of these would be told a second time by a check that compares the faulty value with another one.
        ("node.id=one", 'node.id: found "one"; allowed: an integer'),
        ('node.roles=["controler"]', "node.roles[0]: found "),
        ("network.listeners=[{}]", "network.listeners[0]: found no name; "),
        ('groups.plugins=["groups_fake", 1]', "groups.plugins[1]: found 1; allowed: a string"),
        (
            'config."controller.quorum.voters"=3',
            'config."controller.quorum.voters": found 3; allowed: a list',
        ),
        ("config.log.segment.bytes=1", "config.log: found a table; "),
        ('config."socket.request.max.bytes"=x', 'config."socket.request.max.bytes": found "x"; '),
    ],
)
def test_a_faulty_value_is_not_compared_with_others(override: str, complaint: str) -> None:
    others = (
        'groups.options={ "groups_fake" = { "size_bytes" = 1 } }',
        'config."queued.max.request.bytes"=5000',
        'config."socket.request.max.bytes"=5000',
    )
    problems = complaints(*others, override)
    distinct = [line for line in problems if "found no bind" not in line]
    assert [line.partition(complaint)[:2] for line in distinct] == [("m.toml: ", complaint)]


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("node.data_dir=${HOME}/data", "node.data_dir"),
        ('node.data_dirs=["a", "${B}"]', "node.data_dirs[1]"),
        ("node.rack=${env:RACK}", "node.rack"),
        ('config."log.dirs"=${HOME}', 'config."log.dirs"'),
        ("metrics.bind=${HOST}:1", "metrics.bind"),
        ("storage.options.text=${X}", "storage.options.text"),
        ("node.data_dir=~/data", "node.data_dir"),
        ("node.data_dir=~ann/data", "node.data_dir"),
        ('node.data_dirs=["$HOME/a", "b"]', "node.data_dirs[0]"),
    ],
)
def test_a_variable_is_refused_and_never_taken_literally(override: str, path: str) -> None:
    problems = complaints(override)[0]
    assert problems.startswith(f"m.toml: {path}: found ")
    assert "expands nothing" in problems


def test_text_that_only_looks_like_a_variable_is_taken() -> None:
    manifest = read_manifest(None, overrides=["node.rack=a${0,1}b$HOME", "node.data_dir=cost$5/~x"])
    assert (manifest.node.rack, manifest.node.data_dir) == ("a${0,1}b$HOME", "cost$5/~x")
    make_plan(msgspec.structs.replace(manifest, node=msgspec.structs.replace(manifest.node, rack=None)))


def test_metrics_have_a_port_of_their_own() -> None:
    problems = complaints("metrics.bind=127.0.0.1:9092", listeners(PLAIN))
    assert problems == [
        "m.toml: metrics.bind: found port 9092, as PLAINTEXT; allowed: a port of its own, or 0"
    ]
    plan_of("metrics.bind=127.0.0.1:0", listeners('name="A", bind="127.0.0.1:0"'))


def test_what_is_no_toml_says_where() -> None:
    assert "no TOML" in complaints(text="[node\n")[0]
    assert "line 14" in complaints(text="[node\n")[0]


@pytest.mark.parametrize("override", ["node.id", "=1", "node..id=1", "node.id=1\nnode.x=2", "[node]=1"])
def test_an_override_needs_a_toml_key_and_a_value(override: str) -> None:
    problems = complaints(override)
    assert problems[0].startswith("--set: found ")
    assert "section.key=value" in problems[0]


def test_an_override_with_a_bare_kafka_key_is_told_where_it_goes() -> None:
    """The first thing that people try; keys of a section that Kafka has too stay what they are."""
    problems = complaints("num.partitions=4")
    assert problems == ["--set: found Kafka's num.partitions; allowed: 'config.\"num.partitions\"=4'"]
    assert plan_of("node.id=7").manifest.node.id == 7


@pytest.mark.parametrize(
    ("directories", "complaint"),
    [
        ("[]", "node.data_dirs: found no directory; allowed: the paths of one or more directories"),
        ('["a", ""]', 'node.data_dirs[1]: found ""; allowed: the path of a directory'),
        ('["a", "./a/"]', 'node.data_dirs[1]: found "./a/", as data_dirs[0]; allowed: each directory once'),
        ('["a", "b", "b"]', 'node.data_dirs[2]: found "b", as data_dirs[1]; allowed: each directory once'),
        (
            '["a", "a/b"]',
            'node.data_dirs[1]: found "a/b", inside data_dirs[0] ("a"); allowed: directories of which none lies',
        ),
        ('["/x/a/b", "/x/a"]', 'node.data_dirs[1]: found "/x/a", around data_dirs[0] ("/x/a/b"); allowed: '),
        ('["a", "."]', 'node.data_dirs[1]: found ".", around data_dirs[0] ("a"); allowed: '),
        ('["/", "/a"]', 'node.data_dirs[1]: found "/a", inside data_dirs[0] ("/"); allowed: '),
        ('["a,b"]', 'node.data_dirs[0]: found "a,b"; allowed: a path without a comma'),
        ('"a"', 'node.data_dirs: found "a"; allowed: a list'),
        ('["a", 2]', "node.data_dirs[1]: found 2; allowed: a string"),
    ],
)
def test_log_directories_that_cannot_be(directories: str, complaint: str) -> None:
    assert_refused(complaint, f"node.data_dirs={directories}")


def test_log_directories_are_given_one_way() -> None:
    wrong = 'node.data_dir: found "b" beside node.data_dirs; allowed: one of the two'
    assert_refused(wrong, 'node.data_dirs=["a"]', "node.data_dir=b")


def test_a_storage_may_not_wrap_itself() -> None:
    wrong = 'storage.options.local: found "storage_wrap"; allowed: another storage'
    assert_refused(wrong, "storage.plugin=storage_wrap", "storage.options.local=storage_wrap")


def test_log_directories_in_their_order() -> None:
    """Paths that only look alike are as different as any."""
    plan = plan_of('node.data_dirs=["b", "a", "ab", "../a"]')
    assert plan.manifest.node.directories == ("b", "a", "ab", "../a")
    assert plan.config.list("log.dirs") == ("b", "a", "ab", "../a")
    assert plan_of().manifest.node.directories == ("data",)
    assert plan_of("node.data_dir=d").config.list("log.dirs") == ("d",)


def test_a_directory_of_the_command_line_stands_for_all() -> None:
    text = MANIFEST + '\n[node]\nid = 3\ndata_dirs = ["a", "b"]\n'
    manifest = read_manifest(text, "m.toml", data_dir="c")
    assert (manifest.node.directories, manifest.node.id) == (("c",), 3)
    with pytest.raises(ManifestError, match="node: found 1; allowed: a table"):
        read_manifest("node = 1", "m.toml", data_dir="c")


def test_overrides_are_toml_values_or_bare_strings() -> None:
    plan = plan_of(
        "node.id=7",
        "node.data_dir=/var/lib/a b",
        'config."log.segment.bytes"=2097152',
        'config."auto.create.topics.enable"=false',
        'config."log.cleanup.policy"=compact',
    )
    assert plan.manifest.node.id == 7
    assert plan.manifest.node.data_dir == "/var/lib/a b"
    assert plan.config.int("log.segment.bytes") == 2_097_152
    assert plan.config.bool("auto.create.topics.enable") is False
    assert plan.config.list("log.cleanup.policy") == ("compact",)


def test_a_later_override_wins_and_leaves_its_neighbours() -> None:
    plan = plan_of("node.id=4", "node.id=5", text='[node]\nid = 3\nrack = "r1"\n')
    assert (plan.manifest.node.id, plan.manifest.node.rack) == (5, "r1")


def test_no_file_at_all_is_a_single_node_on_9092() -> None:
    """One voter is asked by nobody but itself: it opens no controller port."""
    manifest = read_manifest(None)
    assert manifest == Manifest()
    assert [(s.name, s.kind, s.bind, s.inter_broker) for s in listener_sections(manifest)] == [
        ("PLAINTEXT", "broker", "127.0.0.1:9092", True)
    ]


def test_listen_moves_the_first_broker_listener() -> None:
    rows = listeners(
        'name="C", kind="controller", bind="h:1"', 'name="A", bind="h:2"', 'name="B", bind="h:3"'
    )
    manifest = read_manifest(None, overrides=[rows], listen="127.0.0.1:0")
    assert [section.bind for section in listener_sections(manifest)] == ["h:1", "127.0.0.1:0", "h:3"]


def test_listen_without_a_broker_listener_is_refused() -> None:
    with pytest.raises(ManifestError, match="--listen: found h:1"):
        read_manifest(None, overrides=['node.roles=["controller"]'], listen="h:1")


def test_the_first_broker_listener_is_the_brokers_own_unless_one_says_so() -> None:
    rows = listeners('name="A", bind="h:1"', 'name="B", bind="h:2"')
    assert [listener.inter_broker for listener in plan_of(rows).listeners] == [True, False]
    rows = listeners('name="A", bind="h:1"', 'name="B", bind="h:2", inter_broker=true')
    assert [listener.inter_broker for listener in plan_of(rows).listeners] == [False, True]


def test_kafka_sees_the_manifests_sections_under_its_own_names() -> None:
    rows = listeners(
        'name="A", bind="[::1]:1", advertised="kafka.example:7"', 'name="C", bind="h:2", kind="controller"'
    )
    config = plan_of(rows, "node.id=4", "node.rack=r1").config
    assert config.int("node.id") == 4
    assert config.list("listeners") == ("A://[::1]:1", "C://h:2")
    assert config.list("advertised.listeners") == ("A://kafka.example:7",)
    assert config.list("controller.listener.names") == ("C",)
    assert config.str("inter.broker.listener.name") == "A"
    assert config.str("broker.rack") == "r1"


def test_plugins_stand_in_the_order_in_which_parts_are_made() -> None:
    plan = plan_of("storage.plugin=storage_wrap")
    assert [(plugin.role, plugin.name) for plugin in plan.plugins] == [
        ("network", "net_fake"),
        ("local_storage", "storage_fake"),
        ("storage", "storage_wrap"),
        ("consensus", "consensus_fake"),
        ("replication", "replication_fake"),
        ("groups", "groups_fake"),
    ]


def test_a_word_that_is_none_of_those_allowed_names_them() -> None:
    """Also in a plug-in's options, and with the closest one pointed out."""
    with pytest.raises(ManifestError) as caught:
        decode_section({"deep": {"flush": "intervall"}}, WordyOptions, "m.toml", "storage.options")
    said = 'storage.options.deep.flush: found "intervall"; allowed: never, interval, every (did you mean interval?)'
    assert str(caught.value) == f"m.toml: {said}"
