"""Models: prior, predictions, data and labels that go with a log density."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from nvgd._support.errors import InputError, check_callable, first_line

# Methods of a model take and return positions with a leading axis that counts particles.
Positions = PyTree
Arrays = dict[str, Array]


class Labels(NamedTuple):
    """Dimension names and coordinate labels of a model's outputs, as in ArviZ."""

    dims: Mapping[str, Sequence[str]]
    coords: Mapping[str, Sequence[Any]]


class AbstractModel(eqx.Module):
    """The parts of a model that a `Posterior` uses; methods return None for unknown parts."""

    @abstractmethod
    def draw_prior(self, key: PRNGKeyArray, num: int) -> Positions | None:
        """`num` positions drawn from the prior."""

    @abstractmethod
    def draw_start(self, key: PRNGKeyArray, num: int) -> Positions | None:
        """`num` starting positions, drawn as the model's own package draws them."""

    @abstractmethod
    def predict(self, key: PRNGKeyArray, positions: Positions, *args, **kwargs) -> Arrays | None:
        """One draw of new data per position."""

    @abstractmethod
    def log_likelihoods(self, positions: Positions) -> Arrays | None:
        """Log likelihood of each datum at each position, by the names of the data."""

    @abstractmethod
    def observed(self) -> dict[str, np.ndarray] | None:
        """The observed data, by name."""

    @abstractmethod
    def labels(self) -> Labels:
        """Dimension names and coordinate labels; empty if there are none."""

    @property
    def has_symmetries(self) -> bool:
        """Whether permuting parameters leaves the model unchanged, as for the units of a network.

        Chains cannot mix over all equivalent modes, so runs have no corrections.
        """
        return False

    def deterministics(self) -> tuple[str, ...]:
        """Names of outputs that are functions of other outputs; none by default."""
        return ()


class Model(AbstractModel):
    """A model given by your own functions, to go with a `Target`.

        Target(log_density, dim=2, model=Model(prior=lambda key, n: jax.random.normal(key, (n, 2))))

    Arguments:
        prior: `(key, n) -> positions`, n draws from the prior in the form that the log density
            takes, with a leading axis n; for `sample(initial="prior")`.
        predict: `(position, key, *args) -> array or dictionary`, one draw of new data at one
            position; for `posterior.predict(*args)`.
        dims: maps the name of an output to the names of its axes, as in ArviZ.
        coords: maps the name of an axis to the labels along it, as in ArviZ.

    Examples:
        >>> target = nvgd.Target(
        ...     lambda x: -0.5 * jnp.sum(x**2),
        ...     dim=2,
        ...     model=nvgd.Model(
        ...         prior=lambda key, num: jax.random.normal(key, (num, 2)),
        ...         predict=lambda x, key: x.sum() + jax.random.normal(key),
        ...     ),
        ... )
        >>> posterior = nvgd.sample(target, nvgd.ULA(0.1), initial="prior", num_steps=50)
        >>> posterior.predict()["prediction"].shape
        (1, 256)
    """

    prior: Callable[[PRNGKeyArray, int], Positions] | None
    prediction: Callable[..., Any] | None
    # Tuples, not dictionaries, because static fields are hashed under `jit`.
    dims: tuple[tuple[str, tuple[str, ...]], ...] = eqx.field(static=True)
    coords: tuple[tuple[str, tuple[Any, ...]], ...] = eqx.field(static=True)

    def __init__(
        self,
        *,
        prior: Callable[[PRNGKeyArray, int], Positions] | None = None,
        predict: Callable[..., Any] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
    ):
        check_callable("prior", prior, optional=True)
        check_callable("predict", predict, optional=True)
        self.prior, self.prediction = prior, predict
        self.dims = _frozen("dims", dims)
        self.coords = _frozen("coords", coords)

    def draw_prior(self, key, num):
        """Draws from the user's `prior`."""
        return None if self.prior is None else self.prior(key, num)

    def draw_start(self, key, num):
        """None: the run starts as for a bare log density."""
        del key, num

    def predict(self, key, positions, *args, **kwargs):
        """Evaluate the user's `predict` with one key per position."""
        prediction = self.prediction
        if prediction is None:
            return None
        keys = jax.random.split(key, len(jax.tree.leaves(positions)[0]))
        try:
            shown = jax.vmap(lambda at, its_key: prediction(at, its_key, *args, **kwargs))(
                positions, keys
            )
        except Exception as error:
            raise InputError(
                f"predict could not be evaluated with these arguments: {first_line(error)}"
            ) from error
        return shown if isinstance(shown, dict) else {"prediction": shown}

    def log_likelihoods(self, positions):
        """None: a `Target` with data computes its own."""
        del positions

    def observed(self):
        """None: a `Target` with data returns its own."""

    def labels(self):
        """The user's `dims` and `coords`."""
        return Labels(dict(self.dims), dict(self.coords))


def _frozen(
    name: str, labels: Mapping[str, Sequence[Any]] | None
) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """A mapping from names to labels as nested tuples."""
    try:
        return (
            tuple((key, tuple(np.asarray(value).tolist())) for key, value in labels.items())
            if labels
            else ()
        )
    except (AttributeError, TypeError):
        raise InputError(f"{name} must map names to lists of labels, got {labels!r}.") from None
