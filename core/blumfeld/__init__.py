"""Blumfeld: a log broker that speaks the Kafka wire protocol, composed from plug-ins around a small kernel."""

__version__ = "0.1.0"
