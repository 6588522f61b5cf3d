"""The tests that ask for what this build doesn't have, and the reason of each. They aren't run."""

from __future__ import annotations

import re

_SHARE_GROUPS = "share groups (KIP-932) aren't there"
_ACLS = "ACLs aren't there"
_KERBEROS = "it changes sasl.kerberos.min.time.before.relogin; there is no SASL"
_SCRAM = "there is no SASL, and no SCRAM"
_REASONS = {
    r"01[78]\d_|0190_": _SHARE_GROUPS,
    r"0109_|0115_|0119_|0081_admin/\w*Acls": _ACLS,
    r"0081_admin/(Incremental)?AlterConfigs": _KERBEROS,
    r"0081_admin/UserScramCredentials": _SCRAM,
}


def reason_to_skip(test: str) -> str:
    """Return the reason why a test, or a part of one, isn't run; empty for all others."""
    return next((reason for pattern, reason in _REASONS.items() if re.match(pattern, test)), "")
