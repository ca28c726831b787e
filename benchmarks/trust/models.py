"""All models of the benchmark, by name."""

from collections.abc import Sequence

from benchmarks.trust.model import TrustModel
from benchmarks.trust.models_further import FURTHER
from benchmarks.trust.models_grouped import GROUPED
from benchmarks.trust.models_held_out import HELD_OUT
from benchmarks.trust.models_held_out_2 import HELD_OUT_2
from benchmarks.trust.models_held_out_3 import HELD_OUT_3
from benchmarks.trust.models_held_out_4 import HELD_OUT_4
from benchmarks.trust.models_hierarchical import HIERARCHICAL
from benchmarks.trust.models_latent import LATENT
from benchmarks.trust.models_priors import PRIORS
from benchmarks.trust.models_regression import REGRESSION
from benchmarks.trust.models_shapes import SHAPES
from nvgd._support.errors import check_choice

MODELS: dict[str, TrustModel] = {
    model.name: model
    for group in (
        HIERARCHICAL,
        LATENT,
        REGRESSION,
        PRIORS,
        FURTHER,
        GROUPED,
        SHAPES,
        HELD_OUT,
        HELD_OUT_2,
        HELD_OUT_3,
        HELD_OUT_4,
    )
    for model in group
}


def load(names: Sequence[str] | None = None) -> list[TrustModel]:
    """The models with these names; all if omitted."""
    for name in names or ():
        check_choice("--only", name, MODELS)
    return [MODELS[name] for name in names or MODELS]
