"""The form of Java's files of properties, and of the logins inside them (``sasl.jaas.config``). Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*", re.DOTALL)
_JAAS = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?P<flag>\w+)(?P<options>.*?);?\s*", re.DOTALL)
_OPTION = re.compile(
    r"""\s*([\w.$-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;"']+))""", re.DOTALL
)
FLAGS = ("required", "requisite", "sufficient", "optional")


class Property(NamedTuple):
    """One entry of a file of properties."""

    line: int
    """Number of its first line, from 1."""
    key: str
    value: str


class JaasError(ValueError):
    """The text is no login of JAAS. The message repeats nothing of it, because it holds a password."""


class JaasLogin(NamedTuple):
    """One login of JAAS."""

    module: str
    """The class's name, without its package."""
    options: dict[str, str]


def read_properties(text: str) -> list[Property]:
    """Returns the entries of a file in their order, as ``java.util.Properties.load`` reads them."""
    found = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        whole = line.lstrip()
        if not whole or whole[0] in "#!":
            continue
        while _goes_on(whole):
            whole = whole[:-1] + next(lines, (0, ""))[1].lstrip()
        key = _KEY.match(whole)
        assert key is not None  # it matches the empty text
        found.append(Property(number, _plain(key[1]), _plain(whole[key.end() :])))
    return found


def _goes_on(line: str) -> bool:
    """Whether the line ends with a backslash that no other one escapes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _plain(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])

    return _ESCAPED.sub(plain, text)


def read_jaas(text: str) -> JaasLogin:
    """Returns the login in a value of ``sasl.jaas.config``.

    :raises JaasError: it is none, or several
    """
    match = _JAAS.fullmatch(text)
    if match is None or match["flag"] not in FLAGS:
        raise JaasError('no login of the form: CLASS required NAME="VALUE" …;')
    options: dict[str, str] = {}
    at = 0
    rest = match["options"].rstrip()
    while at < len(rest):
        option = _OPTION.match(rest, at)
        if option is None:
            raise JaasError(f'options that don\'t have the form NAME="VALUE", behind {len(options)} that do')
        name, *values = option.groups()
        options[name] = _plain(next(value for value in values if value is not None))
        at = option.end()
    return JaasLogin(match["module"].rpartition(".")[2], options)
