"""The classes of Kafka's keys, as a manifest meets them: refused, taken and listed, or said in another section."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from blumfeld.config.effects import FIXED, HONOURED, REFUSED, WITHOUT, effect_of
from blumfeld.config.values import BROKER_CONFIGS, ConfigDef, render
from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.manifest.kafka_config import transport_limits
from blumfeld.kernel.node import Node
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.kernel.watching.event_log import EventLogs
from tests.config.test_effects import another_value
from tests.everyday import for_each
from tests.kernel.fakes import FakeBroker, complaints, described, plan_of

WITHOUT_EFFECT = [defn for defn in BROKER_CONFIGS.values() if effect_of(defn).effect == WITHOUT]
ONLY_DEFAULT = [defn for defn in BROKER_CONFIGS.values() if effect_of(defn).effect in (FIXED, REFUSED)]
OF_SECTIONS = [defn for defn in BROKER_CONFIGS.values() if effect_of(defn).section is not None]


def planned(**config: object) -> Plan:
    """A plan with these keys of Kafka, as ``--set`` gives them."""
    return plan_of(*(f'config."{key}"={value}' for key, value in config.items()))


def refusal(*overrides: str) -> str:
    """The one problem of a manifest."""
    (line,) = complaints(*overrides)
    return line.removeprefix("m.toml: ")


def other(defn: ConfigDef) -> str:
    """Another value than the default, as text."""
    return str(render(defn, another_value(defn)))


@for_each(ONLY_DEFAULT)
def test_a_key_that_would_promise_too_much_fails_with_its_path(defn: ConfigDef) -> None:
    said = refusal(f'config."{defn.name}"={other(defn)}')
    assert said.startswith(f'config."{defn.name}": found ')
    assert said.endswith(effect_of(defn).where)
    default = render(defn, defn.default)
    if default is not None:
        planned(**{defn.name: f"'{default}'"})


@pytest.mark.parametrize("defn", OF_SECTIONS, ids=lambda defn: defn.name)
def test_a_key_that_a_section_says_is_pointed_there(defn: ConfigDef) -> None:
    assert effect_of(defn).effect == HONOURED
    assert refusal(f'config."{defn.name}"={other(defn)}').endswith(f"say it in {effect_of(defn).section}")


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (
            ['config."listener.security.protocol.map"="PLAINTEXT:SASL_SSL"'],
            'config."listener.security.protocol.map": found "PLAINTEXT:SASL_SSL"; allowed: PLAINTEXT:PLAINTEXT: this '
            "build's listeners speak PLAINTEXT only",
        ),
        (
            ['config."listener.security.protocol.map"="PLAINTEXT:PLAINTEXT,OUTSIDE:SSL"'],
            'config."listener.security.protocol.map": found "OUTSIDE:SSL"; allowed: OUTSIDE:PLAINTEXT: this '
            "build's listeners speak PLAINTEXT only",
        ),
        (
            ['config."listener.security.protocol.map"="PLAINTEXT"'],
            'config."listener.security.protocol.map": found "PLAINTEXT"; allowed: LISTENER:PROTOCOL, the protocol one '
            "of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            ['network.listeners=[{name="SASL_SSL", bind="127.0.0.1:9092"}]'],
            'network.listeners[0].name: found "SASL_SSL", which names a security protocol; allowed: another name: '
            "this build's listeners speak PLAINTEXT only",
        ),
        (
            ['config."ssl.client.auth"=required'],
            'config."ssl.client.auth": found "required"; allowed: only Kafka\'s default, "none": listeners speak '
            "PLAINTEXT only, every client is User:ANONYMOUS and may do everything",
        ),
        (
            ['config."listener.name.plaintext.ssl.client.auth"=required'],
            'config."listener.name.plaintext.ssl.client.auth": found "required"; allowed: only Kafka\'s default, '
            '"none": listeners speak PLAINTEXT only, every client is User:ANONYMOUS and may do everything',
        ),
        (
            ['config."listener.name.plaintext.log.segment.bytes"=2000000'],
            'config."listener.name.plaintext.log.segment.bytes": found 2000000; allowed: nothing for one listener: '
            "log.segment.bytes holds for all of them",
        ),
        (
            ['config."listener.name.outside.max.connections"=5'],
            'config."listener.name.outside.max.connections": found 5; allowed: the prefix of a listener of this node: '
            "listener.name.plaintext.",
        ),
    ],
)
def test_no_open_door_looks_locked(overrides: list[str], complaint: str) -> None:
    assert refusal(*overrides) == complaint


def test_kafkas_own_map_is_taken() -> None:
    """The line of Kafka's shipped server.properties."""
    protocols = (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    )
    planned(**{"listener.security.protocol.map": f'"{protocols}"'})


