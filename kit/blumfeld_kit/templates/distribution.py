"""A new plug-in's distribution: its name, and the text of each of its files."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NoReturn

import msgspec

NAME_LETTERS_MAX = 40
"""With a longer one, lines of the templates would be too long."""


class Role(msgspec.Struct, frozen=True):
    """A role that there is a template for."""

    description: str
    requires: tuple[str, ...] = ()
    """Requirements beside ``blumfeld``."""
    test_requires: tuple[str, ...] = ()
    """Requirements of the tests, beside ``blumfeld-kit``."""
    untyped: str = ""
    """A package among them that brings no types for mypy."""


ROLES: Mapping[str, Role] = {
    "assignor": Role("A server-side assignor for Blumfeld."),
    "authenticator": Role("A login for Blumfeld."),
    "authorizer": Role("An authorizer for Blumfeld."),
    "decoder": Role(
        "A decoder for Blumfeld's archive.",
        requires=("pyarrow>=18",),
        test_requires=("blumfeld-archive[kit]>=0.1,<0.2",),
        untyped="pyarrow",
    ),
    "group-protocol": Role("A group protocol for Blumfeld."),
    "object-store": Role(
        "An object store for Blumfeld's tiered storage.", test_requires=("blumfeld-storage-tiered>=0.1,<0.2",)
    ),
    "observer": Role("An observer for Blumfeld."),
    "quotas": Role("Quotas of clients for Blumfeld."),
    "storage": Role("A storage for Blumfeld."),
    "transport": Role("A transport for Blumfeld."),
}
"""Roles by the word of the command."""

WITHOUT_TEMPLATE: Mapping[str, str] = {
    "consensus": "it needs the controller and the image of blumfeld.metadata, which a plug-in can't rely on "
    "(docs/plugin-api.md). plugins/consensus_kraft is one to read, ConsensusContract of blumfeld_kit its kit",
}
"""Roles that can't be begun from a template, and the reason."""


class NameRefusedError(ValueError):
    """The plug-in can't have this name. The message says what would do."""


TESTS = "tests"
IMPORTED_UNASKED = ("conftest", "sitecustomize", "usercustomize")


def check_name(name: str, taken: Collection[str], importable: Collection[str]) -> None:
    """Check the name of a new plug-in, which is that of its package and, with ``-`` for ``_``, of its distribution.

    :param taken: names of installed plug-ins
    :param importable: names that Python imports already, among those asked for
    :raises NameRefusedError: another name is needed
    """
    words = (
        f"lower-case words of letters and digits with _ between them, {NAME_LETTERS_MAX} characters at most"
    )
    other = f"another one, such as acme_{name}"
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > NAME_LETTERS_MAX:
        _refuse(name, "", f"{words}, such as acme_storage")
    if name.partition("_")[0] == "blumfeld":
        _refuse(name, ", as if it were one of Blumfeld's own", "a name of yours, such as acme_storage")
    if keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in sys.stdlib_module_names:
        _refuse(name, ", which is Python's own", other)
    if name in IMPORTED_UNASKED:
        _refuse(name, ", which Python or pytest imports unasked", other)
    if name == TESTS:
        _refuse(name, ", the folder of the tests beside the package", other)
    if name in taken:
        _refuse(name, ", a plug-in that is installed (`blumfeld plugins` lists them)", other)
    if name in importable:
        _refuse(name, ", a package that is installed", other)


def _refuse(name: str, found: str, allowed: str) -> NoReturn:
    raise NameRefusedError(f'NAME: found "{name}"{found}; allowed: {allowed}')


def distribution_files(role: str, name: str) -> dict[str, str]:
    """Return path → text of the files of a new plug-in.

    :param role: one of :data:`ROLES`
    :param name: one that :func:`check_name` takes
    """
    words, facts = _words(role, name), ROLES[role]
    texts = {_renamed(path, words): _renamed(text, words) for path, text in _texts(role.replace("-", "_"))}
    words = {
        **_words("plugin", name),
        "$description": facts.description,
        '"blumfeld>=0.1,<0.2"': _listed("blumfeld>=0.1,<0.2", *facts.requires),
        '"blumfeld-kit>=0.1,<0.2"': _listed("blumfeld-kit>=0.1,<0.2", *facts.test_requires),
    }
    common = {path: _renamed(text, words) for path, text in _texts("common")}
    is_of_a_broker = f'"{name}"' in texts["broker.toml"]  # a decoder is not: the archive has it
    commands = common["commands.txt"].replace("$build", common["build.txt"] if is_of_a_broker else "")
    texts["README.md"] = texts["README.md"].replace("$commands\n", commands)
    texts["broker.toml"] += common["build.toml"] if is_of_a_broker else ""
    texts["pyproject.toml"] = common["pyproject.toml"]
    if facts.untyped:
        override = f'module = "{facts.untyped}.*"\nignore_missing_imports = true\n'
        texts["pyproject.toml"] += f"\n[[tool.mypy.overrides]]\n{override}"
    return texts


def _words(kind: str, name: str) -> Mapping[str, str]:
    """Return the words of a template that stand for the name: in a package, in a distribution, of a class."""
    return {
        f"acme_{kind}".replace("-", "_"): name,
        f"acme-{kind}": name.replace("_", "-"),
        f"Acme{kind.title().replace('-', '')}": "".join(word.capitalize() for word in name.split("_")),
    }


def _texts(place: str) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each file of a folder beside this module."""

    def walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
        for item in folder.iterdir():
            if not item.is_dir():
                yield f"{prefix}{item.name}", item.read_text(encoding="utf-8")
            elif not item.name.startswith((".", "__")):
                yield from walk(item, f"{prefix}{item.name}/")

    return walk(files(__package__) / place, "")


def _renamed(text: str, words: Mapping[str, str]) -> str:
    for word, new in words.items():
        text = text.replace(word, new)
    return text


def _listed(*requirements: str) -> str:
    return ", ".join(f'"{requirement}"' for requirement in requirements)
