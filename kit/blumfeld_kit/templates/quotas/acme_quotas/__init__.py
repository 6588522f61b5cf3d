"""Quotas of clients for Blumfeld."""

from .plugin import Plugin as Plugin
from .quotas import AcmeQuotas as AcmeQuotas
