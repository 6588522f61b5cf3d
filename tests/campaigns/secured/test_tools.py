"""What secured-tools reads in the output of Kafka's tools."""

from __future__ import annotations

from campaigns.secured import tools

CREATED = """\
Calling create token operation with renewers :[] , max-life-time-period :-1
Created delegation token with tokenId : 4vDet2BRr1vGIUVwUmLxpw

TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS        ISSUEDATE
4vDet2BRr1vGIUVwUmLxpw LWp1QKBclaTGSWMFWsYO+nOg6Axh37MMiSOO1HImva4c8sTKd1ArDROLgVGWErk7tDwBfzyQqXnx3WCG9H6DNA== \
User:alice      User:node       []              2026-11-29T05:13
"""


def test_a_token_is_read_with_its_secret_and_owner() -> None:
    found = tools._HMAC.search(CREATED)
    assert found is not None
    token, secret, owner = found.groups()
    assert (token, owner) == ("4vDet2BRr1vGIUVwUmLxpw", "alice")
    assert secret.startswith("LWp1QK")
    assert secret.endswith("DNA==")
