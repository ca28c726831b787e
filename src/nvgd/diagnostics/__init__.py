"""Did it work? Measures of a posterior by its scores, and a verdict in words."""

from nvgd.diagnostics.checks import Check, Thresholds
from nvgd.diagnostics.diagnose import diagnose
from nvgd.diagnostics.held_out import HeldOut, held_out_discrepancy
from nvgd.diagnostics.measures import standardise
from nvgd.diagnostics.verdict import Diagnosis

__all__ = [
    "Check",
    "Diagnosis",
    "HeldOut",
    "Thresholds",
    "diagnose",
    "held_out_discrepancy",
    "standardise",
]
