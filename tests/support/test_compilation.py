"""How many compiled programs a process keeps."""

import jax.numpy as jnp

import nvgd
from nvgd._support import compilation


def test_programs_of_targets_that_are_past_are_dropped(monkeypatch):
    """A new function for every data set, as in a loop over folds."""
    monkeypatch.setattr(compilation, "MOST_PROGRAMS", 2)
    counts = []
    for centre in range(5):
        nvgd.sample(
            lambda x, centre=centre: -0.5 * jnp.sum((x - centre) ** 2),
            nvgd.ULA(),
            dim=2,
            num_particles=5,
            num_steps=3,
            progress=False,
        )
        counts.append(compilation.num_programs())
    assert max(counts) <= 3


def test_the_same_target_keeps_its_program(monkeypatch):
    # Other tests of this process may have left as many as are kept.
    with monkeypatch.context() as patched:
        patched.setattr(compilation, "MOST_PROGRAMS", 0)
        compilation.make_room()

    def log_density(x):
        return -0.5 * jnp.sum(x**2)

    sizes = []
    for seed in range(3):
        nvgd.sample(
            log_density,
            nvgd.ULA(),
            dim=2,
            num_particles=5,
            num_steps=3,
            seed=seed,
            progress=False,
        )
        sizes.append(compilation.num_programs())
    assert sizes[0] == sizes[1] == sizes[2]
