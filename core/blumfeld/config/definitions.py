"""Definitions of Kafka's configuration keys: allowed values, parsing and rendering.

The facts stand in :mod:`blumfeld.config.keys_table`. A definition is made when it is first looked up, so
that the import costs a start-up next to nothing. The same definitions validate the manifest's ``[config]``
and AlterConfigs, and serve DescribeConfigs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from blumfeld.config.keys_table import BROKER_ROWS, GROUP_ROWS, TOPIC_ROWS, Row
from blumfeld.wire.errors import BrokerError, ErrorCode

Typed = bool | int | float | str | tuple[str, ...] | None
"""A parsed value: a LIST is a tuple, a PASSWORD a str; ``None`` is Kafka's null."""
Given = bool | int | float | str | list[str] | tuple[str, ...] | None
"""A value as a person or a client writes it: TOML's types, or Kafka's text."""

LISTENER_PREFIX = "listener.name."
"""Prefix of a key that holds for one listener: the listener's name in lower case follows, then a dot and the key."""

BUILD_KEY = "blumfeld.build"
"""The only broker key that Kafka doesn't have: what the broker is made of and promises, as JSON. It is read-only."""

_BOUNDS = {"SHORT": 2**15, "INT": 2**31, "LONG": 2**63}
_WIRE_TYPES = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}
_KINDS = {
    "BOOLEAN": "true or false",
    "STRING": "text",
    "INT": "a whole number of 32 bits",
    "SHORT": "a whole number of 16 bits",
    "LONG": "a whole number of 64 bits",
    "DOUBLE": "a number",
    "LIST": "a list of texts, or one text with commas",
    "CLASS": "the name of a class",
    "PASSWORD": "text",
}


class ConfigError(BrokerError):
    """A key or a value that Kafka's table refuses. INVALID_CONFIG on the wire; the manifest's loader prints
    it.

    :param key: the configuration key
    :param found: the given value, never a secret
    :param allowed: the allowed values, in words
    """

    def __init__(self, key: str, found: object, allowed: str, said: str | None = None) -> None:
        said = f"found {found!r}, allowed is {allowed}" if said is None else said
        super().__init__(ErrorCode.INVALID_CONFIG, f"{key}: {said}")
        self.key = key
        self.found = found
        self.allowed = allowed


class UnknownConfigError(ConfigError):
    """A key that is not in the table of its scope; ``close`` has the keys that may have been meant."""

    def __init__(self, key: str, close: tuple[str, ...], scope: str = "broker") -> None:
        self.close = close
        self.said = f"no {scope} key of Kafka's" + (f"; did you mean {' or '.join(close)}?" if close else "")
        super().__init__(key, key, f"a {scope} key of Kafka's", self.said)


class ConfigDef(NamedTuple):
    """One key: its type, default and bounds. The fields are Kafka's, as of 4.3."""

    name: str
    type: str
    """BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS or PASSWORD."""
    default: Typed
    importance: str
    update_mode: str
    """``read-only``, ``per-broker`` or ``cluster-wide``; every topic and group key has the last one."""
    minimum: float | None
    maximum: float | None
    allowed: tuple[str, ...]
    """The allowed values; empty if there is no such list."""
    broker_synonyms: tuple[str, ...]
    """For a topic or group key: the broker keys that supply its default, the strongest first."""
    flags: str
    scope: str
    """``broker``, ``topic`` or ``group``."""

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret: DescribeConfigs answers null."""
        return self.type == "PASSWORD"

    def told(self, given: object) -> object:
        """Returns a value as an error may tell it: a secret is hidden."""
        return "[hidden]" if self.sensitive else given

    @property
    def internal(self) -> bool:
        """Whether the key is internal: it may be set, but DescribeConfigs omits it."""
        return "i" in self.flags

    @property
    def required(self) -> bool:
        """Whether a value must be given, because Kafka has no default."""
        return "r" in self.flags

    @property
    def read_only(self) -> bool:
        """Whether the key may only be set in the manifest."""
        return self.update_mode == "read-only"

    @property
    def server_default_name(self) -> str | None:
        """The broker key that supplies the default of a topic or group key, or ``None``."""
        return self.broker_synonyms[0] if self.broker_synonyms else None

    @property
    def wire_type(self) -> int:
        """The ``ConfigType`` in a DescribeConfigs answer."""
        return _WIRE_TYPES[self.type]

    @property
    def allowed_in_words(self) -> str:
        """The allowed values as text for an error message."""
        if self.allowed:
            some = "some of " if self.type == "LIST" else ""
            return some + ", ".join(self.allowed)
        low, high = self.minimum, self.maximum
        kind = _KINDS[self.type]
        if low is not None and high is not None:
            return f"{kind} from {low} to {high}"
        if low is not None:
            return f"{kind}, {low} or more"
        return kind if high is None else f"{kind}, {high} at most"


class Definitions(Mapping[str, ConfigDef]):
    """The definitions of one scope by key, in Kafka's order. A definition is made at its first look-up."""

    def __init__(self, scope: str, rows: tuple[Row, ...]) -> None:
        self._scope = scope
        self._rows = {row[0]: row for row in rows}
        self._made: dict[str, ConfigDef] = {}

    def __getitem__(self, name: str) -> ConfigDef:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = ConfigDef(*self._rows[name], self._scope)  # type: ignore[arg-type]
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, name: str) -> ConfigDef:
        """Returns the definition of a key; a ``listener.name.<listener>.`` prefix is ignored.

        :raises UnknownConfigError: there is none
        """
        if name in self._rows:
            return self[name]
        if self._scope == "broker" and name.startswith(LISTENER_PREFIX):
            parts = name.split(".")
            for start in range(3, len(parts)):
                rest = ".".join(parts[start:])
                if rest in self._rows:
                    return self[rest]
        raise UnknownConfigError(name, self.suggest(name), self._scope)

    def suggest(self, name: str) -> tuple[str, ...]:
        """Returns the keys that ``name`` may have been meant for, up to three, the likeliest first: that of this scope
        for the same thing, as ``log.retention.ms`` for a topic's ``retention.ms``, or those that a slip leads to.
        """
        from blumfeld.config.typos import likely_meant  # imported late: only an error needs it

        own = {word: word for word in self._rows}
        meant = likely_meant(name, words := _twins(self._scope) | own)
        return tuple(dict.fromkeys(words[word] for word in meant))[:3]


