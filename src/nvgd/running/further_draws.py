"""Further draws after a run: its chains continue."""

import jax
import numpy as np

from nvgd._support.blas_threads import on_one_thread
from nvgd._support.errors import InputError
from nvgd.posterior.chains import Chains
from nvgd.running.chunks import CAPACITY, Steps, advance
from nvgd.running.kept_draws import FIELDS
from nvgd.running.plan import Active
from nvgd.targets.target import Target

# The first draws are taken after this many times between draws.
FORGETTING_TIMES = 3


@on_one_thread
def further_draws(
    target: Target, active: Active, time_between: int, num_draws: int, seed: int
) -> Chains:
    """Draws of chains that continue, as one chain.

    Arguments:
        active: the corrections at the end of a run, which adapt no more.
        time_between: number of steps after which a chain's state is nearly independent.
        num_draws: number of draws; several per chain if there are more draws than chains.
        seed: seed of the steps.
    """
    key = jax.random.fold_in(jax.random.key(seed), int(active.state.step))
    steps, state = Steps(active.stage, target, key), active.state
    num_chains = len(state.particles)
    kept: list[list[np.ndarray]] = []
    for i in range(-(-num_draws // num_chains)):
        left = time_between * (1 if i else FORGETTING_TIMES)
        while left:
            chunk = advance(steps, state, state, None, min(left, CAPACITY))
            if not chunk.healthy:
                raise InputError("the log density is not finite where the chains went.")
            state, left = chunk.state, left - len(chunk.infos.log_density)
        kept.append([np.asarray(getattr(state, name)) for name in FIELDS])
    joined = [np.concatenate(parts) for parts in zip(*kept, strict=True)]
    rows = np.linspace(0, len(joined[0]) - 1, num_draws).round().astype(int)
    return Chains(*(values[rows][None] for values in joined))
