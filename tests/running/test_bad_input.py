"""Wrong input gets one clear sentence.

The cases run in a process without run-time type checking, as a user's would.
"""

import json
import subprocess
import sys

import pytest

PREAMBLE = """
import json, sys
import jax, jax.numpy as jnp, numpy as np, optax, equinox as eqx
import nvgd
from nvgd import coordinates, densities, directions, metrics, movers

def good(x):
    return -0.5 * jnp.sum(x**2)

def tree(position):
    return -jnp.sum(position["a"]**2)

def run(log_density=good, flow=None, **options):
    options = {"dim": 2, "num_steps": 3, "progress": False, **options}
    return nvgd.sample(log_density, flow, **options)

messages = {}
for code in json.load(sys.stdin):
    try:
        eval(code)
        messages[code] = "no error"
    except nvgd.InputError as error:
        messages[code] = str(error)
    except Exception as error:
        messages[code] = f"NOT AN INPUT ERROR: {type(error).__name__}: {error}"
json.dump(messages, sys.stdout)
"""

CASES = {
    # The log density at the start.
    "run(lambda x: jnp.log(x[0] - 9))": r"at \d+ of 256 .* 100 draws.*initial=",
    "run(initial='prior')": r"draw from its prior: pass Target\(",
    "run(initial='mode')": "initial must be one of 'prior'",
    "run(initial=nvgd.Jittered(jnp.zeros(3)))": "the position of Jittered.*must be an array",
    "nvgd.Laplace(scale=-1)": "scale must be a finite number > 0, got -1",
    "run(lambda x: jnp.log(x[0] - 9), initial='laplace')": "no position with a finite log density",
    "nvgd.Jittered(jnp.zeros(2), scale=0)": "scale must be a finite number > 0, got 0",
    "nvgd.from_numpyro(3)": "model must be a function, got 3",
    "nvgd.Target(good, dim=2, model=3)": "model must be an nvgd object such as Model",
    "nvgd.Model(dims=3)": "dims must map names to lists of labels, got 3",
    "nvgd.simulation_based_calibration(3)": "simulate must be a function, got 3",
    "nvgd.simulation_based_calibration(lambda key: ({'x': 0.0}, 3))": "target must be an nvgd.Ta",
    "nvgd.Model(prior=3)": "prior must be a function, got 3",
    "run(lambda x: jnp.nan * x[0])": "not finite at 256 of 256 starting particles",
    "run(lambda x: -x)": r"log_density must return a scalar, got an array of shape \(2,\); sum",
    "run(lambda x: (x[0], x[1]))": "log_density must return a scalar, got a tuple",
    "run(lambda x: float(np.sum(np.asarray(x))))": "must be written with jax.numpy",
    "run(lambda x: x @ jnp.ones(3))": "could not be evaluated at a position with 2 coordinates",
    "run(3.0)": "target must be an nvgd.Target or a log density, got a float",
    # Where it cannot run.
    "jax.jit(lambda s: run(lambda x: -s * x @ x).particles)(1.0)": "cannot be called inside jax",
    "jax.vmap(lambda s: run(lambda x: -s * x @ x).particles)(jnp.ones(2))": "inside jax.jit, vmap",
    "jax.grad(lambda s: run(lambda x: -s * x @ x).particles.sum())(1.0)": "vmap or grad: call it",
    # What came out.
    "run().summary(['x'])": r"quantiles must be numbers between 0 and 1, got \['x'\]; a name goes",
    "run().plot('pairs', names='x')": r"names must be a list of names, got 'x': write \['x'\]",
    "run().plot('pairs', names=['y'])": "names must be among x, got y",
    "run().sample(0)": "num_draws must be a whole number ≥ 1, got 0",
    # Dimension, example, particles.
    "run(dim=0)": "dim must be a whole number ≥ 1, got 0",
    "run(dim=2.5)": "dim must be a whole number ≥ 1, got 2.5",
    "run(dim=None)": r"needs dim .* or example .*nvgd.from_numpyro\(model",
    "run(example=jnp.zeros(2))": "give either dim .* or example",
    "run(dim=None, example={'k': 3})": r"floating-point values only .*got \['int32'\]",
    "run(dim=None, example='abc')": "example must hold only numbers and arrays",
    "run(nvgd.Target(good, dim=2))": "a Target has its own",
    "run(num_particles=0)": "num_particles must be a whole number ≥ 1, got 0",
    "run(num_particles=1)": "num_particles must be at least 2 for Neural, got 1",
    "run(flow=nvgd.SVGD(), num_particles=1)": "at least 2 for Kernel, got 1",
    "run(initial=np.zeros((5, 3)))": r"array \(num_particles, 2\), got shape \(5, 3\)",
    "run(initial=np.zeros((5, 2)), num_particles=6)": "holds 5 particles but num_particles is 6",
    "run(initial=np.full((5, 2), np.nan))": "initial must hold finite numbers only",
    "run(initial={'a': 1})": "initial must",
    "run(tree, dim=None, example={'a': 0.0}, initial={'b': np.ones(3)})": "initial must be",
    "run(tree, dim=None, example={'a': np.ones(2)}, initial={'a': np.ones((9, 3))})": (
        "pytree of arrays with shapes"
    ),
    "run(initial=np.ones((4, 2)) * 1j)": "initial must hold real numbers",
    # Run settings.
    "run(num_steps=0)": "num_steps must be a whole number ≥ 1, got 0",
    "run(num_steps='many')": "num_steps must be a whole number or \"auto\", got 'many'",
    "run(seed=-1)": "seed must be a whole number ≥ 0, got -1",
    "run(thin=4)": "thin must be at most num_steps, 3, got 4",
    "run(thin=0)": "thin must be a whole number ≥ 1, got 0",
    "run(metrics_every=0)": "metrics_every must be a whole number ≥ 1, got 0",
    "run(metrics={'m': lambda x: x})": r"metrics\['m'\] must map particles to a number",
    "run(metrics=[good])": "metrics must map names",
    "run(metrics={'step': good})": "names other than 'step'",
    "run(metrics={'m': lambda x: 'high'})": r"metrics\['m'\] must map particles to a number",
    "run(seed=2**32)": "seed must be below 2³², got 4294967296",
    "run().sample(3, seed=2**32)": "seed must be below 2³²",
    "run(initial=np.zeros((9, 2)))": "initial holds 9 of 9 particles in one place.*Jittered",
    "run(metrics={'m': 3})": r"metrics\['m'\] must be a function, got 3",
    "run(flow=nvgd.NVGD)": r"flow must be an nvgd object such as NVGD\(\), got <class",
    "run(flow='nvgd')": "flow must be an nvgd object",
    "run(particles=3)": "unexpected keyword argument 'particles'",
    # Methods.
    "nvgd.NVGD(-0.1)": r"step_size must be a finite number > 0, got -0.1",
    "nvgd.ULA(0)": r"step_size must be a finite number > 0, got 0",
    "nvgd.SVGD(float('nan'))": "step_size must be a finite number > 0, got nan",
    "nvgd.SGLD('fast')": "step_size must be a finite number > 0, got 'fast'",
    "nvgd.SGLD(jnp.array(-1.0))": "step_size must be a finite number > 0",
    "nvgd.NVGD(0.1, optimizer=optax.adam(0.1))": "give step_size .* or optimizer .*, not both",
    "nvgd.SVGD(optimizer='adam')": "optimizer must be an optax transformation",
    "nvgd.NVGD(learning_rates=1)": "NVGD has no option learning_rates; it accepts step_size",
    "nvgd.SVGD(kernel_width=1)": "SVGD has no option kernel_width; it accepts .*kernel, rescale",
    "nvgd.NVGD(learning_rate=0)": "learning_rate must be a finite number > 0, got 0",
    "nvgd.NVGD(patience=0)": "patience must be a whole number ≥ 1, got 0",
    "nvgd.NVGD(max_inner_steps=1.5)": "max_inner_steps must be a whole number ≥ 1, got 1.5",
    "nvgd.NVGD(train_fraction=1.0)": "train_fraction must lie strictly between 0 and 1, got 1.0",
    "nvgd.NVGD(output_layer='solved')": "NVGD has no option output_layer; it accepts step_size",
    "nvgd.NVGD.paper(divergence='fast')": "divergence must be one of 'auto', 'exact', 'hutchinson'",
    "nvgd.NVGD(witness_optimizer='adam')": "witness_optimizer must be an optax transformation",
    "nvgd.NVGD.paper(witness=3)": "witness must be an Equinox module, got 3",
    "nvgd.NVGD(coordinates='diagonal')": r"coordinates must be .*Identity\(\).*got 'diagonal'",
    "nvgd.stein.HutchinsonDivergence('uniform')": "distribution must be one of 'rademacher'",
    "nvgd.stein.HutchinsonDivergence(num_probes=0)": "num_probes must be a whole number ≥ 1, got 0",
    "nvgd.stein.RBF('mean')": "bandwidth must be a number > 0 or \"median\", got 'mean'",
    "nvgd.stein.IMQ(-1.0)": "bandwidth must be a finite number > 0, got -1.0",
    "nvgd.SVGD(kernel='rbf')": r"kernel must be an nvgd object such as RBF\(\), got 'rbf'",
    "nvgd.ParticleFlow(coordinates.Diagonal(), directions.Langevin(), movers.Capped())": (
        r"Langevin adds noise .* cannot be moved by Capped: use Euler\(step_size\)"
    ),
    # Witnesses.
    "run(flow=nvgd.NVGD.paper(witness=eqx.nn.Linear(2, 3, key=jax.random.key(0))))": (
        r"shape \(2,\) to a velocity of the same shape, got \(3,\); set its output size to 2"
    ),
    "run(flow=nvgd.NVGD.paper(witness=nvgd.stein.MLP(3, key=jax.random.key(0))))": (
        r"witness could not be evaluated at a position of shape \(2,\)"
    ),
    "run(flow=nvgd.NVGD.paper(witness=jnp.tanh))": "no floating-point parameters to train",
    "nvgd.stein.MLP(2, width=0, key=jax.random.key(0))": "width must be a whole number ≥ 1, got 0",
    # Targets.
    "nvgd.Target(good, dim=2, names=['a'])": "names must be 2 different strings",
    "nvgd.Target(good, dim=2, names=['a', 'a'])": "names must be 2 different strings",
    "nvgd.Target(good, example={'a': 0.0}, names=['a'])": "names go with a flat position",
    "nvgd.Target(good, dim=2, data=np.ones(3))": "need a log_likelihood",
    "nvgd.Target(good, dim=2, log_likelihood=lambda x, r: r, data=np.ones(3), batch_size=4)": (
        "batch_size must be at most the number of data rows, 3, got 4"
    ),
    "nvgd.Target(good, dim=2, log_likelihood=lambda x, r: x, data=np.ones(3))": (
        "log_likelihood must return a scalar"
    ),
    "nvgd.Target(good, dim=2, log_likelihood=lambda x, r: r[0], data=(np.ones(3), np.ones(4)))": (
        r"share a leading axis of one or more rows, got shapes \[\(3,\), \(4,\)\]"
    ),
    "nvgd.Target(good, dim=2, log_likelihood=lambda x, r: r, data=None)": "sums over data: give",
    "nvgd.Target(good, dim=2, constrain=lambda x: x @ jnp.ones(3))": "constrain could not be",
    "nvgd.Target(good, dim=2, names=['a', 'b'], constrain=jnp.sum)": "names go with a constrain",
    "nvgd.Target(good, dim=2, names=[1, 2])": "names must be 2 different strings",
    # Stein.
    "nvgd.stein.stein_operator(jnp.tanh, jnp.ones((4, 2)), jnp.ones(2))": "scores must have",
    "nvgd.stein.divergence(jnp.sum, jnp.ones((4, 2)))": "the field must map a position",
    "nvgd.stein.divergence(jnp.tanh, jnp.ones(4))": r"particles must be .* shape \(n, d\), got",
    # Densities and metrics.
    "densities.GaussianMixture(weights=[np.inf, 1])": "weights must be 2 positive numbers",
    "densities.Banana(bend=np.nan)": "bend",
    "metrics.mmd_squared(jnp.ones((3, 2)), jnp.ones((3, 2)), 'median')": "bandwidth must be",
    "densities.Funnel(1)": "dim must be a whole number ≥ 2, got 1",
    "densities.Gaussian([0, 0], [[1, 2], [2, 1]])": "symmetric and positive definite",
    "densities.Gaussian([0, 0], [1, 1, 1])": "d variances for a mean of length d",
    "densities.GaussianMixture(weights=[1, -1])": "weights must be 2 positive numbers",
    "densities.Ring(radius=-1)": "radius must be a finite number > 0, got -1",
    "metrics.mmd_squared(jnp.ones((3, 2)), jnp.ones((3, 4)))": r"same d, got \(3, 2\) and \(3, 4\)",
    "metrics.mmd_squared(jnp.ones((1, 2)), jnp.ones((3, 2)))": "at least 2 rows here, got 1 and 3",
    "metrics.mmd_squared(jnp.ones((3, 2)), jnp.ones((3, 2)), 0.0)": "bandwidth must be",
    "metrics.energy_distance([1, 2], [3])": "arrays of shape",
    "metrics.kernel_stein_discrepancy(jnp.ones((3, 2)), jnp.ones((4, 2)))": "scores must have",
    "metrics.sliced_wasserstein(jnp.ones((3, 2)), jnp.ones((3, 2)), num_projections=0)": (
        "num_projections must be a whole number ≥ 1, got 0"
    ),
}


