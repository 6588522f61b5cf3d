"""The tests of one plug-in, which the environment names: a module for pytest, which collects the classes in it."""

from __future__ import annotations

import json
import os

import pytest

from blumfeld_kit.plugin_kits.kits import NoKit, kits_of

VARIABLE = "BLUMFELD_KIT_OF"
"""The plug-in: ``{"name": …, "role": …, "options": {…}}``."""

try:
    globals().update(kits_of(**json.loads(os.environ[VARIABLE])))
except NoKit as none:
    pytest.skip(f"not tried: the plug-in | {none}", allow_module_level=True)
