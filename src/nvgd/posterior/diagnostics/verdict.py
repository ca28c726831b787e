"""Verdict on a run from its checks, with a reason and advice."""

from collections.abc import Sequence

from nvgd.posterior.diagnostics.chain_checks import (
    CUT_OFF,
    DENSITY,
    MIXING,
    OUTSIDE,
    RISE,
    TAILS,
)
from nvgd.posterior.diagnostics.checks import Check, Evidence
from nvgd.posterior.diagnostics.diagnosis import Diagnosis, Verdict

# Parts of the status of a run that was stopped from outside, at particles that are good.
INTERRUPTED = "stopped by Ctrl-C"
RAISED = "raised an error"
# Part of the status of a run that a row of the data stopped.
FAULTY_ROW = "log_likelihood is not finite for data row"
# Parts of notes on runs whose particles cannot be taken for the whole posterior.
OTHER_MODE = "end in another mode"
UNCORRECTED = "without corrections"

# With fewer particles, deviations of identities cannot be distinguished from noise.
MIN_PARTICLES = 8

# A variance ratio below this belongs to a density that does not fall off.
FLAT = 0.2

# With fewer accepted jumps, particles hardly change from one mode to another.
FEW_JUMPS = 0.002

# Further steps are advised up to this multiple of those taken, where at least FEWEST_STEPS count.
MOST_MORE, FEWEST_STEPS = 9, 200
# Further steps that are advised at least, as a multiple of those taken.
LONGER = 3

RATIOS = ("variance ratio", "variance ratio by direction", "variance ratio by coordinate")
SHAPES = ("held-out Stein discrepancy", "kernelised Stein discrepancy")
# Checks of draws by their scores.
MISFITS = ("mean score", *RATIOS, *SHAPES)


def decide(
    evidence: Evidence,
    num_particles: int,
    num_steps: int,
    method: str,
    notes: Sequence[str] = (),
) -> Diagnosis:
    """The verdict on particles, or draws of chains, with finite scores."""
    checks, alarms = evidence.checks, {n for n, c in evidence.checks.items() if c.is_alarm}
    cautions = (*notes, *_cautions(evidence, num_particles))

    def diagnosis(verdict: Verdict, reason: str, advice: str) -> Diagnosis:
        doubts = [note for note in notes if OTHER_MODE in note or UNCORRECTED in note]
        if verdict == "converged" and doubts:
            verdict = "multimodal disagreement" if OTHER_MODE in doubts[0] else "not yet"
            reason, advice = f"{doubts[0]}.", "Give the target no batch_size, or larger batches."
        return Diagnosis(verdict, reason, advice, checks, cautions)

    if MIXING in checks:
        return diagnosis(*_of_chains(evidence, num_particles, num_steps))
    ratio = next((checks[name] for name in RATIOS if name in alarms), None)
    misfits = alarms & {"mean score", *RATIOS, *SHAPES}
    is_moving = "drift of the log density" in alarms
    if "distinct particles" in alarms:
        return diagnosis(
            "variance too small",
            f"only {checks['distinct particles'].value:.0f} of {num_particles} particles are "
            "distinct.",
            "Start anew with particles that differ (initial=), or use a method with repulsion: "
            "NVGD().",
        )
    if misfits and (is_moving or evidence.moved < 1.0):
        return diagnosis("not yet", *_not_yet(evidence, num_steps))
    shift = checks["mean score"]
    is_beside = shift.is_alarm and (
        # A shifted ensemble also has wrong ratios: the more significant of the two decides.
        ratio is None or abs(shift.significance) > abs(ratio.significance)
    )
    if is_beside:
        return diagnosis(
            "not yet",
            f"the particles lie beside the target: the mean score along {shift.where} is "
            f"{shift.value:.2g} ± {shift.error:.1g} where 0 belongs.",
            _longer(num_steps, LONGER * num_steps),
        )
    if "stray particles" in alarms:
        return diagnosis(
            "diverged",
            f"{checks['stray particles'].value:.0f} of {num_particles} particles lie where the log "
            "density is far too low for any draw.",
            "Start nearer (initial='laplace'), take more particles, or use all data at once, so "
            "that corrections bring them back.",
        )
    if ratio is not None and ratio.value < 1:
        where = f" along {ratio.where}" if ratio.where else ""
        return diagnosis(
            "variance too small",
            f"−E[(x−μ)·∇log p]{where} is {ratio.value:.2g} ± {ratio.error:.1g} where 1 belongs: "
            "the particles are too close together.",
            _widen(method),
        )
    if ratio is not None:
        where = f" along {ratio.where}" if ratio.where else ""
        return diagnosis(
            "diverged",
            f"−E[(x−μ)·∇log p]{where} is {ratio.value:.3g} ± {ratio.error:.1g} where 1 belongs: "
            "the particles are spread wider than the target and do not draw together.",
            "Take a step size three times smaller, or NVGD() without num_steps, whose corrections "
            "keep the target.",
        )
    if "R-hat" in alarms:
        return diagnosis(*_disagreement(checks["R-hat"]))
    if misfits:
        shape = next(name for name in SHAPES if name in misfits)
        return diagnosis(
            "not yet",
            f"location and variances fit, the shape does not: the {shape} is "
            f"{checks[shape].value:.3g}, expected {checks[shape].expected}.",
            _longer(num_steps, LONGER * num_steps) + " If that does not help, take more particles.",
        )
    if is_moving:
        return diagnosis("not yet", *_not_yet(evidence, num_steps))
    return diagnosis(
        "converged",
        "location, variances and shape fit the scores as well as independent draws would.",
        f"Use it. With {num_particles} particles, an error of all variances by less than "
        f"{100 * evidence.resolution:.0f} % would not have been noticed.",
    )


