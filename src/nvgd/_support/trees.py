"""Functions of pytrees of arrays."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


def where(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """`jnp.where(condition, yes, no)` for each leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def all_finite(tree: PyTree) -> Array:
    """Whether every floating-point number in the tree is finite."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
