"""Blumfeld: a log broker that speaks the Kafka wire protocol, composed from plug-ins around a small kernel."""

import sys

from blumfeld.moved import OldPlaces

__version__ = "0.1.0"

sys.meta_path.append(OldPlaces())
