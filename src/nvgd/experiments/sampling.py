"""Runs of an experiment, which Ctrl-C ends as a whole."""

from typing import Any

from nvgd.posterior.diagnostics.verdict import INTERRUPTED
from nvgd.posterior.posterior import Posterior
from nvgd.running import sampling


def sample(*arguments: Any, **options: Any) -> Posterior:
    """`nvgd.sample`, but Ctrl-C is raised: half a run must not count as a finished task."""
    posterior = sampling.sample(*arguments, **options)
    if posterior.status.startswith(INTERRUPTED):
        raise KeyboardInterrupt
    return posterior
