"""From a campaign and the options that a person types to the command lines of its processes. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence

from campaigns.catalogue import Campaign, Run

References = Mapping[str, tuple[str, ...]]
"""Paths of each reference program by its name; an absent one has none."""

_PLACE = re.compile(r"{(\w+)}")


class AbsentError(Exception):
    """A campaign can't run, since a reference program is absent; ``name`` says which."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def command_lines(campaign: Campaign, options: Sequence[str], references: References) -> list[list[str]]:
    """Return one command line for each process, in their order; equal ones only once.

    :raises AbsentError: a reference program that it can't do without is absent
    """
    lines: list[list[str]] = []
    for run in campaign.runs:
        line = [*_interpreter(run), *_arguments(run, options, references)]
        if line not in lines:
            lines.append(line)
    return lines


def _interpreter(run: Run) -> list[str]:
    if run.module.endswith(".py"):
        return [sys.executable, run.module]
    return [sys.executable, "-m", "campaigns.unwinding", run.module]


def _arguments(run: Run, options: Sequence[str], references: References) -> list[str]:
    named = {option.partition("=")[0] for option in options if option.startswith("-")}
    fixed = _without(run.fixed, named)
    arguments = [_filled(argument, references) for argument in fixed]
    for option, name in run.references:
        if option not in named:
            arguments += [part for path in references[name] for part in (option, path)]
    if options:
        return [*arguments, *options]
    for option, value in _pairs(run.defaults):
        if all(references[name] for name in _PLACE.findall(value or "")):
            arguments += [option] if value is None else [option, _filled(value, references)]
    return arguments


def _without(fixed: Sequence[str], named: set[str]) -> list[str]:
    """Return the fixed words, less the options with one value that the person names."""
    left: list[str] = []
    words = iter(fixed)
    for word in words:
        if word in named:
            next(words)
        else:
            left.append(word)
    return left


def _pairs(defaults: Sequence[str]) -> list[tuple[str, str | None]]:
    """Each option with its value, or with none."""
    pairs: list[tuple[str, str | None]] = []
    for word in defaults:
        if word.startswith("--"):
            pairs.append((word, None))
        else:
            pairs[-1] = (pairs[-1][0], word)
    return pairs


def _filled(text: str, references: References) -> str:
    def path_of(place: re.Match[str]) -> str:
        if not references[place[1]]:
            raise AbsentError(place[1])
        return references[place[1]][0]

    return _PLACE.sub(path_of, text)
