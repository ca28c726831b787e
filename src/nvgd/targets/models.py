"""What a model knows beyond its log density: prior, predictions, data, labels."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from nvgd._support.errors import InputError, check_callable, first_line

# Every function of a model takes and gives positions with a leading axis that counts particles.
Positions = PyTree
Arrays = dict[str, Array]


class Labels(NamedTuple):
    """Names for the axes of what a model outputs, and for the entries along them."""

    dims: Mapping[str, Sequence[str]]
    coords: Mapping[str, Sequence[Any]]


class AbstractModel(eqx.Module):
    """The side of a model that a `Posterior` shows; a method returns None for what is not known."""

    @abstractmethod
    def draw_prior(self, key: PRNGKeyArray, num: int) -> Positions | None:
        """`num` positions drawn from the prior."""

    @abstractmethod
    def draw_start(self, key: PRNGKeyArray, num: int) -> Positions | None:
        """`num` positions as the model's own package would start from."""

    @abstractmethod
    def predict(self, key: PRNGKeyArray, positions: Positions, *args, **kwargs) -> Arrays | None:
        """One draw of new data for every position."""

    @abstractmethod
    def log_likelihoods(self, positions: Positions) -> Arrays | None:
        """Log likelihood of every datum at every position, under the data's names."""

    @abstractmethod
    def observed(self) -> dict[str, np.ndarray] | None:
        """The data, under their names."""

    @abstractmethod
    def labels(self) -> Labels:
        """Names of axes and of entries along them; empty where there are none."""


class Model(AbstractModel):
    """What you know about a model that is given by a log density of your own.

        Target(log_density, dim=2, model=Model(prior=lambda key, n: jax.random.normal(key, (n, 2))))

    Arguments:
        prior: `(key, n) -> positions`, draws from the prior in the form that the log density
            takes, with a leading axis n; for `sample(initial="prior")`.
        predict: `(position, key, *args) -> array or dictionary`, one draw of new data at one
            position; for `posterior.predict(*args)`.
        dims: for an output's name, the names of its axes, as ArviZ has them.
        coords: for an axis's name, the labels along it.
    """

    prior: Callable[[PRNGKeyArray, int], Positions] | None
    prediction: Callable[..., Any] | None
    # Tuples, not dictionaries: they are hashed when the module passes through `jit`.
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
        """Draws by the user's function."""
        return None if self.prior is None else self.prior(key, num)

    def draw_start(self, key, num):
        """Not known: the library starts as it does for a bare log density."""
        del key, num

    def predict(self, key, positions, *args, **kwargs):
        """The user's function, with a key of its own for every position."""
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
        """Not known here: a `Target` with data has its own."""
        del positions

    def observed(self):
        """Not known here: a `Target` with data has its own."""

    def labels(self):
        """The user's."""
        return Labels(dict(self.dims), dict(self.coords))


def _frozen(
    name: str, labels: Mapping[str, Sequence[Any]] | None
) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """A mapping of names to labels as tuples of plain values."""
    try:
        return (
            tuple((key, tuple(np.asarray(value).tolist())) for key, value in labels.items())
            if labels
            else ()
        )
    except (AttributeError, TypeError):
        raise InputError(f"{name} must map names to lists of labels, got {labels!r}.") from None
