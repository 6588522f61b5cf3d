"""Tests of the market data archive."""
