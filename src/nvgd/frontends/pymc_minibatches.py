"""Models with `pymc.Minibatch`: their graphs as functions of row numbers.

PyMC draws rows inside the graph. Here, row numbers become an input of the graph, so that a target
with minibatches chooses the rows.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nvgd._support.errors import InputError


class MinibatchGraph(NamedTuple):
    """The observed variables of a PyMC model that see rows of `pymc.Minibatch`."""

    num_rows: int
    batch_size: int
    observed: tuple[Any, ...]
    """The observed variables with minibatches."""
    rows: Any
    """The graph's input: row numbers."""

    def on_rows(self, graphs: Sequence[Any]) -> list[Any]:
        """These graphs, as functions of `rows`."""
        from pytensor.graph.replace import clone_replace

        # The last input and output are those of the random generator.
        replaced = {
            output: whole[self.rows]
            for node in _sources(graphs)
            for output, whole in zip(node.outputs[:-1], node.inputs[:-1], strict=True)
        }
        return clone_replace(list(graphs), replaced, rebuild_strict=False)

    def in_batches(
        self, log_likelihood: Callable[[Array], dict[str, Array]], rows: Int[Array, " m"]
    ) -> Float[Array, " m"]:
        """Log likelihood of each of these rows, in batches of the size that the graph was made for.

        PyMC folds the size of a batch into its graphs as a constant.

        Arguments:
            log_likelihood: the terms of the observed variables at the rows of one batch, scaled by
                PyMC as if they were those of all rows.
        """
        num = -(-len(rows) // self.batch_size)
        filled = jnp.pad(rows, (0, num * self.batch_size - len(rows)))

        def of_batch(own: Array) -> Array:
            found = log_likelihood(own)
            terms = [found[v.name].reshape(self.batch_size, -1).sum(axis=1) for v in self.observed]
            return jnp.sum(jnp.stack(terms), axis=0)

        values = jax.vmap(of_batch)(filled.reshape(num, self.batch_size)).reshape(-1)
        return values[: len(rows)] * (self.batch_size / self.num_rows)


def minibatch_graph(model: Any) -> MinibatchGraph | None:
    """The minibatches of a PyMC model; None if it has none."""
    from pytensor.tensor.type import ivector

    found = {v: _sources([v, model.rvs_to_values[v]]) for v in model.observed_RVs}
    observed = tuple(variable for variable, sources in found.items() if sources)
    sources = {node: None for nodes in found.values() for node in nodes}
    potentials = [v.name for v in model.potentials if _sources([v])]
    if potentials:
        raise InputError(
            f"pymc.Minibatch is for observed variables, and the potential {', '.join(potentials)} "
            "uses it: make it an observed pymc.CustomDist with total_size, or use all data in it."
        )
    if not observed:
        return None
    unscaled = [v.name for v in observed if _total_size(v) is None]
    if unscaled:
        raise InputError(
            f"{', '.join(unscaled)} uses pymc.Minibatch without total_size: pass "
            "total_size=number of rows of the data, by which the likelihood is scaled."
        )
    lengths = {_length(node.inputs[0]) for node in sources}
    sizes = {_length(node.outputs[0]) for node in sources}
    totals = {_total_size(v) for v in observed}
    if len(lengths | totals) > 1 or len(sizes) > 1:
        raise InputError(
            "all uses of pymc.Minibatch in a model must have the same data length, total_size and "
            f"batch_size, got lengths {sorted(lengths)}, total_size {sorted(totals)} and "  # pyright: ignore[reportArgumentType]
            f"batch_size {sorted(sizes)}."
        )
    rows = ivector("rows")
    return MinibatchGraph(lengths.pop(), sizes.pop(), observed, rows)


def uses_minibatch(variable: Any) -> bool:
    """Whether the graph of a variable draws rows."""
    return bool(_sources([variable]))


def _sources(graphs: Sequence[Any]) -> list[Any]:
    """The nodes of the graphs that draw rows."""
    from pymc.data import MinibatchOp
    from pytensor.graph.traversal import ancestors

    nodes = {v.owner: None for v in ancestors(graphs) if v.owner is not None}
    return [node for node in nodes if isinstance(node.op, MinibatchOp)]


def _total_size(variable: Any) -> int | None:
    """Number of rows for which the variable's log density stands; None if it is not scaled."""
    if type(variable.owner.op).__name__ != "MinibatchRandomVariable":
        return None
    sizes = [getattr(size, "data", None) for size in variable.owner.inputs[1:]]
    return None if not sizes or sizes[0] is None else int(sizes[0])


def _length(tensor: Any) -> int:
    """Length of the leading axis."""
    return int(tensor.shape[0].eval())
