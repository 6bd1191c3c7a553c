"""Audit: recompute what a trainer wrote with code that shares nothing with it, and name what is wrong."""
