"""The rules that turn the name of a client's certificate into the name of a principal: ``ssl.principal.mapping.rules``.

Pure. The rules are Kafka's: ``RULE:pattern/replacement/`` with ``L`` or ``U`` for lower or upper case, and ``DEFAULT``,
which keeps the whole name. The first rule whose pattern matches the whole name decides.
"""

from __future__ import annotations

import re

import msgspec

DEFAULT = "DEFAULT"
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)
_BEHIND = re.compile(r"\s*(?:,\s*|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)
_LONELY = re.compile(r"(?:\\.|[^\\$]|\$\d)*\$(?!\d)", re.DOTALL)


class RuleError(Exception):
    """A text is no rule."""


class NoRuleError(Exception):
    """No rule matches the name: such a client may not come in."""


class Rule(msgspec.Struct, frozen=True):
    """One rule."""

    pattern: re.Pattern[str] | None
    """``None`` for DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Returns the principal's name; ``None`` if the pattern doesn't match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        # Each match is replaced, as in Kafka: ".*" matches once more at the end of the name.
        mapped = self.pattern.sub(self._filled, name)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped

    def _filled(self, found: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda part: _replaced(part, found), self.replacement)


def _replaced(part: re.Match[str], found: re.Match[str]) -> str:
    escaped, group = part[1], part[2]
    if escaped is not None:
        return str(escaped)
    # As in Java, "$12" is group 1 and a "2" where there are fewer than twelve groups.
    for size in range(len(group), 0, -1):
        if int(group[:size]) <= found.re.groups:
            return (found[int(group[:size])] or "") + group[size:]
    return "$" + group


class Rules:
    """The rules of a listener, in order.

    :raises RuleError: a text is no rule; the message names it
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._rules: list[Rule] = []
        at = 0
        text = text.strip()
        while at < len(text):
            at = self._one(text, at)

    def _one(self, text: str, at: int) -> int:
        found = _RULE.match(text, at)
        if found is not None:
            if _LONELY.match(found[2]):
                raise RuleError(
                    f"the replacement {found[2]!r} has a '$' without a number: \\$ stands for itself"
                )
            self._rules.append(Rule(_compiled(found[1]), found[2], found[3]))
            end = found.end()
        elif text.startswith(DEFAULT, at):
            self._rules.append(Rule(None))
            end = at + len(DEFAULT)
        else:
            raise RuleError(f"{text[at:]!r} is no rule: RULE:pattern/replacement/[LU] or DEFAULT is")
        behind = _BEHIND.match(text, end)
        if behind is None:
            raise RuleError(f"{text[end:]!r} stands behind a rule; a comma or the end is allowed")
        return behind.end()

    def principal(self, name: str) -> str:
        """Returns the principal's name for a distinguished name.

        :raises NoRuleError: no rule matches
        """
        for rule in self._rules:
            mapped = rule.apply(name)
            if mapped is not None:
                return mapped
        raise NoRuleError(f"no rule of {self._text!r} matches the name {name!r}")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern.replace("\\/", "/"))
    except re.error as error:
        raise RuleError(f"{pattern!r} is no regular expression: {error}") from None
