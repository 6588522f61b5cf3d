"""Every key of Kafka is in one class, and each key is walked through the promise of its class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from blumfeld.config import replica_selectors, throttled_replicas
from blumfeld.config.effects import FIXED, HONOURED, REFUSED, WITHOUT, check_change, check_effect, effect_of
from blumfeld.config.effects_table import (
    BROKER_EFFECTS,
    GROUP_EFFECTS,
    LISTENER_KEYS,
    READ_AT_START,
    SECURED_READ_AT_START,
    TIERED_EFFECTS,
    TOPIC_EFFECTS,
)
from blumfeld.config.values import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigDef,
    ConfigError,
    Typed,
    parse,
    render,
)

ALL = [*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values(), *GROUP_CONFIGS.values()]


def of_effect(*effects: str) -> list[ConfigDef]:
    return [defn for defn in ALL if effect_of(defn).effect in effects]


def name_of(defn: ConfigDef) -> str:
    return f"{defn.scope} {defn.name}"


def another_value(defn: ConfigDef) -> Typed:
    """A value that Kafka allows and that isn't the default."""
    if defn.name == "max.connections.per.ip.overrides":
        return "127.0.0.1:5"
    if defn.name == replica_selectors.KEY:
        return replica_selectors.RACK_AWARE
    if defn.name in throttled_replicas.KEYS:
        return (throttled_replicas.ALL,)
    if defn.type == "BOOLEAN":
        return not defn.default
    if defn.type == "DOUBLE":
        return float(defn.default) / 2  # type: ignore[arg-type]
    if defn.type in ("SHORT", "INT", "LONG"):
        allowed = [int(number) for number in defn.allowed]
        default = defn.default if isinstance(defn.default, int) else 5
        for value in (*allowed, default - 1, default + 1):
            if value != defn.default and _allows(defn, value):
                return value
    if defn.type == "LIST":
        names = [choice for choice in defn.allowed or ("something",) if (choice,) != defn.default]
        return (names[0],)
    return next(choice for choice in (*defn.allowed, "something") if choice != defn.default)


def test_a_replica_selector_of_somebody_elses_is_refused() -> None:
    selector = BROKER_CONFIGS[replica_selectors.KEY]
    check_effect(selector, replica_selectors.LEADER)
    with pytest.raises(ConfigError, match=r"com\.example\.Nearest"):
        check_effect(selector, "com.example.Nearest")


def _allows(defn: ConfigDef, value: int) -> bool:
    try:
        parse(defn, value)
    except ConfigError:
        return False
    return True


@cache
def tree_of(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    return ast.parse(Path(spec.origin).read_text())


def argument_texts(module: str) -> Iterator[re.Pattern[str]]:
    """Texts that the module hands to calls: literals, constants of the module, and f-strings as patterns."""
    tree = tree_of(module)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        for argument in call.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield re.compile(re.escape(argument.value))
            elif isinstance(argument, ast.Name) and argument.id in constants:
                yield re.compile(re.escape(constants[argument.id]))
            elif isinstance(argument, ast.JoinedStr):
                parts = [
                    re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+"
                    for part in argument.values
                ]
                yield re.compile("".join(parts))


def reads(module: str, defn: ConfigDef) -> bool:
    """Whether the module asks for the key: by its name in a call, or a topic's by the attribute of TopicConfig."""
    if defn.scope == "topic":
        attribute = defn.name.replace(".", "_")
        return any(
            isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load)
            for node in ast.walk(tree_of(module))
        )
    return any(pattern.fullmatch(defn.name) for pattern in argument_texts(module))


def test_every_key_has_exactly_one_row() -> None:
    for rows, definitions in (
        (BROKER_EFFECTS, BROKER_CONFIGS),
        (TOPIC_EFFECTS, TOPIC_CONFIGS),
        (GROUP_EFFECTS, GROUP_CONFIGS),
    ):
        assert sorted(row[0] for row in rows) == sorted(definitions)
    assert {effect_of(defn).effect for defn in ALL} == {HONOURED, FIXED, WITHOUT, REFUSED}


def test_every_row_is_in_plain_words() -> None:
    """One sentence that says what the key means, and a place or a reason."""
    for defn in ALL:
        effect = effect_of(defn)
        assert re.fullmatch(r"[A-Z0-9][^\n]+\.", effect.documentation), defn
        assert effect.where, defn
        assert not effect.where.endswith("."), defn


