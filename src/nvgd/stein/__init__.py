"""The paper's mathematics: Stein operator, discrepancies, divergences, witnesses, kernels."""

from nvgd.stein.divergences import ExactDivergence, HutchinsonDivergence
from nvgd.stein.kernels import IMQ, RBF
from nvgd.stein.operator import (
    divergence,
    regularised_stein_discrepancy,
    stein_discrepancy,
    stein_operator,
)
from nvgd.stein.regularisers import PowerNorm, QuadraticForm
from nvgd.stein.witnesses import MLP

__all__ = [
    "IMQ",
    "MLP",
    "RBF",
    "ExactDivergence",
    "HutchinsonDivergence",
    "PowerNorm",
    "QuadraticForm",
    "divergence",
    "regularised_stein_discrepancy",
    "stein_discrepancy",
    "stein_operator",
]
