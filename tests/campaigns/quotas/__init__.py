"""Tests of campaigns.quotas."""