@pytest.mark.parametrize("defn", of_effect(HONOURED), ids=name_of)
def test_every_honoured_key_is_read_where_its_row_says(defn: ConfigDef) -> None:
    """By a module, as the default of a topic key that is honoured, as another unit, or by a section of the manifest."""
    effect = effect_of(defn)
    if effect.section is not None:
        return  # tests/kernel/manifest/test_config_classes.py
    other = another_value(defn)
    if effect.where.startswith("topic "):
        topic = TOPIC_CONFIGS[effect.where.removeprefix("topic ")]
        assert effect_of(topic).effect == HONOURED
        assert defn.name in topic.broker_synonyms
        assert BrokerConfig({defn.name: other}).topic_defaults()[topic.name] == other
    elif effect.where.startswith("unit of "):
        target = BROKER_CONFIGS[effect.where.removeprefix("unit of ")]
        assert effect_of(target).effect == HONOURED
        changed = BrokerConfig({defn.name: other}).get(target.name)
        assert changed != BrokerConfig().get(target.name)
    else:
        assert reads(effect.where, defn), f"{effect.where} doesn't read {defn.name}"


def test_a_module_that_does_not_read_a_key_is_seen() -> None:
    assert not reads("blumfeld.broker.upkeep.cleaner", BROKER_CONFIGS["num.io.threads"])
    assert not reads("blumfeld.broker.upkeep.retention", TOPIC_CONFIGS["preallocate"])
    assert not reads("blumfeld_groups_kip848.settings", BROKER_CONFIGS["group.share.max.size"])


@pytest.mark.parametrize("defn", of_effect(FIXED, REFUSED), ids=name_of)
def test_every_fixed_or_refused_key_takes_only_kafkas_default(defn: ConfigDef) -> None:
    """The refusal says where the value is made."""
    default = render(defn, defn.default)
    if default is not None:
        check_effect(defn, default)
    other = render(defn, another_value(defn))
    with pytest.raises(ConfigError) as refusal:
        check_effect(defn, other)
    assert defn.name in str(refusal.value)
    assert effect_of(defn).where in refusal.value.allowed
    if defn.sensitive and other is not None:
        assert other not in str(refusal.value)


def test_any_other_key_takes_what_kafka_takes() -> None:
    for defn in of_effect(HONOURED, WITHOUT):
        check_effect(defn, render(defn, another_value(defn)))


def test_a_default_is_recognised_however_it_is_written() -> None:
    check_effect(BROKER_CONFIGS["ssl.client.auth"], "NONE")
    check_effect(BROKER_CONFIGS["ssl.enabled.protocols"], " TLSv1.2 , TLSv1.3 ")
    check_effect(BROKER_CONFIGS["authorizer.class.name"], "")
    check_effect(TOPIC_CONFIGS["remote.storage.enable"], False)


def test_the_sets_beside_the_table_name_honoured_keys() -> None:
    for name in READ_AT_START | SECURED_READ_AT_START | LISTENER_KEYS:
        assert effect_of(BROKER_CONFIGS[name], {"secures"}).effect == HONOURED


def test_what_would_make_believe_in_a_protection_is_refused() -> None:
    """Every key of TLS, SASL and authorization, whatever a later release adds."""
    for name, defn in BROKER_CONFIGS.items():
        if name.startswith(("ssl.", "sasl.", "security.", "delegation.token.", "authorizer.", "principal.")):
            assert effect_of(defn).effect == REFUSED, name


@pytest.mark.parametrize("name", [name for name, row in TIERED_EFFECTS.items() if row[0] == HONOURED])
def test_every_key_that_tiered_storage_makes_honoured_is_read_where_its_row_says(name: str) -> None:
    defn = next(defn for defn in ALL if defn.name == name)
    assert effect_of(defn).effect in (REFUSED, WITHOUT)
    effect = effect_of(defn, {"tiers"})
    check_effect(defn, render(defn, another_value(defn)), {"tiers"})
    if effect.where.startswith("topic "):
        topic = TOPIC_CONFIGS[effect.where.removeprefix("topic ")]
        assert effect_of(topic, {"tiers"}).effect == HONOURED
        assert defn.name in topic.broker_synonyms
    else:
        assert reads(effect.where, defn), f"{effect.where} doesn't read {defn.name}"


def test_no_key_says_that_there_is_no_tiering_where_there_is() -> None:
    for defn in ALL:
        assert "has no remote part" not in effect_of(defn, {"tiers"}).where, defn


def test_a_refused_change_of_a_secret_does_not_show_it() -> None:
    key = "listener.name.x.delegation.token.secret.key"
    with pytest.raises(ConfigError) as caught:
        check_change(BROKER_CONFIGS.find(key), key, "pw-123", frozenset({"secures"}))
    assert "pw-123" not in str(caught.value)
