"""What a network's posterior knows beyond its density: prior draws, start, predictions."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nvgd._support.errors import InputError, check_fraction
from nvgd.frontends.networks.density import BayesianNetwork
from nvgd.frontends.networks.prediction import predict_in_chunks
from nvgd.frontends.networks.scaling import Scaling
from nvgd.targets.models import AbstractModel, Labels


class NetworkModel(AbstractModel):
    """Prior, start and predictions of a network.

    Arguments:
        network: the network with its prior and likelihood.
        inputs: how inputs were standardised.
        data: inputs and targets as the network sees them.
    """

    network: BayesianNetwork
    inputs: Scaling
    data: dict[str, Array]

    @property
    def has_symmetries(self):
        """Units of a layer can be exchanged."""
        return True

    def draw_prior(self, key, num):
        """Draws of parameters and noise from the prior."""
        return self.network.draw(key, num)

    def draw_start(self, key, num):
        """Draws from the prior, which is scaled as networks are initialised."""
        return self.network.draw(key, num)

    def predict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        key,
        positions,
        x=None,
        *,
        y=None,
        quantiles=(0.05, 0.5, 0.95),
        samples=True,
        rows_at_once=None,
    ) -> Any:
        """A `Prediction` for rows `x`; without `x`, draws of y for the data.

        Arguments:
            x: rows as in the data, in the same units.
            y: observed targets, to evaluate the log predictive density of.
            quantiles: levels between 0 and 1.
            samples: whether to draw y.
            rows_at_once: number of rows to evaluate at a time; chosen by memory if omitted.
        """
        targets, levels = None, tuple(quantiles)
        if x is None:
            rows, levels, samples = self.data["x"], (), True
        else:
            rows = self.checked_inputs(x)
            for level in levels:
                check_fraction("quantiles", level)
            targets = None if y is None else self._checked_targets(y, len(rows))
        prediction = predict_in_chunks(
            self.network,
            positions,
            rows,
            y=targets,
            levels=levels,
            samples=bool(samples),
            rows_at_once=rows_at_once,
            key=key,
        )
        return {"y": jnp.asarray(prediction.samples)} if x is None else prediction

    def checked_inputs(self, x: Any) -> np.ndarray:
        """Rows in standardised units."""
        x = finite_rows("x", x)
        like = self.data["x"]
        if x.shape[1:] != like.shape[1:]:
            raise InputError(
                f"x must have rows of shape {like.shape[1:]}, as the data have, got an array of "
                f"shape {x.shape}."
            )
        return self.inputs.standardise(x) if like.dtype.kind == "f" else x

    def _checked_targets(self, y: Any, num_rows: int) -> np.ndarray:
        y, like = np.asarray(y), self.data["y"]
        if y.shape != (num_rows, *like.shape[1:]):
            raise InputError(
                f"y must have shape {(num_rows, *like.shape[1:])}, one target per row of x, got "
                f"{y.shape}."
            )
        scaling = self.network.targets
        return scaling.standardise(y) if like.dtype.kind == "f" else y.astype(np.int32)

    def log_likelihoods(self, positions):
        """None: the target computes them from its data."""
        del positions

    def observed(self):
        """None: the target returns its data."""

    def labels(self):
        """None to show."""
        return Labels({}, {})


def finite_rows(name: str, values: Any) -> np.ndarray:
    """An array of numbers with one row per datum; refuse NaN, infinity and other things."""
    values = np.asarray(values)
    if values.dtype.kind not in "buif" or values.ndim < 2 or not values.size:
        raise InputError(
            f"{name} must be an array of numbers with axes (row, feature, …), got {values.dtype} "
            f"of shape {values.shape}" + _way_out(values)
        )
    is_faulty = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if is_faulty.any():
        raise InputError(
            f"{name} must hold finite numbers only, but {int(is_faulty.sum())} of its "
            f"{len(values)} rows hold NaN or infinity, first row {int(np.argmax(is_faulty))}: drop "
            "or impute them."
        )
    return values


def _way_out(values: np.ndarray) -> str:
    """How to make an array of numbers with two axes of these values."""
    if not values.size:
        return ": there must be at least one row and one feature."
    if values.ndim == 1:
        return "; write x[:, None]."
    return "; write x.astype(float)." if values.dtype.kind == "O" else "."
