"""The feature levels that formatting finalizes: ``--feature NAME=LEVEL`` and ``--release-version``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from blumfeld.metadata.brokers.feature_levels import default_levels
from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE
from blumfeld.metadata.image.record_frame import METADATA_VERSION
from blumfeld.plugging.errors import ManifestError, Problem
from blumfeld.spi.hooks import Feature

KRAFT_VERSION_FEATURE = "kraft.version"
RELEASES = ("4.3-IV0", "4.3")
"""Kafka's names of the one ``metadata.version`` that this build writes, 30."""


def chosen_levels(
    supported: Mapping[str, Feature],
    given: Sequence[str],
    release_version: str | None,
    *,
    kraft_version: int,
) -> dict[str, int]:
    """Returns feature → level for the bootstrap records: the defaults, with the given levels laid over them.

    ``kraft.version`` follows from the choice of the quorum. It may be given, and must then say the same. It has no
    record among the bootstrap records: the quorum's own records hold it.

    :param given: values of ``--feature``, as ``NAME=LEVEL``
    :param kraft_version: 1 for a dynamic quorum (KIP-853), 0 for a static one
    :raises ManifestError: a release or a feature that this build doesn't have, or a level that it doesn't support
    """
    problems: list[Problem] = []
    if release_version is not None and release_version not in RELEASES:
        allowed = f"{' or '.join(RELEASES)}: this build writes metadata.version {METADATA_VERSION} only"
        problems.append(Problem("", release_version, allowed))
    levels = default_levels(dict(supported))
    for text in given:
        name, equals, number = text.partition("=")
        names = (*supported, KRAFT_VERSION_FEATURE)
        if not equals or not number.isascii() or not number.isdigit():
            problems.append(Problem("", text, "NAME=LEVEL, such as group.version=1"))
        elif name not in names:
            problems.append(Problem(name, "a feature that this build doesn't have", ", ".join(sorted(names))))
        elif name == KRAFT_VERSION_FEATURE:
            problems += _kraft_version_problems(int(number), kraft_version)
        else:
            problems += _level_problems(supported[name], int(number))
            levels[name] = int(number)
        if name == METADATA_VERSION_FEATURE and release_version is not None:
            problems.append(Problem(name, "a level beside --release-version", "one of the two"))
    if problems:
        raise ManifestError("--release-version" if not given else "--feature", problems)
    return default_levels(
        {name: Feature(name, level, level, level) for name, level in levels.items()}  # in the records' order
    )


def _level_problems(feature: Feature, level: int) -> Iterable[Problem]:
    # Level 0 turns a feature off. metadata.version is what every record is written in, so it can't be off.
    off = 0 if feature.name != METADATA_VERSION_FEATURE else feature.min_level
    if level != off and not feature.min_level <= level <= feature.max_level:
        low = feature.min_level
        allowed = str(low) if low == feature.max_level else f"{low} to {feature.max_level}"
        yield Problem(feature.name, str(level), allowed if off or not low else f"{allowed}, or 0 for none")


def _kraft_version_problems(level: int, kraft_version: int) -> Iterable[Problem]:
    if level != kraft_version:
        why = (
            "1 with --standalone, --initial-controllers and --no-initial-controllers"
            if kraft_version
            else "0 for a static quorum; for a dynamic one add --standalone, --initial-controllers or "
            "--no-initial-controllers"
        )
        yield Problem(KRAFT_VERSION_FEATURE, str(level), why)
