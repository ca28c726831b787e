"""How many compiled programs a process keeps."""

import gc
import weakref

import jax.numpy as jnp

import nvgd
from nvgd._support import compilation


def num_programs() -> int:
    """The largest number of programs that any one function holds."""
    return max(cache._cache_size() for cache in compilation._caches)


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
        counts.append(num_programs())
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
        sizes.append(num_programs())
    assert sizes[0] == sizes[1] == sizes[2]


def sampled(log_density, **options):
    options = {"dim": 3, "num_particles": 40, "num_steps": 520, "progress": False, **options}
    return nvgd.sample(log_density, **options)


def test_the_users_log_density_is_compiled_once():
    """By the bare call: one trace for its shapes, one for a program that all stages share."""
    traces = []

    def log_density(x):
        traces.append(x)
        return -0.5 * jnp.sum(x**2)

    posterior = sampled(log_density)
    assert [stage.kind for stage in posterior.stages] == ["flow", "corrections"]
    assert len(traces) == 2
    sampled(posterior.target, dim=None, seed=1)
    posterior.diagnose()
    assert len(traces) == 2


def test_a_minibatch_log_likelihood_is_compiled_twice():
    """For the check of the start and the end, and for the steps."""
    traces = []

    def log_likelihood(x, row):
        traces.append(x)
        return -0.5 * jnp.sum((row - x) ** 2)

    target = nvgd.Target(
        lambda x: -0.5 * jnp.sum(x**2),
        dim=3,
        log_likelihood=log_likelihood,
        data=jnp.ones((100, 3)),
        batch_size=10,
    )
    sampled(target, dim=None, num_steps=20)
    assert len(traces) == 3


def test_models_of_one_shape_share_the_librarys_own_programs():
    """The same density in a new lambda, and another density: only their gradients are compiled."""

    own = {"_updated", "_adapted"}
    caches = [cache for cache in compilation._caches if cache.__name__ in own]
    assert own == {cache.__name__ for cache in caches}
    # Those that earlier tests have filled would be emptied meanwhile.
    for cache in caches:
        cache.clear_cache()
    sampled(lambda x: -0.5 * jnp.sum(x**2))
    before = [cache._cache_size() for cache in caches]
    sampled(lambda x: -0.5 * jnp.sum(x**2))
    sampled(lambda x: -jnp.sum(jnp.cosh(x)), num_steps=600, seed=2)
    assert [cache._cache_size() for cache in caches] == before


def test_options_that_this_version_of_xla_does_not_know_are_left_out(monkeypatch):
    monkeypatch.setattr(compilation, "QUICKLY", {"xla_of_the_future": 1, **compilation.QUICKLY})
    compilation._options.cache_clear()
    options = compilation._options(1)
    compilation._options.cache_clear()
    assert options["xla_backend_optimization_level"] == 1
    assert "xla_of_the_future" not in options


def test_programs_do_not_keep_the_data_of_a_target():
    """JAX keeps a program's constants; the rows of a data set must not be among them."""
    rows = jnp.ones((1000, 3))
    target = nvgd.Target(
        lambda x: -0.5 * jnp.sum(x**2),
        dim=3,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=rows,
    )
    sampled(target, dim=None, num_steps=3)
    alive = weakref.ref(rows)
    del rows, target
    gc.collect()
    assert alive() is None
