"""Rules turn a certificate's name into a principal as Kafka's SslPrincipalMapper does."""

from __future__ import annotations

import pytest

from blumfeld_security.tls.principals import NoRuleError, RuleError, Rules

SERVICE = "CN=Duke,OU=ServiceUsers,O=Org"
LONG = "CN=kafka-server1,OU=dep,O=org,L=l,ST=s,C=DE"


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", SERVICE, SERVICE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", SERVICE, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", SERVICE, "duke"),
        ("RULE:^CN=(.*?)$/$1/U", "CN=a", "A"),
        ("RULE:^CN=x$/$1/, DEFAULT", SERVICE, SERVICE),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L", LONG, "kafka-server1@dep"),
        ("RULE:CN=a\\/b/ok/", "CN=a/b", "ok"),
        ("RULE:CN/x/,DEFAULT", "CN=a", "CN=a"),  # the whole name must match
        ("RULE:.*/q/", "CN=a", "qq"),  # Java replaces once more at the end
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        ("RULE:^CN=(.*)$/$2/", "CN=a", "$2"),
        ("RULE:^CN=(.*)$/a\\$1/", "CN=x", "a$1"),
        ("RULE:^CN=(.*)$/a\\\\b/", "CN=x", "a\\b"),
        ("RULE:^CN=(z)?(.*)$/$1-$2/", "CN=x", "-x"),
        ("RULE:^CN=(.*)$//", "CN=x", ""),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, name: str, principal: str) -> None:
    """Each was compared with Kafka 4.3.1's own class."""
    assert Rules(rules).principal(name) == principal


@pytest.mark.parametrize("rules", ["", " ", "RULE:^CN=x$/y/"])
def test_a_name_without_a_rule_may_not_come_in(rules: str) -> None:
    with pytest.raises(NoRuleError, match="CN=Duke"):
        Rules(rules).principal(SERVICE)


@pytest.mark.parametrize(
    "rules",
    [
        "nonsense",
        "default",
        "RULE:.*/x",
        "RULE:.*/x/Z",
        "RULE:.*/a/LU",
        "RULE:(/x/",
        "DEFAULT DEFAULT",
        "RULE:^CN=(.*)$/a$b/",
        "RULE:.*/x/;DEFAULT",
    ],
)
def test_a_text_that_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(RuleError, match=r"rule|regular|number"):
        Rules(rules)