def _twins(scope: str) -> dict[str, str]:
    """Returns keys of other scopes with the key of this scope that says the same."""
    pairs = [(row[0], broker_key) for row in (*TOPIC_ROWS, *GROUP_ROWS) for broker_key in row[8]]
    if scope == "broker":
        return dict(reversed(pairs))  # the strongest synonym is the first
    rows = TOPIC_ROWS if scope == "topic" else GROUP_ROWS
    own = {row[0] for row in rows}
    return {broker_key: key for key, broker_key in pairs if key in own}


BROKER_CONFIGS = Definitions("broker", BROKER_ROWS)
TOPIC_CONFIGS = Definitions("topic", TOPIC_ROWS)
GROUP_CONFIGS = Definitions("group", GROUP_ROWS)


def suggest(name: str, definitions: Definitions = BROKER_CONFIGS) -> tuple[str, ...]:
    """Returns up to three keys that ``name`` may have been meant for, the likeliest first."""
    return definitions.suggest(name)


def parse(defn: ConfigDef, value: Given) -> Typed:
    """Parse a value, and check it against type, bounds and allowed values.

    It accepts the type itself, or text as Kafka's clients send it (surrounding spaces don't count).
    ``None`` is accepted where Kafka's default is null. Where Kafka takes the doubles out of a list (KIP-1161), the
    first of each stays.

    :raises ConfigError: the value is malformed or not allowed
    """
    if value is None:
        if defn.default is None and not defn.required:
            return None
        raise _refused(defn, value)
    if defn.type == "BOOLEAN":
        return _boolean(defn, value)
    if defn.type in _BOUNDS:
        return _whole(defn, value)
    if defn.type == "DOUBLE":
        return _double(defn, value)
    if defn.type == "LIST":
        return _list(defn, value)
    if not isinstance(value, str):
        raise _refused(defn, value)
    return _text(defn, value if defn.sensitive else value.strip())


def render(defn: ConfigDef, typed: Typed) -> str | None:
    """Returns Kafka's text of a value, as in DescribeConfigs and metadata records; null is ``None``."""
    if typed is None:
        return None
    if isinstance(typed, bool):
        return "true" if typed else "false"
    if isinstance(typed, tuple):
        return ",".join(typed)
    return repr(float(typed)) if defn.type == "DOUBLE" else str(typed)


def usable(definitions: Definitions, given: Mapping[str, str]) -> dict[str, Given]:
    """Returns those values of a metadata log that this build can read.

    Another release of Kafka may have written keys or values that our table doesn't know. They must not keep
    a broker from starting, so they are left out.
    """
    values: dict[str, Given] = {}
    for name, value in given.items():
        try:
            parse(definitions.find(name), value)
        except ConfigError:
            continue
        values[name] = value
    return values


def _refused(defn: ConfigDef, value: object) -> ConfigError:
    return ConfigError(defn.name, defn.told(value), defn.allowed_in_words)


def _boolean(defn: ConfigDef, value: Given) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text not in ("true", "false"):
        raise _refused(defn, value)
    return text == "true"


def _whole(defn: ConfigDef, value: Given) -> int:
    try:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ValueError
        # int() takes quadratic time in the number of digits, so their number is limited. A 64-bit number has
        # at most 20 characters.
        if isinstance(value, str) and (len(value) > 64 or "_" in value):
            raise ValueError
        number = int(value)
    except ValueError:
        raise _refused(defn, value) from None
    bound = _BOUNDS[defn.type]
    if not -bound <= number < bound:
        raise _refused(defn, value)
    return _bounded(defn, number)


def _double(defn: ConfigDef, value: Given) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError):
        raise _refused(defn, value) from None
    if not math.isfinite(number):
        raise _refused(defn, value)
    return _bounded(defn, number)


def _bounded(defn: ConfigDef, number: float) -> int:
    """Check the bounds and return the number. It is typed as int, but a float passes through unchanged."""
    if defn.minimum is not None and number < defn.minimum:
        raise _refused(defn, number)
    if defn.maximum is not None and number > defn.maximum:
        raise _refused(defn, number)
    if defn.allowed and str(number) not in defn.allowed:
        raise _refused(defn, number)
    return number  # type: ignore[return-value]


def _list(defn: ConfigDef, value: Given) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",") if value.strip() else []
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise _refused(defn, value)
    items = tuple(item.strip() for item in value)
    if "d" in defn.flags:
        items = tuple(dict.fromkeys(items))
        if "" in items or (not items and "e" not in defn.flags):
            raise _refused(defn, value)
    if defn.allowed and not all(item in defn.allowed for item in items):
        raise _refused(defn, value)
    return items


def _text(defn: ConfigDef, value: str) -> str:
    if not defn.allowed or value in defn.allowed:
        return value
    if "c" in defn.flags and value.lower() in (word.lower() for word in defn.allowed):
        return value
    raise _refused(defn, value)
