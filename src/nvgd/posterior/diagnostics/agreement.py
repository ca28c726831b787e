"""Agreement of independent ensembles: R-hat."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def r_hat(ensembles: Sequence[Float[np.ndarray, "_ k"]]) -> Float[np.ndarray, " k"]:
    """R̂ = √((W + B)/W) of every column, the larger of its values for location and spread.

    W is the mean variance within ensembles. B is the variance of the ensemble means minus W/n, its
    expectation for independent draws. Before that, columns are replaced by normal scores: of their
    ranks, for location, and of the ranks of their distances from the common median, for spread
    (Vehtari et al., 2021).
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    sizes = [len(ensemble) for ensemble in ensembles]
    pooled = np.concatenate([np.asarray(ensemble, np.float64) for ensemble in ensembles])
    folded = np.abs(pooled - np.median(pooled, axis=0))
    found = []
    for values in (pooled, folded):
        scores = ndtri((rankdata(values, axis=0) - 0.375) / (len(values) + 0.25))
        parts = np.split(scores, np.cumsum(sizes)[:-1])
        within = np.mean([part.var(axis=0, ddof=1) for part in parts], axis=0)
        between = np.var([part.mean(axis=0) for part in parts], axis=0, ddof=1)
        beyond = np.maximum(between - within / np.mean(sizes), 0.0)
        found.append(np.sqrt(1 + beyond / np.maximum(within, 1e-300)))
    return np.maximum(*found)