ODD_BUT_LEGAL = [
    "run(flow=nvgd.ULA(np.float32(0.1)), thin=np.int64(2), num_steps=np.int64(4))",
    "run(flow=nvgd.NVGD.paper(train_fraction=np.float64(0.5), restore_best=np.bool_(True)))",
    "run(flow=nvgd.NVGD.paper(divergence=nvgd.stein.HutchinsonDivergence(num_probes=np.int64(2))))",
    "run(flow=nvgd.SVGD(rescale=np.bool_(True), kernel=nvgd.stein.RBF(np.float64(1.0))))",
    "run(flow=nvgd.SVGD(), dim=1, num_particles=2)",
    "run(flow=nvgd.SVGD(), num_particles=None, initial=[[0.0, 1.0], [2.0, 3.0]])",
    "run(flow=nvgd.NVGD.paper(witness=eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))))",
    "run(flow=nvgd.SVGD(optimizer=optax.MultiSteps(optax.adam(0.1), 2)))",
    "metrics.energy_distance(np.arange(6).reshape(3, 2), np.ones((4, 2)))",
]


@pytest.fixture(scope="module")
def messages():
    """What each piece of code is answered with, all by one process."""
    result = subprocess.run(
        [sys.executable, "-c", PREAMBLE],
        input=json.dumps([*CASES, *ODD_BUT_LEGAL]),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(result.stdout)


@pytest.mark.xdist_group("bad-input")
@pytest.mark.parametrize(("code", "pattern"), CASES.items(), ids=CASES.keys())
def test_wrong_input_is_named_in_one_sentence(messages, code, pattern):
    import re

    assert re.search(pattern, messages[code]), messages[code]
    # Python itself knows no such argument.
    is_foreign = messages[code].startswith("NOT AN INPUT ERROR")
    assert is_foreign == ("unexpected keyword" in pattern), messages[code]
    assert "\n" not in messages[code]


@pytest.mark.xdist_group("bad-input")
@pytest.mark.parametrize("code", ODD_BUT_LEGAL)
def test_odd_but_legal_input_is_taken(messages, code):
    assert messages[code] == "no error"
