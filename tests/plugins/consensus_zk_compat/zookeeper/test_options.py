"""A connect string has servers and a chroot, and new nodes get Kafka's access lists."""

from __future__ import annotations

import pytest
from kazoo.security import Permissions

from blumfeld.spi.zookeeper import Create, request_bytes
from blumfeld_consensus_zk_compat.zookeeper import (
    Access,
    ConnectString,
    Tls,
    open_session,
    parse_connect,
)
from blumfeld_consensus_zk_compat.zookeeper.acls import Acls
from blumfeld_kit.fakes.runtime import FakeRuntime


@pytest.mark.parametrize(
    ("connect", "servers", "chroot"),
    [
        ("a:2181", "a:2181", ""),
        ("a", "a", ""),
        ("a:1,b.example:2/", "a:1,b.example:2", ""),
        ("a:1, b:2/kafka", "a:1, b:2", "/kafka"),
        ("[::1]:2181,10.0.0.1:2/x/y/", "[::1]:2181,10.0.0.1:2", "/x/y"),
    ],
)
def test_a_connect_string_has_servers_and_a_chroot(connect: str, servers: str, chroot: str) -> None:
    assert parse_connect(connect) == ConnectString(servers, chroot)


@pytest.mark.parametrize(
    "connect", ["", "/x", "a:", "a:b", "a:1,,b:2", "a:1//x", "a:1/x//y", "a:1/..", "::1", "a b"]
)
def test_a_connect_string_that_cannot_be_used_says_why(connect: str) -> None:
    with pytest.raises(ValueError, match=r"is no (HOST:PORT|path of a znode)"):
        parse_connect(connect)


def test_a_chroot_behind_each_server_is_refused_and_makes_no_cluster_of_its_own() -> None:
    with pytest.raises(
        ValueError, match="a server follows the chroot; allowed: one chroot, behind the last server"
    ):
        parse_connect("a:1/x,b:2/x")


@pytest.mark.parametrize("option", ["ca_file", "certificate_file", "key_file"])
def test_a_file_of_tls_that_is_not_there_is_named_at_once(option: str) -> None:
    access = Access(servers="a:1", tls=Tls(**{option: "/no/such.pem"}))  # type: ignore[arg-type]
    with pytest.raises(OSError, match=rf"tls\.{option}: .*/no/such\.pem"):
        open_session(FakeRuntime(), access)


def test_without_set_acl_everybody_may_do_everything() -> None:
    (acl,) = Acls(secure=False).of("/config/users/alice")
    assert (acl.perms, acl.id.scheme, acl.id.id) == (Permissions.ALL, "world", "anyone")


@pytest.mark.parametrize(
    ("path", "readable"),
    [
        ("/brokers/ids/1", True),
        ("/config/users", False),
        ("/config/users/alice", False),
        ("/config/usersx", True),
    ],
)
def test_with_set_acl_only_the_creator_writes_and_secrets_are_his_own(path: str, readable: bool) -> None:
    acls = {(acl.id.scheme, acl.perms) for acl in Acls(secure=True).of(path)}
    assert acls == {("auth", Permissions.ALL)} | ({("world", Permissions.READ)} if readable else set())


def test_old_consumers_write_where_they_did() -> None:
    assert [acl.perms for acl in Acls(secure=True).of("/consumers")] == [Permissions.ALL]


@pytest.mark.parametrize("secure", [False, True])
def test_the_size_of_a_request_is_counted_as_kazoo_writes_it(secure: bool) -> None:
    from kazoo.protocol.serialization import Create as KazooCreate
    from kazoo.protocol.serialization import Transaction

    acls = Acls(secure=secure)
    path, data = "/brokers/topics/\u00e4", b"data"
    written = Transaction([KazooCreate(f"/chroot{path}", data, acls.of(path), 0)] * 3).serialize()
    counted = request_bytes([Create(path, data)] * 3, "/chroot", acls.bytes_max)
    assert counted == 8 + len(written)
