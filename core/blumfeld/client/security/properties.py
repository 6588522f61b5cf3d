"""The form of Java's files of properties, and of the logins inside them (``sasl.jaas.config``). Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
"""Java's blanks. A password may have others, as the space that doesn't break, and Unicode's ends of lines."""
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_JAAS_ESCAPES = {**_ESCAPES, "a": "\a", "b": "\b", "v": "\v"}
_JAAS_ESCAPED = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", re.DOTALL)
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
    lines = iter(enumerate(_LINE_END.split(text), 1))
    for number, line in lines:
        whole = line.lstrip(_BLANKS)
        if not whole or whole[0] in "#!":
            continue
        while _goes_on(whole):
            whole = whole[:-1] + next(lines, (0, ""))[1].lstrip(_BLANKS)
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

    # Java's tools write a character beyond 16 bits as two escapes.
    return _ESCAPED.sub(plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _jaas_plain(text: str) -> str:
    """Returns what a text in quotes stands for, as Kafka's ``StreamTokenizer`` reads it: octal digits, but no
    ``\\u``."""

    def plain(match: re.Match[str]) -> str:
        return chr(int(match[1], 8)) if match[1] else _JAAS_ESCAPES.get(match[2], match[2])

    return _JAAS_ESCAPED.sub(plain, text)


def read_jaas(text: str) -> JaasLogin:
    """Returns the login in a value of ``sasl.jaas.config``.

    :raises JaasError: it is none, or several
    """
    match = _JAAS.fullmatch(text)
    if match is None or match["flag"].lower() not in FLAGS:
        raise JaasError('no login of the form: CLASS required NAME="VALUE" …;')
    options: dict[str, str] = {}
    at = 0
    rest = match["options"].rstrip()
    while at < len(rest):
        option = _OPTION.match(rest, at)
        if option is None:
            raise JaasError(f'options that don\'t have the form NAME="VALUE", behind {len(options)} that do')
        name, *values = option.groups()
        options[name] = _jaas_plain(next(value for value in values if value is not None))
        at = option.end()
    return JaasLogin(match["module"].rpartition(".")[2], options)
