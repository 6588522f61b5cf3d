"""Every message of the protocol: one module an API, one class a message for all its versions.

The modules are declarations in the language of :mod:`blumfeld.wire.schema`. Import the one you need;
this package imports none, so that a broker pays only for what it speaks.
"""

from __future__ import annotations
