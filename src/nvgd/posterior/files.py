"""Reading posteriors from files."""

import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from nvgd._support.archives import read_archive
from nvgd._support.errors import InputError, check_kind
from nvgd.flow.stage import StageRecord
from nvgd.posterior.chains import Chains
from nvgd.posterior.posterior import Posterior
from nvgd.posterior.saving import GROUPS, KIND
from nvgd.targets.models import Labels
from nvgd.targets.target import Target


def load(path: str | os.PathLike[str], target: Target | None = None) -> Posterior:
    """Load a posterior that `Posterior.save` wrote.

    Arguments:
        path: the file.
        target: the sampled target, which predictions and comparisons with the model need; draws,
            summary, plots and history do not.

    Examples:
        >>> import tempfile
        >>> path = f"{tempfile.mkdtemp()}/banana.npz"
        >>> banana = nvgd.densities.Banana()
        >>> nvgd.sample(banana.log_density, nvgd.ULA(0.02), dim=2, num_steps=50).save(path)
        >>> nvgd.load(path).num_steps
        50
    """
    facts, arrays = read_archive(Path(path), KIND)
    groups: dict[str, dict[str, Any]] = {group: {} for group in (*GROUPS, "chains")}
    for name, values in arrays.items():
        group, _, rest = name.partition("/")
        if group in groups:
            groups[group][rest] = values
    particles = jnp.asarray(arrays["particles"])
    if target is not None:
        check_kind("target", target, Target, "Target(log_density, dim=2)")
        if target.dim != particles.shape[1]:
            raise InputError(
                f"target has {target.dim} coordinates, but {str(path)!r} holds particles with "
                f"{particles.shape[1]}."
            )
    stored = {
        "draws": {name: jnp.asarray(values) for name, values in groups.pop("draws").items()},
        "labels": Labels(facts.pop("dims"), facts.pop("coords")),
        "deterministics": tuple(facts.pop("deterministics", ())),
        **{name: arrays[name] for name in ("log_densities", "scores") if name in arrays},
    }
    stages = tuple(StageRecord(*stage) for stage in facts.pop("stages", ()))
    chains, notes = groups.pop("chains"), tuple(facts.pop("notes", ()))
    return Posterior(
        particles,
        **groups,
        **facts,
        notes=notes,
        chains=Chains(**chains) if chains else None,
        stages=stages,
        target=target,
        stored=stored,
    )
