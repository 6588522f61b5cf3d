"""Errors of a manifest. Each says where the problem is, what was found and what is allowed."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One problem of a manifest."""

    path: str
    """Path in the file, such as ``network.listeners[0].bind``; "" stands for the file itself."""
    found: str
    allowed: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}found {self.found}; allowed: {self.allowed}"


class ManifestError(Exception):
    """The manifest can't be run, and nothing was opened. It lists all problems that could be found at once."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))


def closest(found: str, allowed: Iterable[str]) -> str:
    """Returns ``" (did you mean x?)"``, or "" if no allowed word is close."""
    import difflib  # imported here: a good start never needs it

    close = difflib.get_close_matches(found, list(allowed), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def one_of(found: str, allowed: Iterable[str]) -> str:
    """Returns the allowed words as a list, with a hint at the closest one."""
    words = list(allowed)
    return (", ".join(words) if words else "none") + closest(found, words)


def shown(value: object) -> str:
    """Returns a value in the manifest's notation, shortened."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def unknown_keys(value: object, kind: type[msgspec.Struct], path: str) -> list[Problem]:
    """Returns a problem for every key of ``value``, and of the tables in it, that ``kind`` doesn't have."""
    if not isinstance(value, Mapping):
        return []
    hints = get_type_hints(kind)
    allowed = sorted(kind.__struct_encode_fields__)
    problems = []
    for key, inner in value.items():
        at = f"{path}.{key}" if path else str(key)
        if key not in allowed:
            problems.append(Problem(at, "an unknown key", one_of(str(key), allowed)))
        elif (struct := _struct_in(hints[key])) is not None:
            if isinstance(inner, list):
                for nth, item in enumerate(inner):
                    problems += unknown_keys(item, struct, f"{at}[{nth}]")
            else:
                problems += unknown_keys(inner, struct, at)
    return problems


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    if get_origin(hint) in (tuple, list, Union, types.UnionType):
        return next((s for s in map(_struct_in, get_args(hint)) if s is not None), None)
    return None


_WORDS = {
    "int": "an integer",
    "str": "a string",
    "bool": "true or false",
    "float": "a number",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def decode_error(
    error: msgspec.ValidationError, raw: object, path: str, kind: type[msgspec.Struct] | None = None
) -> Problem:
    """Returns msgspec's error as a problem. Its message looks like ``Expected `int`, got `str` - at `$.node.id```.

    :param kind: the type that ``raw`` should have. The allowed words of a ``Literal`` are looked up there
    """
    message, _, at = str(error).partition(" - at `$")
    steps = at.rstrip("`").lstrip(".")
    full = f"{path}.{steps}" if path and steps and not steps.startswith("[") else path + steps
    found = _value_at(raw, steps)
    if message.startswith("Object missing required field `"):
        missing = message.removeprefix("Object missing required field `").rstrip("`")
        return Problem(full, f"no {missing}", f"a table with {missing}")
    if message.startswith("Invalid enum value") and (words := _words_at(kind, steps)):
        return Problem(full, shown(found), one_of(str(found), words))
    wanted, _, _ = message.removeprefix("Expected ").partition(", got ")
    kinds, _, bounds = wanted.lstrip("`").partition("`")
    words = [_WORDS.get(kind.strip(), kind.strip()) for kind in kinds.split("|") if kind.strip() != "null"]
    return Problem(full, shown(found), " or ".join(words) + bounds)


def _words_at(kind: type[msgspec.Struct] | None, steps: str) -> list[str]:
    """Returns the words that a ``Literal`` allows. It follows tables only, not lists."""
    hint: Any = kind
    for step in steps.split("."):
        struct = _struct_in(hint)
        hint = get_type_hints(struct).get(step) if struct is not None else None
    return [str(word) for word in get_args(hint)] if get_origin(hint) is Literal else []


def _value_at(raw: object, steps: str) -> object:
    for step in steps.replace("[", ".[").split("."):
        if step.startswith("[") and isinstance(raw, list) and step[1:-1].isdigit():
            raw = raw[int(step[1:-1])]
        elif isinstance(raw, Mapping):
            raw = raw.get(step, raw)
    return raw
