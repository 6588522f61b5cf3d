"""Whether the wheels are what the manifest names: each plug-in once, everything that is needed, and no more. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from blumfeld.kernel.manifest.named import NamedPlugin
from blumfeld.plugging.errors import Problem, closest, one_of, shown
from blumfeld_builder.target import Target
from blumfeld_builder.wheels.requirements import CORE, Wanted
from blumfeld_builder.wheels.wheel import Wheel


def plugin_problems(plugins: Sequence[NamedPlugin], wheels: Sequence[Wheel]) -> list[Problem]:
    """Returns a problem for each named plug-in that no wheel brings, or two do."""
    problems = []
    brought = sorted({name for wheel in wheels for name in wheel.plugins})
    for plugin in plugins:
        by = [wheel for wheel in wheels if plugin.name in wheel.plugins]
        if not by:
            found = f"{shown(plugin.name)}, which no wheel of the build brings"
            allowed = "a plug-in of Blumfeld, or one of a distribution in build.requires; these bring "
            allowed += ", ".join(brought) + closest(plugin.name, brought)
            problems.append(Problem(plugin.path, found, allowed))
        elif len(by) > 1:
            found = f"{shown(plugin.name)} of {' and '.join(f'{w.name} {w.version}' for w in by)}"
            problems.append(
                Problem(
                    plugin.path, found, "one distribution for each plug-in; take one out of build.requires"
                )
            )
    return problems


def misfitting(wheels: Sequence[Wheel], target: Target) -> list[Problem]:
    """Returns a problem for each wheel that the target's Python doesn't take."""
    problems = []
    tags = set(target.tags)
    for wheel in wheels:
        if not wheel.tags & tags:
            best = target.tags[0]
            allowed = (
                f"a wheel for {best.interpreter} on {best.platform}, as build.python and this machine are"
            )
            problems.append(Problem(f"packages.{wheel.name}", wheel.file, allowed))
        elif not SpecifierSet(wheel.requires_python).contains(target.markers["python_full_version"]):
            found = f"{wheel.file}, which requires Python {wheel.requires_python}"
            problems.append(
                Problem(f"packages.{wheel.name}", found, f"a wheel for Python {target.python} (build.python)")
            )
    return problems


def surplus(
    plugins: Sequence[NamedPlugin], wanted: Sequence[Wanted], wheels: Sequence[Wheel], target: Target
) -> list[Problem]:
    """Returns a problem for each requirement that no plug-in of the manifest needs, for each extra that isn't there,
    and for each wheel that isn't there or that fulfils no requirement."""
    by_name = {wheel.name: wheel for wheel in wheels}
    names = {plugin.name for plugin in plugins}
    extras: dict[str, set[str]] = {}
    for need in wanted:
        extras.setdefault(canonicalize_name(need.requirement.name), set()).update(need.requirement.extras)
    roots = [CORE, *(wheel.name for wheel in wheels if names & set(wheel.plugins))]
    needed, problems = _closure(roots, extras, by_name, target)
    for need in wanted:
        name = canonicalize_name(need.requirement.name)
        if name not in needed and need.path.startswith("build."):
            found = f"{shown(str(need.requirement))}, which nothing in the manifest needs"
            brings = by_name[name].plugins if name in by_name else ()
            allowed = f"what a plug-in of the manifest needs; it brings {', '.join(brings) or 'no plug-in'}"
            problems.append(Problem(need.path, found, allowed))
        elif name in by_name:
            problems += _unknown_extras(need, by_name[name])
    if not problems:
        problems = [
            Problem(
                f"packages.{name}", f"{name} {by_name[name].version}, which nothing needs", "no such wheel"
            )
            for name in sorted(set(by_name) - needed)
        ]
    return problems


def _unknown_extras(need: Wanted, wheel: Wheel) -> list[Problem]:
    """Returns a problem for each extra that the distribution hasn't: pip takes no notice of such a one."""
    names = sorted(wheel.extras)
    return [
        Problem(
            need.path, f"{shown(str(need.requirement))}, which has no extra {extra}", one_of(extra, names)
        )
        for extra in sorted(need.requirement.extras)
        if canonicalize_name(extra) not in wheel.extras
    ]


def _closure(
    roots: Sequence[str], extras: Mapping[str, set[str]], by_name: Mapping[str, Wheel], target: Target
) -> tuple[set[str], list[Problem]]:
    """Returns the distributions that the roots need, and what is missing among the wheels."""
    needed: set[tuple[str, str]] = set()
    waiting = [(root, extra) for root in roots for extra in ("", *sorted(extras.get(root, ())))]
    problems: list[Problem] = []
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in needed or name not in by_name:
            continue
        needed.add((name, extra))
        for other, other_extras, problem in _needs(by_name[name], extra, by_name, target):
            problems += [problem] if problem is not None else []
            asked = other_extras | extras.get(other, set())
            waiting += [(other, each) for each in ("", *sorted(asked))]
    return {name for name, _ in needed}, list(dict.fromkeys(problems))


def _needs(
    wheel: Wheel, extra: str, by_name: Mapping[str, Wheel], target: Target
) -> Iterator[tuple[str, set[str], Problem | None]]:
    """Yields (distribution, its extras, what is wrong) for each requirement of a wheel with one of its extras."""
    for requirement in wheel.requires:
        if requirement.marker is not None and not requirement.marker.evaluate(
            {**target.markers, "extra": extra}
        ):
            continue
        name = canonicalize_name(requirement.name)
        found = by_name.get(name)
        problem = None
        if found is None or not requirement.specifier.contains(found.version, prereleases=True):
            there = f"{name} {found.version}" if found else f"no {name}"
            problem = Problem(
                f"packages.{wheel.name}", there, f"{requirement}, which {wheel.name} {wheel.version} requires"
            )
        yield name, set(requirement.extras), problem
