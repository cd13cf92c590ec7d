"""Audits of the guarantee: attacks that give empirical lower bounds on ε, next to the claim."""

from cslr.audit.confidence import Bound
from cslr.audit.conformance import Conformance, conforms
from cslr.audit.pipeline import OneRun, one_run
from cslr.audit.synthetic import synthetic_context
from cslr.audit.worlds import two_worlds

__all__ = [
    "Bound",
    "Conformance",
    "OneRun",
    "conforms",
    "one_run",
    "synthetic_context",
    "two_worlds",
]
