"""Whether nodes may speak to each other under ACLs: what is refused, what is warned of, and what is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blumfeld.plugging.errors import ManifestError
from tests.kernel.fakes import described, plan_of

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
THREE = '"1@127.0.0.1:9093,2@127.0.0.1:9193,3@127.0.0.1:9293"'
VOTERS = f'config."controller.quorum.voters"={THREE}'
SERVERS = 'config."controller.quorum.bootstrap.servers"="127.0.0.1:9093"'
CONTROLLER = '{name="CONTROLLER", kind="controller", bind="127.0.0.1:9093"}'
SECURE = '{name="SECURE", kind="controller", bind="127.0.0.1:9094"}'
EVERYBODY = 'security.options.acls.super_users=["User:admin", "User:ANONYMOUS"]'
BROKER, BOTH = '["broker"]', '["broker", "controller"]'


def text_of(
    *overrides: str,
    controllers: str = CONTROLLER,
    roles: str = BOTH,
    protocols: str = "",
    inter: str = "PLAINTEXT",
) -> str:
    """The plan of a node with ACLs whose super user is ``User:admin``, on plain listeners."""
    inside = f'{{name="INSIDE", bind="127.0.0.1:9092", inter_broker=true}}{", " if controllers else ""}'
    plan = plan_of(
        f"node.roles={roles}",
        f"network.listeners=[{inside}{controllers}]",
        "security.plugin=security",
        'security.options.acls.super_users=["User:admin"]',
        f'config."authorizer.class.name"="{AUTHORIZER}"',
        f'config."listener.security.protocol.map"="INSIDE:{inter},{protocols or "CONTROLLER:PLAINTEXT"}"',
        *overrides,
        security="blumfeld_security.plugin:Plugin",
    )
    return described(plan)


def warnings_of(text: str) -> list[str]:
    """The section of warnings, one line for each."""
    _, head, rest = text.partition("\nwarnings\n")
    if not head:
        return []
    return rest.partition("\n\n")[0].replace("\n    ", " ").strip().split("\n  ")


@pytest.mark.parametrize("more", [(), ("security.options.acls.allow_everyone_if_no_acl_found=true",)])
def test_voters_without_a_login_are_refused_for_they_elect_nobody(more: tuple[str, ...]) -> None:
    """No ACL can be read before there is a leader, in Kafka neither: AuthorizerNotReadyException."""
    with pytest.raises(ManifestError) as raised:
        text_of(VOTERS, *more)
    [problem] = raised.value.problems
    assert problem.path == "security.options.acls.super_users"
    assert "CONTROLLER (PLAINTEXT) without a login" in problem.found
    assert "ssl.client.auth" in problem.allowed
    assert "User:ANONYMOUS" in problem.allowed


@pytest.mark.parametrize(
    "overrides",
    [(VOTERS, EVERYBODY), (), ('config."controller.quorum.voters"="1@127.0.0.1:9093"',)],
    ids=["anonymous is a super user", "a node alone", "the only voter"],
)
def test_what_needs_no_acl_is_not_warned_of(overrides: tuple[str, ...]) -> None:
    assert warnings_of(text_of(*overrides)) == []


def logins(folder: Path, user: str) -> tuple[str, ...]:
    """Controllers and brokers that log in by PLAIN."""
    for name, text in (("users", "[users]\n"), ("login", f'user = "{user}"\npassword = "p"\n')):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return (
        f'security.options.plain_users="{folder}/users"',
        f'security.options.peer_login="{folder}/login"',
        'config."sasl.enabled.mechanisms"="PLAIN"',
        'config."sasl.mechanism.controller.protocol"="PLAIN"',
        'config."sasl.mechanism.inter.broker.protocol"="PLAIN"',
    )


def test_the_user_of_a_node_must_be_a_super_user(tmp_path: Path) -> None:
    """Another list of super users may stand on other nodes, so this is a warning."""
    kinds: dict[str, Any] = {"protocols": "CONTROLLER:SASL_PLAINTEXT", "inter": "SASL_PLAINTEXT"}
    assert warnings_of(text_of(VOTERS, *logins(tmp_path, "admin"), **kinds)) == []
    told = warnings_of(text_of(VOTERS, *logins(tmp_path, "node"), **kinds))
    assert [line.partition("; needs")[0] for line in told] == [
        "this node's own user is no super user; listener: CONTROLLER; use: controllers vote by it, here as User:node",
        "this node's own user is no super user; listener: INSIDE; use: brokers replicate by it, here as User:node",
    ]


def test_the_listener_that_the_voters_are_told_counts(tmp_path: Path) -> None:
    """A second controller listener without a login elects nobody and keeps nobody from it."""
    kinds: dict[str, Any] = {
        "controllers": f"{CONTROLLER}, {SECURE}",
        "protocols": "CONTROLLER:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "inter": "SASL_PLAINTEXT",
    }
    secured = logins(tmp_path, "admin")
    with pytest.raises(ManifestError, match="by CONTROLLER"):
        text_of(VOTERS, *secured, **kinds)
    told = warnings_of(text_of(VOTERS.replace("1:9093", "1:9094"), *secured, **kinds))
    assert [line.split("; ")[1] for line in told] == ["listener: CONTROLLER"]


def test_a_port_that_voters_reach_inside_counts_beside_the_advertised_one(tmp_path: Path) -> None:
    """The plain listener is advertised behind NAT by the port at which voters reach the secured one."""
    kinds: dict[str, Any] = {
        "controllers": f'{CONTROLLER[:-1]}, advertised="nat:9094"}}, {SECURE[:-1]}, advertised="nat:9194"}}',
        "protocols": "CONTROLLER:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "inter": "SASL_PLAINTEXT",
    }
    told = warnings_of(text_of(VOTERS.replace("1:9093", "1:9094"), *logins(tmp_path, "admin"), **kinds))
    assert [line.split("; ")[1] for line in told] == ["listener: CONTROLLER"]


def test_a_broker_votes_for_nobody(tmp_path: Path) -> None:
    kinds: dict[str, Any] = {"protocols": "CONTROLLER:SASL_PLAINTEXT", "inter": "SASL_PLAINTEXT"}
    node = logins(tmp_path, "node")
    told = warnings_of(text_of(VOTERS.replace("1@", "7@"), *node, roles=BROKER, controllers="", **kinds))
    uses = [line.split("; ")[2] for line in told]
    assert uses == [
        "use: this broker registers and follows the metadata by it, here as User:node",
        "use: brokers replicate by it, here as User:node",
    ]


@pytest.mark.parametrize(
    ("overrides", "node", "told"),
    [
        (
            (SERVERS,),
            {},
            [
                "CONTROLLER; use: brokers register and follow the metadata by it. Several voters elect no leader",
                "INSIDE; use: brokers replicate by it",
            ],
        ),
        (
            (VOTERS.replace("1@", "7@"),),
            {"roles": BROKER, "controllers": ""},
            [
                "CONTROLLER; use: this broker registers and follows the metadata by it",
                "INSIDE; use: brokers replicate by it",
            ],
        ),
    ],
    ids=["a dynamic quorum", "a broker"],
)
def test_what_only_an_acl_can_allow_is_warned_of(
    overrides: tuple[str, ...], node: dict[str, Any], told: list[str]
) -> None:
    lines = warnings_of(text_of(*overrides, **node))
    head = "nodes come in without a login, and User:ANONYMOUS is no super user; listener: "
    assert [line.partition("; needs")[0] for line in lines] == [head + each for each in told]
    assert all("an ACL that allows ClusterAction on the cluster; helps: " in line for line in lines)
    assert warnings_of(text_of(EVERYBODY, *overrides, **node)) == []
