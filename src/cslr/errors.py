"""What can go wrong, as a tree. Every leaf says what to do about it.

CslrError                      anything a user can act on; the program exits with code 2
├── ConfigError                a setting is unknown, out of range, or contradicts another
├── DataError                  a data directory, file, row or label is not what was declared
├── EncoderError               a text encoder cannot be had or gave something unusable
├── CacheCorrupted             a cached embedding file does not match its own name
├── RunDirectoryError          a run directory belongs to another configuration or is damaged
└── PrivacyError               nothing is released
    ├── BudgetExceeded         the charge would exceed the federation's budget
    ├── PlanChanged            the plan was fixed before the first release and may not change
    └── LedgerCorrupted        the ledger's chain is broken; it is never started anew

A wrong argument to a library function is a plain ``ValueError`` that names the argument.
"""

from __future__ import annotations

__all__ = [
    "BudgetExceeded",
    "CacheCorrupted",
    "ConfigError",
    "CslrError",
    "DataError",
    "EncoderError",
    "LedgerCorrupted",
    "PlanChanged",
    "PrivacyError",
    "RunDirectoryError",
]


class CslrError(Exception):
    """Base of everything a user can act on."""

    exit_code = 2


class ConfigError(CslrError):
    """A setting is unknown, out of range, or contradicts another."""


class DataError(CslrError):
    """A data directory, file, row or label is not what was declared."""


class EncoderError(CslrError):
    """A text encoder cannot be had or gave something unusable."""


class CacheCorrupted(CslrError):
    """A cached embedding file does not match its own name."""


class RunDirectoryError(CslrError):
    """A run directory belongs to another configuration or is damaged."""


class PrivacyError(CslrError):
    """A guarantee could not be kept, so nothing was released."""


class BudgetExceeded(PrivacyError):
    """The charge would exceed the federation's budget."""


class PlanChanged(PrivacyError):
    """The plan was fixed before the first release and may not change."""


class LedgerCorrupted(PrivacyError):
    """The ledger's chain is broken; it is never started anew."""
