"""Diagnosis of a run: checks, then the verdict."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from nvgd.posterior.chains import Chains
from nvgd.posterior.diagnostics.chain_checks import chain_checks
from nvgd.posterior.diagnostics.checks import Check, Evidence, Thresholds, gather
from nvgd.posterior.diagnostics.diagnosis import Diagnosis
from nvgd.posterior.diagnostics.trend import apart
from nvgd.posterior.diagnostics.verdict import (
    FAULTY_ROW,
    INTERRUPTED,
    MIN_PARTICLES,
    MISFITS,
    SHAPES,
    decide,
    stopped,
    too_few,
)
from nvgd.targets.models import Labels
from nvgd.targets.scores import Scores

# Largest number of coordinates whose autocorrelation is estimated.
MAX_WATCHED = 20
# Most draws of chains on which the identities are tested.
MAX_TESTED = 1024
# Where in every chain the draws are taken that are tested, and those that confirm an alarm.
FIRST_TESTED, THEN_TESTED = (0.5, 1.0), (0.25, 0.75)
# Fewest draws per chain of which some can confirm an alarm.
FEWEST_TO_CONFIRM = 4
# Fewest of them per dimension for measures of shape.
DRAWS_PER_DIMENSION = 8


def diagnose(
    particles: Float[np.ndarray, "n d"],
    chains: Chains | None,
    scores: Callable[[], tuple[np.ndarray, np.ndarray]],
    draws: Mapping[str, Any],
    history: Mapping[str, np.ndarray],
    *,
    status: str,
    notes: Sequence[str],
    num_kept: int,
    num_steps: int,
    method: str,
    names: Sequence[str],
    labels: Labels,
    replicates: Sequence[Float[np.ndarray, "_ d"]],
    density_error: float,
    faulty_row: Callable[[], int | None] = lambda: None,
) -> Diagnosis:
    """Implementation of `Posterior.diagnose`.

    Arguments:
        chains: the chains of the corrections; without them, the particles are diagnosed.
        scores: computes log densities and scores of the particles, from all data.
        draws: draws (chain, draw, …) in constrained space.
        names: names of the coordinates.
        labels: of the draws' axes.
        replicates: particles of independent runs.
        density_error: error of the log density that the chains used, in nats.
        faulty_row: number of a row whose log likelihood is not finite at the first particle.
    """
    if status.startswith(INTERRUPTED):
        notes = (status, *notes)
    elif status != "completed":
        return stopped(status)
    num_particles = len(particles)
    if num_particles < MIN_PARTICLES:
        return too_few(num_particles)
    if chains is None:
        log_densities, their_scores = scores()
    else:
        dim = particles.shape[1]
        particles, their_scores = (x.reshape(-1, dim) for x in (chains.positions, chains.scores))
        log_densities = chains.log_densities.ravel()
    num_faulty = int(np.sum(~np.asarray(Scores(log_densities, their_scores).is_finite)))
    if num_faulty == len(particles) and (row := faulty_row()) is not None:
        return stopped(f"{FAULTY_ROW} {row}.")
    if num_faulty:
        return stopped(
            f"the log density or its gradient is not finite at {num_faulty} of {len(particles)} "
            "particles."
        )
    if chains is None:
        rows = _independent(particles, log_densities, num_kept)
    else:
        rows = _rows_of_chains(chains, FIRST_TESTED)
    if len(rows) < MIN_PARTICLES:
        return too_few(len(rows))

    def evidence_of(rows: np.ndarray) -> Evidence:
        sample = particles[rows], their_scores[rows], log_densities[rows]
        number = num_particles // num_kept
        return gather(*sample, history, number, names, replicates, Thresholds())

    evidence = evidence_of(rows)
    # Further draws are a single chain, of independent draws.
    if chains is not None and len(chains.positions) > 1:
        found = chain_checks(chains, draws, names, labels, density_error)
        checks = {**found, **evidence.checks}
        if len(rows) < DRAWS_PER_DIMENSION * particles.shape[1]:
            # Witnesses fitted to so few draws raise false alarms; that the chains have mixed is
            # the better evidence.
            reason = "too few draws per dimension to tell"
            checks |= {name: _without_alarm(checks[name], reason) for name in SHAPES}
        doubtful = [name for name in MISFITS if name in checks and checks[name].is_alarm]
        is_mixed = not any(check.is_alarm for check in found.values())
        if is_mixed and doubtful and chains.positions.shape[1] >= FEWEST_TO_CONFIRM:
            # A dozen tests raise a false alarm now and then. Other draws have to confirm it.
            others = _rows_of_chains(chains, THEN_TESTED)
            again, reason = evidence_of(others).checks, "not confirmed by other draws"
            refuted = [name for name in doubtful if not again[name].is_alarm]
            checks |= {name: _without_alarm(checks[name], reason) for name in refuted}
        evidence = evidence._replace(checks=checks)
    return decide(evidence, len(rows), num_steps, method, notes)


def _without_alarm(check: Check, reason: str) -> Check:
    return dataclasses.replace(check, expected=f"{check.expected}; {reason}", is_alarm=False)


def _rows_of_chains(chains: Chains, places: Sequence[float]) -> np.ndarray:
    """Rows of nearly independent states: those of every chain at these places, as shares of it."""
    num_chains, length = chains.log_densities.shape
    rows = np.arange(num_chains * length).reshape(num_chains, length)
    if num_chains > 1:
        rows = rows[:, np.unique(np.minimum((length * np.array(places)).astype(int), length - 1))]
    return rows.ravel()[:: -(-rows.size // MAX_TESTED)]


def _independent(
    particles: Float[np.ndarray, "n d"], log_densities: Float[np.ndarray, " n"], num_kept: int
) -> np.ndarray:
    """Rows of nearly independent states of a thinned run; all rows without thinning."""
    rows = np.arange(len(particles)).reshape(num_kept, -1)
    if num_kept == 1:
        return rows[0]
    watched = np.concatenate([log_densities[:, None], particles[:, :MAX_WATCHED]], axis=1)
    series = np.asarray(watched, np.float64).reshape(*rows.shape, -1)
    return rows[:: -apart(series)].ravel()