def test_a_listener_has_its_own_limit() -> None:
    plan = planned(**{"listener.name.plaintext.max.connections": 5, "max.connections": 9})
    limits = transport_limits(plan.config, "PLAINTEXT")
    assert (limits.listener_connections_max, limits.connections_max) == (5, 9)
    unlimited = transport_limits(planned(**{"max.connections": 9}).config, "PLAINTEXT")
    assert transport_limits(plan.config, "OUTSIDE") == unlimited


def test_limits_of_connections_are_kafkas() -> None:
    """Overrides by address, and rates of the broker and of one listener."""
    given = {
        "max.connections.per.ip.overrides": '" 127.0.0.1:7, [::0001]:8,::2:9"',
        "max.connection.creation.rate": 20,
        "listener.name.plaintext.max.connection.creation.rate": 10,
    }
    limits = transport_limits(planned(**given).config, "PLAINTEXT")
    assert limits.connections_per_ip_overrides == {"127.0.0.1": 7, "::1": 8, "::2": 9}
    assert (limits.connections_per_s_max, limits.listener_connections_per_s_max) == (20, 10)
    other_listener = transport_limits(planned(**given).config, "OUTSIDE")
    assert other_listener.listener_connections_per_s_max == 2**31 - 1


@pytest.mark.parametrize("entry", ["somewhere:5", "127.0.0.1", "127.0.0.1:many", "127.0.0.1:-1", ":5"])
def test_an_override_that_would_never_match_is_refused(entry: str) -> None:
    """A host name too: it would have to be looked up, and that holds the loop."""
    assert refusal(f'config."max.connections.per.ip.overrides"="127.0.0.2:3,{entry}"') == (
        f'config."max.connections.per.ip.overrides": found "{entry}"; allowed: ADDRESS:COUNT, with commas between; an '
        "address is IPv4 or IPv6, since names aren't resolved here"
    )


def test_nobody_may_connect_only_with_overrides() -> None:
    """Kafka's rule."""
    assert "max.connections.per.ip.overrides is set" in refusal('config."max.connections.per.ip"=0')
    planned(**{"max.connections.per.ip": 0, "max.connections.per.ip.overrides": '"127.0.0.1:5"'})


def test_the_memory_of_requests_is_bounded_by_kafkas_key() -> None:
    """Without it by what fits the machine; never by less than one request."""
    of_machine = transport_limits(planned().config, "PLAINTEXT", memory=2 << 30)
    assert of_machine.request_memory_bytes_max == of_machine.answer_memory_bytes_max == 128 << 20
    given = planned(**{"queued.max.request.bytes": 104_857_600}).config
    assert transport_limits(given, "PLAINTEXT", 7).request_memory_bytes_max == 104_857_600
    assert transport_limits(given, "PLAINTEXT", 7).answer_memory_bytes_max == 7
    assert refusal('config."queued.max.request.bytes"=1000') == (
        'config."queued.max.request.bytes": found 1000; allowed: -1, or at least socket.request.max.bytes, which is '
        "104857600"
    )


def test_what_has_no_effect_is_listed_by_plan_and_warned_of_once_by_run() -> None:
    """All such keys at once."""
    plan = planned(**{defn.name: other(defn) for defn in WITHOUT_EFFECT}, **{"num.partitions": 3})
    text = described(plan)
    listed = text.partition("configuration without effect here\n")[2].partition("\n\n")[0].splitlines()
    names = [defn.name for defn in WITHOUT_EFFECT]
    assert [line.split()[0] for line in listed] == sorted(names)
    by_name = sorted(WITHOUT_EFFECT, key=lambda defn: defn.name)
    assert all(line.endswith(effect_of(defn).where) for line, defn in zip(listed, by_name, strict=True))
    assert [values["keys"].split(", ") for values in warnings_of_a_start(plan)] == [names]


def test_a_start_without_such_keys_warns_of_nothing() -> None:
    assert warnings_of_a_start(planned(**{"num.partitions": 3})) == []


def warnings_of_a_start(plan: Plan) -> list[dict[str, Any]]:
    """What the kernel says of configuration while a node starts."""
    warnings: list[dict[str, Any]] = []

    def render_event(_at_ms: int, level: str, _name: str, event: str, values: dict[str, Any]) -> None:
        if event == "configuration without effect here":
            assert level == "warning"
            warnings.append(values)

    async def started() -> None:
        def defect(_where: str, error: BaseException) -> None:
            raise error

        runtime = AsyncioRuntime(defect)
        logs = EventLogs(lambda: cast("Any", render_event))
        try:
            node = Node(plan, runtime, logs, cast("Any", FakeBroker))
            await node.start()
            await node.stop()
        finally:
            await runtime.close()
        logs.flush()

    asyncio.run(started())
    return warnings
