"""Models written with other packages, as targets; each package is imported when it is needed."""

from nvgd.frontends.blackjax import to_blackjax
from nvgd.frontends.numpyro import from_numpyro
from nvgd.frontends.pymc import from_pymc

__all__ = ["from_numpyro", "from_pymc", "to_blackjax"]
