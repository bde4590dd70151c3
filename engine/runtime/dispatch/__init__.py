"""Dispatch of claims to Temporal."""
