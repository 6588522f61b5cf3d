"""The tests that ask for what this build doesn't have, and the reason of each. They aren't run."""

from __future__ import annotations

import re

_SHARE_GROUPS = "share groups (KIP-932) aren't there"
_SECURED = "it needs nodes with ACLs and SASL: --secured"
_KERBEROS = "it changes sasl.kerberos.min.time.before.relogin; there is no Kerberos"
_REASONS = {
    r"01[78]\d_|0190_|01[34]\d_\w+/share_|0126_\w+/produce_share_": _SHARE_GROUPS,
    r"0081_admin/(Incremental)?AlterConfigs": _KERBEROS,
}
_REASONS_IN_CLEAR = {r"0109_|0115_|0119_|0081_admin/(\w*Acls|UserScramCredentials)": _SECURED}


def reason_to_skip(test: str, *, secured: bool = False) -> str:
    """Return the reason why a test, or a part of one, isn't run; empty for all others."""
    reasons = _REASONS if secured else {**_REASONS, **_REASONS_IN_CLEAR}
    return next((reason for pattern, reason in reasons.items() if re.match(pattern, test)), "")
