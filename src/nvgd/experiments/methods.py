"""The methods that the experiments compare: their names, their colours, the paper's settings."""

from typing import Any

from nvgd.flow.methods import NVGD
from nvgd.flow.movers.plain import StepSize
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.posterior import palette
from nvgd.posterior.palette import tint
from nvgd.stein.divergences import HutchinsonDivergence

# Names in records, tables and figures: the library's default and the paper's method,
DEFAULT, PAPER = "NVGD", "NVGD paper"
# ULA with a single chain, and independent draws from the target.
SEQUENTIAL, EXACT = "ULA sequential", "exact sample"
# Langevin dynamics in the demo, whose readers need not know what pULA is.
LANGEVIN, SLOW_LANGEVIN = "Langevin", "Langevin ε/5"

COLOURS = {
    DEFAULT: palette.NVGD,
    PAPER: palette.NVGD_PAPER,
    f"{PAPER} Adam": tint(palette.NVGD_PAPER, 0.45),
    "SVGD": palette.SVGD,
    "SVGD Adam": tint(palette.SVGD, 0.45),
    "SGLD": palette.LANGEVIN,
    "pULA ε": palette.LANGEVIN,
    "pULA ε/5": tint(palette.LANGEVIN, 0.45),
    LANGEVIN: palette.LANGEVIN,
    SLOW_LANGEVIN: tint(palette.LANGEVIN, 0.45),
    SEQUENTIAL: tint(palette.LANGEVIN, -0.45),
    EXACT: palette.REFERENCE,
}


def paper_nvgd(step_size: StepSize | None, learning_rate: float, **options: Any) -> ParticleFlow:
    """NVGD with the paper's settings: Gaussian probes, at most 50 inner steps, patience 15."""
    settings = {
        "max_inner_steps": 50,
        "patience": 15,
        "train_fraction": 2 / 3,
        "divergence": HutchinsonDivergence("gaussian"),
    }
    return NVGD.paper(step_size, learning_rate=learning_rate, **{**settings, **options})
