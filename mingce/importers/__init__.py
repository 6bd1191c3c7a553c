"""Importers: the dumps of other trainers as named columns, kept as they were written."""

from mingce.importers.opening import open_dump

__all__ = ["open_dump"]