def _of_chains(evidence: Evidence, num_draws: int, num_steps: int) -> tuple[Verdict, str, str]:
    """Verdict, reason and advice for a run with corrections."""
    checks, alarms = evidence.checks, {n for n, c in evidence.checks.items() if c.is_alarm}
    is_mixed = not alarms & {MIXING, TAILS, OUTSIDE}
    ratio = checks["variance ratio by coordinate"]
    if not is_mixed and ratio.is_alarm and ratio.value < FLAT:
        return (
            "improper",
            f"the chains spread without end: −E[(x−μ)·∇log p] along {ratio.where} is "
            f"{ratio.value:.2g} where 1 belongs, so that the density does not fall off there.",
            "Give every parameter a proper prior, and check that the data determine those that "
            "have none.",
        )
    if not is_mixed and RISE in alarms:
        return (
            "improper",
            "the log density of the chains rises without end: it is not bounded.",
            "Check the model where scales tend to zero, and give them priors that exclude it.",
        )
    if not is_mixed:
        if alarms & {MIXING, TAILS}:
            worst = checks[MIXING if MIXING in alarms else TAILS]
            reason = f"R-hat of {worst.where} is {worst.value:.3g}, expected {worst.expected}."
        else:
            worst = checks[OUTSIDE]
            reason = f"{worst.value:.0f} never left the extreme 2 % of {worst.where}."
        return (
            "not yet",
            f"the chains have not mixed: {reason}",
            f"Allow more steps: max_steps={4 * num_steps}, without num_steps. If that does not "
            "help, write the model so that it has no narrow region there: effects in units of "
            "their scale (non-centred), other units, a tighter prior.",
        )
    if DENSITY in alarms:
        return (
            "not yet",
            "the rows that stand for all data give log densities that are off by "
            f"{checks[DENSITY].value:.2g} nats, expected {checks[DENSITY].expected}.",
            f"Allow more steps: max_steps={4 * num_steps}, without num_steps. Later rounds use "
            "more rows. Or take larger batches.",
        )
    if "R-hat" in alarms:
        return _disagreement(checks["R-hat"])
    misfits = alarms & {"stray particles", *MISFITS}
    if misfits:
        name = sorted(misfits)[0]
        where = f" along {checks[name].where}" if checks[name].where else ""
        return (
            "not yet",
            f"the chains have mixed, but their draws do not fit the scores: the {name}{where} is "
            f"{checks[name].value:.3g}, expected {checks[name].expected}.",
            "Check the log density for rounding (jax_enable_x64) and its gradient for jumps, such "
            "as those of where, abs and rounding functions. If it ends at a bound, write it in "
            "unconstrained coordinates (log of a scale, logit of a probability).",
        )
    if CUT_OFF in alarms:
        tail = checks[CUT_OFF]
        what = "avoid a region that belongs to" if tail.value > 0 else "stay too often in"
        return (
            "not yet",
            f"the chains agree, but {what} the posterior: by the scores, the density at the end of "
            f"the {tail.where} (unconstrained) is {tail.value:.2g} ± {tail.error:.1g}, expected 0.",
            f"Allow more steps: max_steps={4 * num_steps}, without num_steps. If that does not "
            "help, write the model so that it has no narrow region there: effects in units of "
            "their scale (non-centred).",
        )
    return (
        "converged",
        "the chains have mixed, in the tails too, and location, variances and shape fit the "
        "scores.",
        f"Use it. {num_draws} draws were tested.",
    )


