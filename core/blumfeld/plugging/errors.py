"""Errors of a manifest. Each says where the problem is, what was found and what is allowed."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One problem of a manifest."""

    path: str
    """Path in the file, such as ``network.listeners[0].bind``; "" stands for the file itself."""
    found: str
    allowed: str = ""
    """The allowed values, in words; "" if ``found`` is a sentence that needs none."""

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}found {self.found}; allowed: {self.allowed}" if self.allowed else where + self.found


class ManifestError(Exception):
    """The manifest can't be run, and nothing was opened. It lists all problems that could be found at once.

    A problem whose path is an argument of the command line, such as ``--set``, stands there without the source.
    """

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        lines = (
            str(problem) if problem.path.startswith("--") else f"{source}: {problem}"
            for problem in self.problems
        )
        super().__init__("\n".join(lines))


class Faults:
    """The problems of one manifest. Several checks add to them, so that one run tells all.

    A check that compares values looks at sound ones only (:meth:`sound`), or a wrong value would be told twice: once
    where it stands, and once where it doesn't fit.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._problems: list[Problem] = []

    def add(self, problems: Iterable[Problem]) -> None:
        """Add what a check found."""
        self._problems += problems

    def sound(self, *paths: str) -> bool:
        """Whether no problem so far lies at one of these paths, below it or above it."""
        return not any(
            _lies_in(problem.path, path) or _lies_in(path, problem.path)
            for problem in self._problems
            for path in paths
        )

    def tell(self) -> None:
        """Raise ``ManifestError`` with all problems, each once. Does nothing if there is none."""
        if self._problems:
            raise ManifestError(self.source, list(dict.fromkeys(self._problems)))


def _lies_in(path: str, table: str) -> bool:
    return path == table or path.startswith((f"{table}.", f"{table}["))


def file_problem(error: OSError | UnicodeDecodeError) -> Problem:
    """Returns why a manifest's file can't be read."""
    if isinstance(error, UnicodeDecodeError):
        return Problem("", "no UTF-8", "a TOML file")
    reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    return Problem("", reason[:1].lower() + reason[1:])


def closest(text: str, allowed: Iterable[str]) -> str:
    """Returns ``" (did you mean x?)"``, or "" if ``text`` is no slip for an allowed word."""
    from blumfeld.config.typos import likely_meant  # imported here: a good start never needs it

    close = likely_meant(text, allowed)
    return f" (did you mean {close[0]}?)" if close else ""


def one_of(text: str, allowed: Iterable[str]) -> str:
    """Returns the allowed words as a list, with a hint at the closest one."""
    words = list(allowed)
    return (", ".join(words) if words else "none") + closest(text, words)


def shown(value: object) -> str:
    """Returns a value in the manifest's notation, shortened."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_WORDS = {
    "int": "an integer",
    "str": "a string",
    "bool": "true or false",
    "float": "a number",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
LEFT_OUT: Any = object()
"""Stands in place of a value that can't be used."""


def usable_part(raw: Any, hint: Any, path: str, problems: list[Problem]) -> Any:
    """Returns ``raw`` without the values that ``hint`` doesn't allow, and adds a problem for each of them.

    A table in which a required key is missing or wrong is left out as a whole, and so is a list with an item that is
    left out: the places of the others would be wrong. :data:`LEFT_OUT` where nothing remains.

    :param hint: the type that ``raw`` should have
    """
    if isinstance(raw, Mapping) and (struct := _struct_in(hint)) is not None:
        return _usable_table(raw, struct, path, problems)
    if isinstance(raw, Mapping) and (value_hint := _inner_hint(hint, dict)) is not None:
        parts = {key: usable_part(inner, value_hint, f"{path}.{key}", problems) for key, inner in raw.items()}
        return {key: part for key, part in parts.items() if part is not LEFT_OUT}
    if isinstance(raw, list) and (item_hint := _inner_hint(hint, list)) is not None:
        kept = [usable_part(inner, item_hint, f"{path}[{nth}]", problems) for nth, inner in enumerate(raw)]
        return LEFT_OUT if any(inner is LEFT_OUT for inner in kept) else kept
    try:
        msgspec.convert(raw, hint, strict=True)
    except msgspec.ValidationError as error:
        problems.append(_value_problem(error, raw, path, hint))
        return LEFT_OUT
    return raw


def _usable_table(
    raw: Mapping[str, Any], kind: type[msgspec.Struct], path: str, problems: list[Problem]
) -> Any:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    kept: dict[str, Any] = {}
    before = len(problems)
    for key, value in raw.items():
        at = f"{path}.{key}" if path else str(key)
        if key not in fields:
            if not kind.__struct_config__.forbid_unknown_fields:
                continue
            problems.append(Problem(at, "an unknown key", one_of(str(key), sorted(fields))))
        elif (part := usable_part(value, fields[key].type, at, problems)) is not LEFT_OUT:
            kept[key] = part
    required = [name for name, field in fields.items() if field.required]
    problems += [Problem(path, f"no {name}", f"a table with {name}") for name in required if name not in raw]
    if not all(name in kept for name in required):
        return LEFT_OUT
    try:
        msgspec.convert(kept, kind, strict=True)
    except msgspec.ValidationError as error:  # values that are right each by itself: from __post_init__
        if len(problems) == before:
            problems.append(Problem(path, str(error)))
        return LEFT_OUT
    return kept


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    if get_origin(hint) in (Union, types.UnionType):
        return next((s for s in map(_struct_in, get_args(hint)) if s is not None), None)
    return None


def _inner_hint(hint: Any, container: type) -> Any:
    """Returns the type of a list's items or of a dict's values; ``None`` if ``hint`` is no such container."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return next(
            (inner for inner in (_inner_hint(part, container) for part in arguments) if inner is not None),
            None,
        )
    if origin is Annotated:
        return _inner_hint(arguments[0], container)
    if origin is tuple and arguments[1:] == (...,):
        return arguments[0] if container is list else None
    return arguments[-1] if origin is container and arguments else None


def _value_problem(error: msgspec.ValidationError, raw: object, path: str, hint: Any) -> Problem:
    """Returns msgspec's error as a problem. Its message looks like ``Expected `int`, got `str` - at `$.a```."""
    message, _, at = str(error).partition(" - at `$")
    steps = at.rstrip("`")
    full = path + steps if path else steps.lstrip(".")
    value = _value_at(raw, steps)
    if message.startswith("Invalid enum value") and get_origin(hint) is Literal:
        return Problem(full, shown(value), one_of(str(value), map(str, get_args(hint))))
    wanted, _, _ = message.removeprefix("Expected ").partition(", got ")
    kinds, _, bounds = wanted.lstrip("`").partition("`")
    words = [_WORDS.get(kind.strip(), kind.strip()) for kind in kinds.split("|") if kind.strip() != "null"]
    return Problem(full, shown(value), " or ".join(words) + bounds)


def _value_at(raw: object, steps: str) -> object:
    for step in steps.replace("[", ".[").split("."):
        if step.startswith("[") and isinstance(raw, list) and step[1:-1].isdigit():
            raw = raw[int(step[1:-1])]
        elif isinstance(raw, Mapping):
            raw = raw.get(step, raw)
    return raw
