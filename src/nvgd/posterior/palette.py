"""One colour per method, in every figure of the project.

The colours are those of Okabe and Ito (2008), which people with any kind of colour vision can tell
apart. Variants of a method have tints and shades of its colour.
"""

NVGD = "#D55E00"
NVGD_PAPER = "#CC79A7"
SVGD = "#0072B2"
LANGEVIN = "#009E73"
NUTS = "#222222"
MEADS = "#E69F00"
STEINVI = "#56B4E9"
# What methods are compared with: exact draws, a known optimum.
REFERENCE = "#7A7A7A"

_OF_METHOD = {
    "NVGD": NVGD,
    "PaperNVGD": NVGD_PAPER,
    "SVGD": SVGD,
    "ULA": LANGEVIN,
    "SGLD": LANGEVIN,
    "MALA": LANGEVIN,
}


def tint(colour: str, share: float) -> str:
    """A colour mixed with white, or with black if the share is negative.

    Arguments:
        colour: `#RRGGBB`.
        share: share of white, between −1 and 1.
    """
    end = 255 if share > 0 else 0
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (end - part) * abs(share)):02X}" for part in parts)


def colour_of(method: str) -> str:
    """The colour of a run, by the name of its flow; grey for flows that are not listed."""
    return _OF_METHOD.get(method, REFERENCE)