def _disagreement(worst: Check) -> tuple[Verdict, str, str]:
    return (
        "multimodal disagreement",
        f"ensembles from different starts disagree (R-hat of {worst.where} is {worst.value:.3g}) "
        "though each one fits the scores where it is: there are several modes.",
        "Do not average over them: start wider (initial='prior'), and compare the modes one by "
        "one.",
    )


def stopped(status: str) -> Diagnosis:
    """The verdict on a run that stopped early, or whose scores are not finite."""
    if RAISED in status:
        return Diagnosis("not yet", status, "Mend the log density, then run again.", {})
    if FAULTY_ROW in status:
        advice = "Look for missing or impossible values there, and leave such rows out."
        return Diagnosis("diverged", status, advice, {})
    return Diagnosis(
        "diverged",
        status,
        "Take a step size ten times smaller, or start nearer with initial='laplace'.",
        {},
    )


def too_few(num_particles: int) -> Diagnosis:
    """The verdict on too few particles for any measure."""
    return Diagnosis(
        "not yet",
        f"{num_particles} particles are too few to tell.",
        f"Take {MIN_PARTICLES} particles or more; 100 are usual.",
        {},
    )


def _not_yet(evidence: Evidence, num_steps: int) -> tuple[str, str]:
    if evidence.trend is None or evidence.moved < 1.0:
        # Small random moves add up as the root of their number.
        more = int(num_steps / max(evidence.moved, 1e-9) ** 2)
        return (
            f"the particles have moved by at most {evidence.moved:.2g} times their own spread.",
            _longer(num_steps, max(more, LONGER * num_steps)) + " Or take larger steps.",
        )
    drift = evidence.checks["drift of the log density"]
    return (
        f"the mean log density still changed by {drift.value:.2g} ± {drift.error:.1g} over the "
        "last quarter of the run.",
        _longer(num_steps, max(evidence.trend.num_steps_more, LONGER * num_steps)),
    )


def _longer(num_steps: int, more: int) -> str:
    if more > MOST_MORE * max(num_steps, FEWEST_STEPS):
        return (
            "At this rate the run would take too long: take NVGD() without num_steps, which ends "
            "when its chains have mixed."
        )
    return f"Run about {more} steps more: num_steps={num_steps + more}."


def _widen(method: str) -> str:
    if method == "SVGD":
        return (
            "SVGD loses variance as dimension grows: take NVGD() without num_steps, or several "
            "times more particles."
        )
    if method in ("ULA", "SGLD"):
        return "Run longer: the particles have not spread over the target yet."
    return "Take more particles (four per dimension or more) and more steps."


def _cautions(evidence: Evidence, num_particles: int) -> tuple[str, ...]:
    cautions = []
    if "R-hat" not in evidence.checks:
        cautions.append(
            "A separate mode that neither the particles nor the search for modes found would be "
            "missed: diagnose(num_replicates=3) compares whole runs from other starts."
        )
    jumps = evidence.checks.get("share of accepted jumps")
    if jumps is not None and jumps.value < FEW_JUMPS:
        cautions.append(
            f"Only {jumps.value:.1%} of the jumps were accepted: separate modes, if there are any, "
            "may have wrong weights."
        )
    if num_particles < 50:
        cautions.append("With fewer than 50 particles only gross errors are seen.")
    for name in evidence.checks:
        if name.startswith("share of") and evidence.checks[name].is_alarm:
            cautions.append(
                f"The {name} is {evidence.checks[name].value:.0%}: the run was still far from rest."
            )
    return tuple(cautions)
