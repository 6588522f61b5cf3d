"""The effect of each of Kafka's keys in this build, and the check that refuses a key without its effect.

The facts stand in :mod:`blumfeld.config.effects_table`. The manifest, CreateTopics, AlterConfigs,
``blumfeld plan``, DescribeConfigs and docs/configuration.md all ask here.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from blumfeld.config.definitions import (
    ConfigDef,
    ConfigError,
    Definitions,
    Given,
    Typed,
    UnknownConfigError,
    parse,
    render,
)
from blumfeld.config.effects_table import (
    BROKER_EFFECTS,
    FIXED,
    GROUP_EFFECTS,
    HONOURED,
    LIMITED_EFFECTS,
    LISTENER_KEYS,
    NO_TIERING,
    OTHER_TIERING,
    READ_AT_START,
    REFUSED,
    SECURED_EFFECTS,
    SECURED_READ_AT_START,
    TIERED_EFFECTS,
    TOPIC_EFFECTS,
    WITHOUT,
)
from blumfeld.config.ip_overrides import KEY as IP_OVERRIDES
from blumfeld.config.ip_overrides import ip_overrides
from blumfeld.config.replica_selectors import KEY as REPLICA_SELECTOR
from blumfeld.config.replica_selectors import check_replica_selector
from blumfeld.config.throttled_replicas import KEYS as THROTTLED_REPLICAS
from blumfeld.config.throttled_replicas import check_throttled_replicas

__all__ = [
    "FIXED",
    "HONOURED",
    "REFUSED",
    "WITHOUT",
    "KeyEffect",
    "check_change",
    "check_effect",
    "check_listener_key",
    "effect_of",
    "why_ineffective",
]

NO_ABILITIES: frozenset[str] = frozenset()
"""The abilities of a build without plug-ins that bring one."""
MANIFEST = "manifest "
"""Prefix of the place of a key that another section of the manifest sets."""


class KeyEffect(NamedTuple):
    """The effect of one key."""

    name: str
    effect: str
    """One of HONOURED, FIXED, WITHOUT and REFUSED."""
    where: str
    """For an honoured key the place that uses it; for any other key the reason."""
    documentation: str
    """One sentence: the key's meaning in Kafka."""

    @property
    def section(self) -> str | None:
        """The place in the manifest that sets this key; ``None`` for a key of ``[config]``."""
        return self.where.removeprefix(MANIFEST) if self.where.startswith(MANIFEST) else None

    @property
    def read_at_start(self) -> bool:
        """Whether this broker reads the key only at its start, although Kafka changes it at run time."""
        keys = SECURED_READ_AT_START if self.effect == HONOURED else ()
        return self.name in READ_AT_START or self.name in keys

    @property
    def manifest_only(self) -> bool:
        """Whether this broker refuses a change at run time, whatever Kafka does."""
        return self.section is not None or self.read_at_start

    @property
    def in_words(self) -> str:
        """The key's effect as one sentence."""
        if self.section is not None:
            return f"The manifest says it in {self.section}."
        if self.effect == HONOURED:
            return "Honoured; read when the broker starts." if self.read_at_start else "Honoured."
        if self.effect == WITHOUT:
            return f"Without effect here: {self.where}."
        return f"Only Kafka's default is taken here: {self.where}."

    @property
    def of_listeners(self) -> bool:
        """Whether a listener may have its own value, under the prefix ``listener.name.<name>.``."""
        return self.name in LISTENER_KEYS or self.name.startswith(("ssl.", "sasl."))


_EFFECTS: dict[str, dict[str, KeyEffect]] = {
    scope: {row[0]: KeyEffect(*row) for row in rows}
    for scope, rows in (("broker", BROKER_EFFECTS), ("topic", TOPIC_EFFECTS), ("group", GROUP_EFFECTS))
}


