"""What the estimators share: settings, fit, files."""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nvgd._support.archives import (
    archive_path,
    arrays_to_tree,
    read_archive,
    tree_to_arrays,
    write_archive,
)
from nvgd._support.errors import InputError, check_choice, check_count, check_fraction
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.frontends.networks.from_network import from_network
from nvgd.frontends.networks.prediction import Prediction
from nvgd.frontends.networks.priors import PRIORS
from nvgd.frontends.sklearn.packages import (
    BaseEstimator,
    check_is_fitted,
    check_random_state,
    validate_data,
)
from nvgd.frontends.sklearn.training import ACTIVATIONS, Settings, network_of, train
from nvgd.targets.target import Target

KIND = "network_estimator"
# Settings that files hold; a flow or a random generator of the user's cannot be written.
PLAIN = (bool, int, float, str, type(None))
EARLY_STOPPING_ROWS = 1000


class BayesianNetworkEstimator(ABC, BaseEstimator):
    """What regressor and classifier share: settings, fit, files."""

    def __init__(
        self,
        hidden_layer_sizes=(50,),
        *,
        activation="relu",
        prior="normal",
        num_particles=100,
        batch_size="auto",
        max_steps=2000,
        early_stopping="auto",
        validation_fraction=0.1,
        patience=2,
        flow=None,
        progress=False,
        random_state=None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.prior = prior
        self.num_particles = num_particles
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.flow = flow
        self.progress = progress
        self.random_state = random_state

    def _check_settings(self) -> None:
        sizes = np.atleast_1d(np.asarray(self.hidden_layer_sizes, dtype=object))
        for size in sizes:
            check_count("hidden_layer_sizes", size)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_count("num_particles", self.num_particles, minimum=2)
        check_count("max_steps", self.max_steps)
        check_count("patience", self.patience)
        check_fraction("validation_fraction", self.validation_fraction)
        if self.early_stopping not in (True, False, "auto"):
            raise InputError(
                f'early_stopping must be True, False or "auto", got {self.early_stopping!r}.'
            )
        if self.batch_size != "auto" and self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        if self.flow is not None and not isinstance(self.flow, ParticleFlow):
            raise InputError(f"flow must be a flow such as nvgd.NVGD(), got {self.flow!r}.")

    def _target(self, x: np.ndarray, y: np.ndarray, batch_size: int | None) -> Target:
        """The posterior over networks of these settings."""
        sizes = tuple(int(size) for size in np.atleast_1d(np.asarray(self.hidden_layer_sizes)))
        network = network_of(x.shape[1], sizes, self._num_outputs(), self.activation)
        return from_network(
            network,
            data=(x, y),
            likelihood=self._likelihood(),
            prior=self.prior,
            batch_size=batch_size,
        )

    def _fit(self, x: Any, y: np.ndarray) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        stops = self.early_stopping
        if stops == "auto":
            stops = len(x) >= EARLY_STOPPING_ROWS
        settings = Settings(
            num_particles=self.num_particles,
            batch_size=self.batch_size,
            max_steps=self.max_steps,
            validation_fraction=self.validation_fraction if stops else None,
            patience=self.patience,
            flow=self.flow,
            progress=bool(self.progress),
            seed=seed,
        )
        trained = train(self._target, x, y, settings)
        target = trained.posterior.target
        assert target is not None
        positions = jnp.asarray(trained.posterior.flat_positions)
        self.posterior_ = trained.posterior
        self.validation_scores_ = trained.validation_scores
        self.n_iter_ = trained.num_steps
        self.positions_ = jax.tree.map(np.asarray, jax.vmap(target.structure)(positions))
        self.model_ = _with_two_rows(target.model)

    @abstractmethod
    def _likelihood(self) -> str:
        """Name of the likelihood."""

    @abstractmethod
    def _num_outputs(self) -> int:
        """Number of outputs of the network."""

    @abstractmethod
    def _template(self) -> tuple[np.ndarray, np.ndarray]:
        """Two rows with which a target of the fitted shape can be built."""

    def predictive(self, X, **options) -> Prediction:
        """The whole predictive distribution, as `posterior.predict(X)` returns it.

        Arguments:
            X: rows.
            options: `y`, `quantiles`, `samples` and `rows_at_once` of `predict`.
        """
        check_is_fitted(self)
        x = validate_data(self, X, reset=False)
        return self.model_.predict(jax.random.key(0), self.positions_, x, **options)

    def __getstate__(self):
        # A posterior holds the functions that continue its run, which cannot be pickled.
        state: Any = dict(cast(Any, super().__getstate__()))
        state.pop("posterior_", None)
        return state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file, without pickle; `load` reads it."""
        check_is_fitted(self)
        settings = {
            name: _written(name, value) for name, value in self.get_params(deep=False).items()
        }
        facts = {"class": type(self).__name__, "settings": settings, **self._facts()}
        arrays = tree_to_arrays(self.model_, "model") | tree_to_arrays(self.positions_, "positions")
        write_archive(archive_path(path), KIND, facts, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Any:
        """Read an estimator that `save` wrote."""
        facts, arrays = read_archive(Path(path), KIND)
        if facts["class"] != cls.__name__:
            raise InputError(f"{str(path)!r} holds a {facts['class']}: call its load instead.")
        settings = facts["settings"]
        sizes, prior = settings["hidden_layer_sizes"], settings["prior"]
        settings["hidden_layer_sizes"] = tuple(sizes) if isinstance(sizes, list) else sizes
        if isinstance(prior, dict):
            settings["prior"] = PRIORS[prior["name"]](scale=prior["scale"])
        estimator = cls(**settings)
        estimator._restore_facts(facts)
        target = estimator._target(*estimator._template(), None)
        model: Any = target.model
        num = int(arrays["positions/0"].shape[0])
        like = jax.eval_shape(lambda key: model.draw_start(key, num), jax.random.key(0))
        estimator.model_ = arrays_to_tree(_with_two_rows(model), arrays, "model")
        estimator.positions_ = jax.tree.map(np.asarray, arrays_to_tree(like, arrays, "positions"))
        return estimator

    def _facts(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return {
            "num_features": int(self.n_features_in_),
            "feature_names": None if names is None else [str(name) for name in names],
            "num_steps": int(self.n_iter_),
        }

    def _restore_facts(self, facts: dict[str, Any]) -> None:
        self.n_features_in_ = facts["num_features"]
        self.n_iter_ = facts["num_steps"]
        if facts["feature_names"] is not None:
            self.feature_names_in_ = np.array(facts["feature_names"], dtype=object)


def _with_two_rows(model: Any) -> Any:
    """The model with two rows of its data, from which it reads shapes and types."""
    few = {name: values[:2] for name, values in model.data.items()}
    return eqx.tree_at(lambda model: model.data, model, few)


def _written(name: str, value: Any) -> Any:
    """A setting as files hold it."""
    if isinstance(value, tuple):
        return list(value)
    for prior_name, prior in PRIORS.items():
        if type(value) is prior:
            return {"name": prior_name, "scale": value.scale}
    if not isinstance(value, (*PLAIN, list)):
        raise InputError(
            f"{name} must be a plain value to be written to a file, got {value!r}: call "
            f"set_params({name}=None) before save, since predictions do not need it."
        )
    return value
