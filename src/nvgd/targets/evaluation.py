"""Compiled evaluations of a target: on a batch, or summed over blocks of all data."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from nvgd._support.compilation import Form, Program, compiled
from nvgd.targets.scores import Scores


@runtime_checkable
class Differentiable(Protocol):
    """What an evaluation needs of a `Target`."""

    @property
    def is_noisy(self) -> bool:
        """Whether a step uses minibatches."""
        ...

    def batch(self, taken: PyTree) -> PyTree:
        """The batch of one step, from that step's entry of `batches`."""
        ...

    def blocks(self) -> Iterator[PyTree]:
        """All data, in blocks that fit in memory."""
        ...

    def estimate(self, position: Float[Array, " d"], batch: PyTree) -> Float[Array, ""]:
        """Log density at a flat position, without control variates."""
        ...

    def log_densities_and_scores(
        self, particles: Float[Array, "n d"], batch: PyTree = None
    ) -> Scores:
        """Log densities and scores at all particles."""
        ...


class Evaluation:
    """Log densities and scores of a target, compiled: one program for all callers.

    found = Evaluation(target)(particles, batch)
    """

    def __init__(self, target: Differentiable):
        self._form, self._arrays = Form.of(target)

    def __call__(
        self, particles: Float[Array, "n d"], batch: PyTree = None, step: int | None = None
    ) -> Scores:
        """`Target.log_densities_and_scores`.

        Arguments:
            batch: data rows, or the output of `AbstractBatches.take` for several steps.
            step: which of these steps, if there are several.
        """
        return _evaluate(self._form, step is None, self._arrays, particles, batch, step)


def evaluate(
    target: Differentiable, particles: Float[Array, "n d"], batch: PyTree = None
) -> Scores:
    """Log densities and scores of a target, compiled (`Evaluation`)."""
    return Evaluation(target)(particles, batch)


def evaluate_on_all_data(target: Differentiable, particles: Float[Array, "n d"]) -> Scores:
    """Log densities and scores of all data, evaluated block by block."""
    if not target.is_noisy:
        return evaluate(target, particles)
    values, scores = np.zeros(len(particles)), np.zeros(particles.shape)
    num_rows = 0
    for block in target.blocks():
        size = len(jax.tree.leaves(block)[0])
        # Each block gives an estimate; their mean, weighted by block size, is exact. The sum is
        # taken on the host, in double precision.
        found = evaluate(target, particles, block)
        values += size * np.asarray(found.log_densities, np.float64)
        scores += size * np.asarray(found.scores, np.float64)
        num_rows += size
    dtype = particles.dtype
    return Scores(jnp.asarray(values / num_rows, dtype), jnp.asarray(scores / num_rows, dtype))


def curvature_on_all_data(
    target: Differentiable, position: Float[Array, " d"], probes: Float[Array, "k d"]
) -> Float[np.ndarray, "k d"]:
    """Products of −∇²log p of all data with each probe, summed in double precision."""
    products, num_rows = np.zeros(probes.shape), 0
    for block in target.blocks() if target.is_noisy else (None,):
        size = 1 if block is None else len(jax.tree.leaves(block)[0])
        products += size * np.asarray(_curvature(target, position, block, probes))
        num_rows += size
    return products / num_rows


def _log_densities_and_scores(
    form: Form,
    is_batch: bool,
    arrays: list[Array],
    particles: Float[Array, "n d"],
    batch: PyTree,
    step: Int[Array, ""] | None,
) -> Scores:
    target: Differentiable = form.tree(arrays)
    if not is_batch:
        batch = target.batch(jax.tree.map(lambda leaf: leaf[step], batch))
    return target.log_densities_and_scores(particles, batch)


_evaluate = Program(_log_densities_and_scores, 2)


@compiled
def _curvature(target: Differentiable, position: Array, block: PyTree, probes: Array) -> Array:
    def score(at: Array) -> Array:
        return jax.grad(lambda x: target.estimate(x, block))(at)

    return -jax.vmap(lambda probe: jax.jvp(score, (position,), (probe,))[1])(probes)