_BY_ABILITY: dict[str, dict[str, tuple[str, str]]] = {
    "tiers": TIERED_EFFECTS,
    "secures": SECURED_EFFECTS,
    "limits": LIMITED_EFFECTS,
}


def effect_of(defn: ConfigDef, abilities: Set[str] = NO_ABILITIES) -> KeyEffect:
    """Returns the effect of a key. Every definition has exactly one.

    :param abilities: what the build can do (``BrokerConfig.abilities``)
    """
    effect = _EFFECTS[defn.scope][defn.name]
    for ability in abilities:
        differs = _BY_ABILITY[ability].get(defn.name)
        if differs is not None:
            return effect._replace(effect=differs[0], where=differs[1])
    no_tiering = "tiers" in abilities and effect.where == NO_TIERING
    return effect._replace(where=OTHER_TIERING) if no_tiering else effect


def check_effect(defn: ConfigDef, given: Given, abilities: Set[str] = NO_ABILITIES) -> None:
    """Refuse a valid value that would have no effect in this build.

    A value equal to Kafka's default always passes, because it changes nothing.

    :param abilities: as of :func:`effect_of`
    :raises ConfigError: INVALID_CONFIG: the key is fixed or refused, and the value differs from Kafka's
        default
    """
    if defn.name == IP_OVERRIDES:
        ip_overrides(given)
    elif defn.name == REPLICA_SELECTOR:
        check_replica_selector(given)
    elif defn.name in THROTTLED_REPLICAS:
        check_throttled_replicas(defn.name, given)
    effect = effect_of(defn, abilities)
    if effect.effect not in (FIXED, REFUSED) or _is_default(defn, parse(defn, given)):
        return
    text = render(defn, defn.default)
    default = "no value" if text is None else f'only Kafka\'s default, "{text}"'
    raise ConfigError(defn.name, defn.told(given), f"{default}: {effect.where}")


def check_listener_key(defn: ConfigDef, key: str, given: Given, abilities: Set[str] = NO_ABILITIES) -> None:
    """Refuse a listener prefix on a key that holds for all listeners together.

    :raises ConfigError: INVALID_CONFIG: this build would ignore the prefix
    """
    effect = effect_of(defn, abilities)
    if key != defn.name and effect.effect == HONOURED and not effect.of_listeners:
        raise ConfigError(
            key, defn.told(given), f"nothing for one listener: {defn.name} holds for all of them"
        )


def check_change(defn: ConfigDef, key: str, given: Given, abilities: Set[str] = NO_ABILITIES) -> None:
    """Refuse a change at run time of a key that this build reads from the manifest only.

    :raises ConfigError: INVALID_CONFIG: the key is read once, when the broker starts
    """
    check_listener_key(defn, key, given, abilities)
    effect = effect_of(defn, abilities)
    if effect.section is not None:
        raise ConfigError(
            key, defn.told(given), f"nothing at run time: the manifest says it in {effect.section}"
        )
    if defn.scope == "broker" and effect.read_at_start:
        raise ConfigError(
            key, defn.told(given), "nothing at run time: this broker reads it from [config] when it starts"
        )


def why_ineffective(
    definitions: Definitions, key: str, stored: str, abilities: Set[str] = NO_ABILITIES
) -> str | None:
    """Returns why a value in the cluster's metadata has no effect here; ``None`` if it has its effect."""
    try:
        defn = definitions.find(key)
        parse(defn, stored)
        check_effect(defn, stored, abilities)
        if defn.scope == "broker":
            check_change(defn, key, stored, abilities)
    except UnknownConfigError:
        return "the key is unknown here"
    except ConfigError as error:
        return f"allowed is {error.allowed}"
    effect = effect_of(defn, abilities)
    return effect.where if effect.effect == WITHOUT else None


def _is_default(defn: ConfigDef, value: Typed) -> bool:
    default = defn.default
    if "c" in defn.flags and isinstance(value, str) and isinstance(default, str):
        return value.lower() == default.lower()
    return value == default
