"""The methods that the experiments compare: their names, their colours, the paper's settings."""

from typing import Any

from nvgd.flow.methods import NVGD
from nvgd.flow.movers.plain import StepSize
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.stein.divergences import HutchinsonDivergence

# Names in records, tables and figures: the library's default and the paper's method,
DEFAULT, PAPER = "NVGD", "NVGD paper"
# ULA with a single chain, and independent draws from the target.
SEQUENTIAL, EXACT = "ULA sequential", "exact sample"

COLOURS = {
    DEFAULT: "#d1495b",
    PAPER: "#6b2d3c",
    f"{PAPER} Adam": "#b58a95",
    "SVGD": "#2e6f95",
    "SVGD Adam": "#85b4d0",
    "SGLD": "#e9a23b",
    "pULA ε": "#e9a23b",
    "pULA ε/5": "#7a9e7e",
    SEQUENTIAL: "#8a6fb0",
    EXACT: "0.35",
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
