"""The contract of a ZooKeeper session as tests: subclass :class:`ZooKeeperContract`, and give it your servers.

It says what a real ZooKeeper does, as far as the broker relies on it. The simulated one and a client of the real one
pass the same tests, so the simulation is no wish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from blumfeld.spi.zookeeper import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SessionState,
    Set,
    TooLargeError,
    WatchKind,
    ZooKeeper,
    ZooKeeperError,
    request_bytes,
)
from blumfeld_kit.zookeeper_contract.kit import Opened, ZooKeeperKit

Scene = Callable[[Opened, ZooKeeper], Coroutine[Any, Any, None]]


def played(
    scene: Callable[[Any, Opened, ZooKeeper], Coroutine[Any, Any, None]],
) -> Callable[[Any, Opened], None]:
    """Make a coroutine with a connected session into a test."""

    def test(self: Any, opened: Opened) -> None:
        async def play() -> None:
            await scene(self, opened, await opened.connected())

        opened.runtime.run(play())

    test.__name__, test.__doc__ = scene.__name__, scene.__doc__
    return test


class ZooKeeperContract(ZooKeeperKit):
    """The contract of ``blumfeld.spi.zookeeper.ZooKeeper`` as tests. ``kit.ZooKeeperKit`` has what to override."""

    # Nodes

    @played
    async def test_a_created_node_is_read_back_with_its_facts(self, opened: Opened, zk: ZooKeeper) -> None:
        """A new node has version 0, one transaction, no owner and no children."""
        assert await zk.create("/a", b"data") == "/a"
        node = await zk.get("/a")
        assert node.data == b"data"
        stat = node.stat
        assert (stat.version, stat.cversion, stat.children, stat.ephemeral_owner) == (0, 0, 0, 0)
        assert stat.czxid == stat.mzxid > 0
        assert stat.ctime_ms > 0
        assert await zk.exists("/a") == stat

    @played
    async def test_each_write_raises_the_version_and_the_transaction(
        self, opened: Opened, zk: ZooKeeper
    ) -> None:
        """``set`` returns the facts after the write. ``czxid`` stays."""
        await zk.create("/a", b"0")
        created = (await zk.get("/a")).stat
        first = await zk.set("/a", b"1")
        second = await zk.set("/a", b"2", first.version)
        assert (first.version, second.version) == (1, 2)
        assert created.mzxid < first.mzxid < second.mzxid
        assert created.czxid == second.czxid
        node = await zk.get("/a")
        assert (node.data, node.stat) == (b"2", second)

    @played
    async def test_transactions_grow_over_sessions_and_nodes(self, opened: Opened, zk: ZooKeeper) -> None:
        """A node that is created again has a later ``czxid``: a broker's epoch."""
        other = await opened.connected()
        epochs = []
        for session in (zk, other, zk):
            await session.create("/a")
            epochs.append((await session.get("/a")).stat.czxid)
            await session.delete("/a")
        assert epochs == sorted(set(epochs))

    @played
    async def test_another_version_than_the_nodes_is_refused(self, opened: Opened, zk: ZooKeeper) -> None:
        """``set`` and ``delete`` change nothing then."""
        await zk.create("/a", b"0")
        await zk.set("/a", b"1")
        for refused in (zk.set("/a", b"2", 0), zk.set("/a", b"2", 2), zk.delete("/a", 0)):
            with pytest.raises(BadVersionError) as error:
                await refused
            assert error.value.path == "/a"
        assert (await zk.get("/a")).data == b"1"
        await zk.delete("/a", 1)
        assert await zk.exists("/a") is None

    @played
    async def test_each_refusal_has_its_error_and_its_path(self, opened: Opened, zk: ZooKeeper) -> None:
        """The path is the request's, relative to the chroot."""
        await zk.create("/a")
        await zk.create("/a/b")
        cases: list[tuple[Any, type[ZooKeeperError], str]] = [
            (zk.create("/a"), NodeExistsError, "/a"),
            (zk.create("/c/d"), NoNodeError, "/c/d"),
            (zk.delete("/a"), NotEmptyError, "/a"),
            (zk.get("/c"), NoNodeError, "/c"),
            (zk.children("/c"), NoNodeError, "/c"),
            (zk.set("/c", b""), NoNodeError, "/c"),
            (zk.delete("/c"), NoNodeError, "/c"),
        ]
        for refused, kind, path in cases:
            with pytest.raises(kind) as error:
                await refused
            assert error.value.path == path
        assert await zk.exists("/c") is None

    @played
    async def test_children_are_names_sorted_and_each_change_is_counted(
        self, opened: Opened, zk: ZooKeeper
    ) -> None:
        """``cversion`` grows with each child that comes or goes, not with their data."""
        await zk.create("/a")
        assert await zk.children("/a") == ()
        for name in ("z", "a", "m"):
            await zk.create(f"/a/{name}")
        await zk.delete("/a/m")
        await zk.set("/a/z", b"x")
        assert await zk.children("/a") == ("a", "z")
        stat = await zk.exists("/a")
        assert stat is not None
        assert (stat.cversion, stat.children, stat.version) == (4, 2, 0)
        assert "a" in await zk.children("/")

    @played
    async def test_a_sequential_node_counts_every_creation_below_its_parent(
        self, opened: Opened, zk: ZooKeeper
    ) -> None:
        """Ten digits, of the children created so far: others count too, and deletions give no number back."""
        await zk.create("/a")
        assert await zk.create("/a/n-", sequential=True) == "/a/n-0000000000"
        await zk.create("/a/other")
        await zk.delete("/a/other")
        assert await zk.create("/a/m-", sequential=True) == "/a/m-0000000002"
        assert await zk.multi([Create("/a/n-", sequential=True), Create("/a/n-", sequential=True)]) == (
            "/a/n-0000000003",
            "/a/n-0000000004",
        )

    @played
    async def test_data_may_be_empty_and_is_kept_as_bytes(self, opened: Opened, zk: ZooKeeper) -> None:
        """Any bytes, and none."""
        for number, data in enumerate((b"", bytes(range(256)), b"x" * 100_000)):
            await zk.create(f"/{number}", data)
            assert (await zk.get(f"/{number}")).data == data

    # Transactions of several operations

    @played
    async def test_a_multi_does_everything_and_returns_a_result_for_each(
        self, opened: Opened, zk: ZooKeeper
    ) -> None:
        """Later operations see earlier ones. All share one transaction."""
        await zk.create("/old", b"0")
        results = await zk.multi(
            [
                Check("/old", 0),
                Create("/a", b"1"),
                Create("/a/b", ephemeral=True),
                Set("/old", b"2", 0),
                Set("/old", b"3", 1),
                Delete("/a/b"),
                Check("/old"),
            ]
        )
        assert results[:3] == (None, "/a", "/a/b")
        assert results[5:] == (None, None)
        stats = [result for result in results if isinstance(result, NodeStat)]
        assert [stat.version for stat in stats] == [1, 2]
        a, old = await zk.get("/a"), await zk.get("/old")
        assert old.data == b"3"
        assert a.stat.czxid == old.stat.mzxid

    @pytest.mark.parametrize(
        ("bad", "kind"),
        [
            (Check("/a", 7), BadVersionError),
            (Check("/no"), NoNodeError),
            (Set("/a", b"", 7), BadVersionError),
            (Delete("/"), ZooKeeperError),
            (Delete("/no"), NoNodeError),
            (Create("/a"), NodeExistsError),
            (Create("/no/b"), NoNodeError),
        ],
        ids=str,
    )
    def test_a_multi_that_fails_does_nothing(
        self, opened: Opened, bad: Any, kind: type[ZooKeeperError]
    ) -> None:
        """The error is that of the first operation that can't be done, with its path. Nothing else is left of it: the
        next sequential number, versions and children are as before."""

        async def play() -> None:
            zk = await opened.connected()
            await zk.create("/a", b"0")
            before = await zk.exists("/a"), await zk.children("/")
            with pytest.raises(kind) as error:
                await zk.multi([Set("/a", b"1"), Create("/a/b"), Delete("/a/b"), bad, Check("/later", 3)])
            assert error.value.path == bad.path
            assert (await zk.exists("/a"), await zk.children("/")) == before
            assert (await zk.get("/a")).data == b"0"
            assert await zk.create("/a/n-", sequential=True) == "/a/n-0000000000"

        opened.runtime.run(play())

    @played
    async def test_an_empty_multi_succeeds(self, opened: Opened, zk: ZooKeeper) -> None:
        """It does nothing."""
        assert await zk.multi([]) == ()

    @played
    async def test_a_multi_may_be_as_large_as_the_server_takes(self, opened: Opened, zk: ZooKeeper) -> None:
        """A request near ``request_bytes_max`` succeeds. A larger one fails, and the session goes on."""
        operations: list[Any] = []
        while request_bytes(operations, opened.chroot) < zk.request_bytes_max - 1_500:
            operations.append(Create(f"/{len(operations):05}", b"x" * 1_000))
        assert len(await zk.multi(operations)) == len(operations)
        room = zk.request_bytes_max - request_bytes([Set("/00000", b"")], opened.chroot)
        await zk.set("/00000", b"x" * (room - 100))
        for too_large in (zk.multi([*operations, *operations[:3]]), zk.set("/00000", b"x" * (room + 1))):
            with pytest.raises(TooLargeError) as error:
                await too_large
            assert error.value.path == "/00000"
        assert len(await zk.children("/")) == len(operations)
        assert zk.state is SessionState.CONNECTED

    # Order

    @played
    async def test_requests_complete_in_the_order_of_their_calls(self, opened: Opened, zk: ZooKeeper) -> None:
        """Reads, writes and refusals alike, and each sees those before it."""
        trail = opened.trail
        trail.answer(zk.create("/a"), "create")
        trail.answer(zk.get("/a"), "get")
        trail.answer(zk.create("/a"), "again")
        trail.answer(zk.multi([Set("/a", b"1"), Check("/no")]), "multi")
        trail.answer(zk.exists("/no"), "exists")
        trail.answer(zk.set("/a", b"2", 0), "set")
        trail.answer(zk.sync("/a"), "sync")
        trail.answer(zk.children("/a"), "children")
        trail.answer(zk.delete("/a", 1), "delete")
        gone = zk.get("/a")
        trail.answer(gone, "gone")
        with pytest.raises(NoNodeError):
            await gone
        again, multi, gone_too = ("again", NodeExistsError), ("multi", NoNodeError), ("gone", NoNodeError)
        assert trail.seen == [
            *("create", "get", again, multi, "exists", "set", "sync", "children", "delete"),
            gone_too,
        ]

    @played
    async def test_many_requests_are_under_way_at_once(self, opened: Opened, zk: ZooKeeper) -> None:
        """All are answered, in order."""
        answered: list[int] = []
        for number in range(self.many_nodes):
            made = zk.create(f"/{number:06}", b"%d" % number)
            made.when_done(lambda _, number=number: answered.append(number))  # type: ignore[misc]
        reads = [zk.get(f"/{number:06}") for number in range(self.many_nodes)]
        assert len(await zk.children("/")) == self.many_nodes
        assert answered == list(range(self.many_nodes))
        assert [read.result().data for read in reads] == [b"%d" % number for number in range(self.many_nodes)]

    # Watches

    @played
    async def test_a_watch_tells_of_one_change(self, opened: Opened, zk: ZooKeeper) -> None:
        """A watch ends with the first change: the second one calls nobody."""
        trail, other = opened.trail, await opened.connected()
        await zk.create("/a")
        await zk.get("/a", trail.watch())
        await other.set("/a", b"1")
        await other.set("/a", b"2")
        await other.delete("/a")
        await zk.sync("/a")
        assert trail.seen == [(WatchKind.DATA, "/a")]

    @played
    async def test_each_kind_of_change_ends_the_watches_that_it_concerns(
        self, opened: Opened, zk: ZooKeeper
    ) -> None:
        """Data watches: creation, change, deletion. Children's watches: a child comes or goes, or the deletion."""
        trail, other = opened.trail, await opened.connected()
        assert await zk.exists("/a", trail.watch("exists")) is None
        await other.create("/a")
        await zk.sync("/a")
        assert trail.seen == [("exists", WatchKind.CREATED, "/a")]
        trail.seen.clear()
        await zk.get("/a", trail.watch("get"))
        await zk.children("/a", trail.watch("children"))
        await other.create("/a/b")
        await other.set("/a/b", b"x")
        await zk.sync("/a")
        assert trail.seen == [("children", WatchKind.CHILDREN, "/a")]
        trail.seen.clear()
        await zk.children("/a", trail.watch("children"))
        await zk.exists("/a", trail.watch("exists"))
        await other.delete("/a/b")
        await zk.sync("/a")
        assert trail.seen == [("children", WatchKind.CHILDREN, "/a")]
        trail.seen.clear()
        await zk.children("/a", trail.watch("children"))
        await other.delete("/a")
        await zk.sync("/a")
        assert sorted(map(str, trail.seen)) == sorted(
            map(str, [(name, WatchKind.DELETED, "/a") for name in ("get", "exists", "children")])
        )

    @played
    async def test_a_read_that_fails_watches_nothing(self, opened: Opened, zk: ZooKeeper) -> None:
        """``get`` and ``children`` of no node; ``exists`` of none does watch."""
        trail = opened.trail
        for read in (zk.get("/a", trail.watch()), zk.children("/a", trail.watch())):
            with pytest.raises(NoNodeError):
                await read
        await zk.create("/a")
        await zk.create("/a/b")
        await zk.set("/a", b"1")
        await zk.sync("/a")
        assert trail.seen == []

    @played
    async def test_a_watch_is_told_before_the_read_that_shows_the_change(
        self, opened: Opened, zk: ZooKeeper
    ) -> None:
        """Somebody else's change: each round reads until it shows, and the event was there first."""
        other = await opened.connected()
        await zk.create("/a", b"0")
        for number in range(1, 30):
            told: list[object] = []
            await zk.get("/a", lambda event, told=told: told.append(event))  # type: ignore[misc]
            write = other.set("/a", b"%d" % number)
            while (await zk.get("/a")).data != b"%d" % number:
                assert not write.done or write.error is None
            assert told, f"round {number}: the change was seen before its event"
            await write

    @played
    async def test_a_watch_is_told_before_the_answer_to_ones_own_write(
        self, opened: Opened, zk: ZooKeeper
    ) -> None:
        """Each kind of write, also a ``multi``, whose events come in the order of its operations."""
        trail = opened.trail
        await zk.create("/a")
        await zk.create("/b")
        await zk.get("/a", trail.watch())
        await zk.children("/", trail.watch())
        await zk.children("/b", trail.watch())
        trail.answer(zk.multi([Create("/c"), Create("/b/x"), Set("/a", b"1"), Create("/d")]), "multi")
        await zk.sync("/")
        assert trail.seen == [
            (WatchKind.CHILDREN, "/"),
            (WatchKind.CHILDREN, "/b"),
            (WatchKind.DATA, "/a"),
            "multi",
        ]

    @played
    async def test_every_watch_of_one_node_is_told(self, opened: Opened, zk: ZooKeeper) -> None:
        """The same callback given twice is called twice: each call is a watch."""
        trail = opened.trail
        await zk.create("/a")
        same = trail.watch("same")
        for _ in range(2):
            await zk.get("/a", same)
        await zk.exists("/a", trail.watch("other"))
        await zk.set("/a", b"1")
        kinds = [("same", WatchKind.DATA, "/a")] * 2 + [("other", WatchKind.DATA, "/a")]
        assert sorted(map(str, trail.seen)) == sorted(map(str, kinds))

    @played
    async def test_a_watch_may_be_set_again_from_its_callback(self, opened: Opened, zk: ZooKeeper) -> None:
        """A reader that reads again at each event sees the last state."""
        other = await opened.connected()
        await zk.create("/a", b"0")
        seen: list[bytes] = []

        def read(_: object = None) -> None:
            zk.get("/a", read).when_done(lambda done: seen.append(done.result().data))

        read()
        for number in range(1, 20):
            await other.set("/a", b"%d" % number)
        await opened.until(lambda: seen[-1:] == [b"19"])
        assert seen == sorted(set(seen), key=int)

    # Ephemeral nodes and the end of a session

    @played
    async def test_an_ephemeral_node_is_its_sessions_and_goes_with_it(
        self, opened: Opened, zk: ZooKeeper
    ) -> None:
        """Its owner is the session's id. Closing the session removes it, and watchers learn of that."""
        trail, other = opened.trail, await opened.connected()
        await other.create("/a", ephemeral=True)
        stat = await zk.exists("/a", trail.watch())
        assert stat is not None
        assert stat.ephemeral_owner == other.session_id != 0
        assert zk.session_id != other.session_id
        with pytest.raises(ZooKeeperError):
            await zk.create("/a/child")
        await other.close()
        assert await zk.exists("/a") is None
        assert trail.seen == [(WatchKind.DELETED, "/a")]

    @played
    async def test_all_ephemeral_nodes_of_a_session_go_at_once(self, opened: Opened, zk: ZooKeeper) -> None:
        """They go in one transaction: a reader that sees one gone sees all gone."""
        trail, other = opened.trail, await opened.connected()
        names = [f"/e{number}" for number in range(10)]
        for name in names:
            await other.create(name, ephemeral=True)
            await zk.exists(name, trail.watch())
        before = await zk.exists("/")
        await other.close()
        await zk.sync("/")
        assert await zk.children("/") == ()
        assert sorted(map(str, trail.seen)) == sorted(str((WatchKind.DELETED, name)) for name in names)
        after = await zk.exists("/")
        assert before is not None
        assert after is not None
        assert after.cversion == before.cversion + len(names)

    @played
    async def test_a_session_that_is_silent_beyond_its_timeout_expires(
        self, opened: Opened, zk: ZooKeeper
    ) -> None:
        """Its ephemeral nodes go while it can't know; when it reaches a server it learns that it is over, for good."""
        trail = opened.trail
        other = await opened.connected()
        zk.on_state(trail.state)
        await zk.create("/a", ephemeral=True)
        await opened.expire(zk)
        assert await other.exists("/a") is None
        assert trail.seen == [SessionState.SUSPENDED, SessionState.EXPIRED]
        for refused in (zk.get("/"), zk.create("/b"), zk.multi([Create("/b")]), zk.sync("/")):
            with pytest.raises(SessionExpiredError):
                await refused
        await asyncio.sleep(2 * opened.servers.timeout_ms / 1000)
        assert zk.state is SessionState.EXPIRED
        assert await other.exists("/b") is None

    @played
    async def test_a_new_session_may_take_an_expired_ones_place(self, opened: Opened, zk: ZooKeeper) -> None:
        """The node of an old session stands in the way until that session is over."""
        await zk.create("/a", ephemeral=True)
        opened.servers.cut(zk)
        other = await opened.connected()
        with pytest.raises(NodeExistsError):
            await other.create("/a", ephemeral=True)
        gone = opened.trail
        if await other.exists("/a", gone.watch()) is not None:
            await opened.until(lambda: bool(gone.seen))
        await other.create("/a", ephemeral=True)
        opened.servers.heal(zk)
        await opened.until(lambda: zk.state is SessionState.EXPIRED)
        stat = await other.exists("/a")
        assert stat is not None
        assert stat.ephemeral_owner == other.session_id

    @played
    async def test_a_session_may_expire_in_the_middle_of_a_multi(self, opened: Opened, zk: ZooKeeper) -> None:
        """A ``multi`` that is sent into a cut fails, and takes place neither then nor later."""
        other = await opened.connected()
        await zk.create("/epoch", b"1")
        await zk.create("/a", ephemeral=True)
        gone = opened.trail
        await other.exists("/a", gone.watch())
        opened.servers.cut(zk)
        multi = zk.multi([Check("/epoch", 0), Create("/b"), Create("/c")])
        with pytest.raises(ConnectionLostError):
            await multi
        await opened.until(lambda: bool(gone.seen))
        opened.servers.heal(zk)
        await opened.until(lambda: zk.state is SessionState.EXPIRED)
        assert await other.children("/") == ("epoch",)

    # Lost connections

    @played
    async def test_a_lost_connection_suspends_the_session_and_ends_its_watches(
        self, opened: Opened, zk: ZooKeeper
    ) -> None:
        """The state first, then what waits fails in order, then each watch ends with LOST."""
        trail, other = opened.trail, await opened.connected()
        await zk.create("/a", b"0", ephemeral=True)
        await zk.get("/a", trail.watch("get"))
        await zk.exists("/no", trail.watch("exists"))
        await zk.children("/", trail.watch("children"))
        zk.on_state(trail.state)
        opened.servers.cut(zk)
        for name in ("first", "second"):
            trail.answer(zk.get("/a", trail.watch("never set")), name)
        await opened.until(lambda: zk.state is SessionState.SUSPENDED)
        opened.servers.heal(zk)
        await opened.until(lambda: zk.state is not SessionState.SUSPENDED and len(trail.seen) >= 7)
        lost = [(name, WatchKind.LOST) for name in ("get", "exists", "children")]
        assert trail.seen[:3] == [
            SessionState.SUSPENDED,
            ("first", ConnectionLostError),
            ("second", ConnectionLostError),
        ]
        assert sorted(map(str, (seen[:2] for seen in trail.seen[3:6]))) == sorted(map(str, lost))  # type: ignore[index]
        assert trail.seen[6] in (SessionState.CONNECTED, SessionState.EXPIRED)
        await other.close()

    @played
    async def test_a_session_outlives_its_connection(self, opened: Opened, zk: ZooKeeper) -> None:
        """Its ephemeral nodes stay, and after the reconnection it works on. Its old watches are gone."""
        trail, other = opened.trail, await opened.connected()
        await zk.create("/a", ephemeral=True)
        owner = zk.session_id
        await zk.get("/a", trail.watch())
        zk.on_state(trail.state)
        opened.servers.disconnect(zk)
        await opened.until(lambda: trail.seen[-1:] == [SessionState.CONNECTED])
        assert trail.seen == [SessionState.SUSPENDED, (WatchKind.LOST, "/a"), SessionState.CONNECTED]
        assert zk.session_id == owner
        stat = await other.exists("/a")
        assert stat is not None
        assert stat.ephemeral_owner == owner
        await other.set("/a", b"1")
        assert (await zk.get("/a", trail.watch("new"))).data == b"1"
        await other.set("/a", b"2")
        await zk.sync("/a")
        assert trail.seen[3:] == [("new", WatchKind.DATA, "/a")]

    @played
    async def test_a_suspended_session_refuses_requests_at_once(self, opened: Opened, zk: ZooKeeper) -> None:
        """Nothing is kept for the reconnection. The refusal comes in a later turn, not inside of the call."""
        opened.servers.cut(zk)
        await opened.until(lambda: zk.state is SessionState.SUSPENDED)
        refused = zk.create("/a")
        assert not refused.done
        with pytest.raises(ConnectionLostError):
            await refused
        opened.servers.heal(zk)
        await opened.until(lambda: zk.state is not SessionState.SUSPENDED)
        other = await opened.connected()
        assert await other.exists("/a") is None

    @played
    async def test_a_lost_answer_hides_a_change_that_took_place(self, opened: Opened, zk: ZooKeeper) -> None:
        """``ConnectionLostError`` says nothing about the change. What was sent after it never takes place later."""
        await zk.create("/a", b"0")
        opened.servers.lose_answer(zk)
        with pytest.raises(ConnectionLostError):
            await zk.multi([Set("/a", b"1", 0)])
        await opened.until(lambda: zk.state is SessionState.CONNECTED)
        node = await zk.get("/a")
        assert (node.data, node.stat.version) == (b"1", 1)

    # Begin and end

    def test_the_chroot_is_made_if_that_is_asked_for(self, opened: Opened) -> None:
        """With each of its parents; it may be there. Otherwise its absence is an error that names it."""
        chroot = f"{opened.chroot}/deep/er"

        async def play() -> None:
            zk = opened.new_session(chroot=chroot, create_chroot=False)
            with pytest.raises(NoNodeError, match=r"chroot") as error:
                await zk.connect(20_000)
            assert chroot in str(error.value)
            for _ in range(2):
                zk = await opened.connected(chroot=chroot)
                await zk.create("/a", ephemeral=True)
                above = await opened.connected()
                assert await above.children("/deep/er") == ("a",)
                await zk.close()
            await opened.connected(chroot=chroot, create_chroot=False)

        opened.runtime.run(play())

    def test_no_server_in_time_is_an_error(self, opened: Opened) -> None:
        """The message says what was tried. The session is over."""

        async def play() -> None:
            zk = opened.new_session(reachable=False)
            states = [zk.state]
            with pytest.raises(TimeoutError, match=r"1500 ms"):
                await zk.connect(1_500)
            assert [*states, zk.state] == [SessionState.SUSPENDED, SessionState.EXPIRED]
            with pytest.raises(SessionExpiredError):
                await zk.get("/")

        opened.runtime.run(play())

    def test_a_session_may_be_closed_without_a_connection(self, opened: Opened) -> None:
        """And twice."""

        async def play() -> None:
            zk = opened.new_session()
            await zk.close()
            await zk.close()
            with pytest.raises(SessionExpiredError):
                await zk.get("/")

        opened.runtime.run(play())

    @played
    async def test_a_closed_session_tells_nothing_more(self, opened: Opened, zk: ZooKeeper) -> None:
        """Requests that wait fail with ``SessionExpiredError``; watches and listeners are not called."""
        trail, other = opened.trail, await opened.connected()
        await zk.create("/a")
        await zk.get("/a", trail.watch())
        zk.on_state(trail.state)
        reads = [zk.get("/a", trail.watch()) for _ in range(3)]
        await zk.close()
        await zk.close()
        for read in reads:
            with pytest.raises(SessionExpiredError):
                await read
        await other.set("/a", b"1")
        with pytest.raises(SessionExpiredError):
            await zk.get("/a")
        assert zk.state is SessionState.EXPIRED
        assert trail.seen == []

    @played
    async def test_a_suspended_session_is_closed_in_bounded_time(self, opened: Opened, zk: ZooKeeper) -> None:
        """Without a server the close ends too; the servers end the session when its timeout has passed."""
        await zk.create("/a", ephemeral=True)
        other = await opened.connected()
        opened.servers.cut(zk)
        await opened.until(lambda: zk.state is SessionState.SUSPENDED)
        begin_ms = opened.runtime.monotonic_ms()
        await zk.close()
        assert opened.runtime.monotonic_ms() - begin_ms < 2 * opened.servers.timeout_ms
        opened.servers.heal(zk)
        trail = opened.trail
        if await other.exists("/a", trail.watch()) is not None:
            await opened.until(lambda: bool(trail.seen))
