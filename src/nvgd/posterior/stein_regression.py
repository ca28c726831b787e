"""Regression on functions with mean zero, with coefficients from other folds of the draws."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from nvgd.posterior.stein_features import along, quadratics

# Number of folds, for few and for many draws.
NUM_FOLDS, NUM_FOLDS_OF_MANY, MANY_DRAWS = 5, 3, 3000
# With fewer groups, each group is split into batches of consecutive draws.
FEWEST_GROUPS, MOST_BATCHES = 8, 32
# Fewest effective draws for quadratic control variates.
FEWEST_FOR_QUADRATICS = 50
# Largest number of control variates, as a share of the effective number of draws. Beyond it, linear
# ones are shrunk and quadratic ones are left out.
LARGEST_SHARE = 0.25
# The same for the squares of single coordinates, which add to the quadratics along a direction.
LARGEST_SHARE_OF_SQUARES = 0.125
# Largest number of multiplications in a regression with quadratic control variates.
MOST_WORK = 1e10
# A more complex estimate must lower the estimated error by a factor of 1 − max(this, 1/√groups).
LEAST_GAIN = 0.1


class DrawGroups:
    """Independent groups of draws, and folds of whole groups, for rows in `order`.

    Attributes:
        order: the order of the rows that sorts them by group.
        sizes: the number of draws in each group.
        starts: the first row of each group.
        weights: the share of each group among the draws.
        folds: the rows of each fold, as a slice.
        hurdle: the factor by which a more complex estimate must lower the error.
    """

    def __init__(self, groups: Int[np.ndarray, " m"]):
        self.order = np.argsort(groups, kind="stable")
        self.sizes = sizes = _sizes(groups)
        ends = np.cumsum(sizes)
        self.starts = ends - sizes
        self.weights = sizes / sizes.sum()
        num_folds = NUM_FOLDS if len(groups) < MANY_DRAWS else NUM_FOLDS_OF_MANY
        pieces = np.array_split(np.arange(len(sizes)), min(num_folds, len(sizes)))
        self.folds = [slice(self.starts[piece[0]], ends[piece[-1]]) for piece in pieces]
        self.hurdle = 1 - max(LEAST_GAIN, len(sizes) ** -0.5)

    def means_and_influences(
        self, values: Float[np.ndarray, "m k"], weights: Float[np.ndarray, " m"] | None = None
    ) -> Float[np.ndarray, "2 g k"]:
        """Means of the groups, and how each group influences the mean of all draws.

        Arguments:
            values: residuals of a regression, or any values.
            weights: the weight of each draw's residual in an influence; 1 if omitted.
        """
        means = self._means(values)
        if weights is None:
            return np.stack([means, means])
        centre = self.weights @ means
        return np.stack([means, centre + self._means(weights[:, None] * (values - centre))])

    def _means(self, values: Float[np.ndarray, "m k"]) -> Float[np.ndarray, "g k"]:
        if len(self.sizes) == len(values):
            return values
        return np.add.reduceat(values, self.starts, axis=0) / self.sizes[:, None]

    def mean_and_error(
        self, pair: Float[np.ndarray, "2 g k"]
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """Mean over all draws, and its standard error; NaN for a single group.

        The groups' means treat the coefficients of the folds as independent; their influences count
        the coefficients' covariances twice (as the jackknife does). The average of both variances
        is close to the truth, and rarely below it.
        """
        number = pair.shape[1]
        centres = np.einsum("g,agk->ak", self.weights, pair)
        if number == 1:
            return centres[0], np.full(centres[0].shape, np.nan)
        squares = np.einsum("g,agk->k", self.weights**2, (pair - centres[:, None]) ** 2) / 2
        return centres[0], np.sqrt(squares * number / (number - 1))

    def effective_number(self, values: Float[np.ndarray, "m d"]) -> float:
        """The number of independent draws whose means are as precise, for the median column."""
        errors = self.mean_and_error(self.means_and_influences(values))[1]
        has_spread = errors > 0
        if not has_spread.any():
            return float(len(values))
        numbers = values.var(axis=0)[has_spread] / errors[has_spread] ** 2
        return float(np.clip(np.median(numbers), len(self.sizes), len(values)))


def _sizes(groups: Int[np.ndarray, " m"]) -> Int[np.ndarray, " g"]:
    """The sizes of the groups in order, or of their batches if there are few groups."""
    m, sizes = len(groups), np.unique(groups, return_counts=True)[1]
    if len(sizes) >= FEWEST_GROUPS:
        return sizes
    wanted = np.clip(np.sqrt(m), FEWEST_GROUPS, MOST_BATCHES)
    numbers = np.ceil(wanted * sizes / m).astype(int)
    batches = [
        np.diff(np.arange(n + 1) * size // n) for n, size in zip(numbers, sizes, strict=True)
    ]
    joined = np.concatenate(batches)
    return joined[joined > 0]


def controlled_means(
    groups: DrawGroups,
    y: Float[np.ndarray, "m d"],
    t: Float[np.ndarray, "m d"],
    values: Float[np.ndarray, "m k"],
    num_directions: int,
) -> Iterator[Float[np.ndarray, "2 g k"]]:
    """Values minus what linear, then what linear and quadratic control variates explain.

    If there are too many products of coordinates for the draws, the quadratic ones are those along
    one direction per column, the gradient of its linear fit, and with enough draws the squares of
    single coordinates. The result is as in `DrawGroups.means_and_influences`.

    Arguments:
        y, t: standardised positions and scores.
        values: one column per function, with mean zero. Column i uses the direction of column i
            modulo `num_directions`.
        num_directions: number of directions.
    """
    dim, num_values = y.shape[1], values.shape[1]
    number = min(groups.effective_number(y), groups.effective_number(y**2))
    is_ample = dim <= LARGEST_SHARE * number

    def can_have(num_features: int, share: float) -> bool:
        work = len(y) * num_features * (num_features + num_values)
        return num_features <= share * number and work <= MOST_WORK

    is_full = can_have(dim * (dim + 3) // 2, LARGEST_SHARE)
    has_quadratics = is_ample and number >= FEWEST_FOR_QUADRATICS
    features = t
    if has_quadratics and (is_full or can_have(2 * dim, LARGEST_SHARE_OF_SQUARES)):
        features = np.concatenate([t, quadratics(y, t, is_full=is_full)], axis=1)
    # Ridge shrinkage for equal signal and noise, which is negligible with many draws.
    shrinkage = 1e-10 if is_ample else dim / number
    regression = _Regression(groups, features, values, shrinkage)
    linear = regression.coefficients(dim)
    yield groups.means_and_influences(regression.residuals(linear), regression.weights(dim))
    if not has_quadratics:
        return
    coefficients = regression.coefficients(features.shape[1])
    residuals = regression.residuals(coefficients)
    if not is_full:
        for fold, rows in enumerate(groups.folds):
            directions = linear[fold][:, :num_directions] / regression.sizes[:dim, None]
            directions /= np.maximum(np.linalg.norm(directions, axis=0), 1e-300)
            extra = along(directions, y, t)
            residuals[rows] -= regression.explained_further(fold, extra, coefficients[fold])
    yield groups.means_and_influences(residuals, regression.weights(features.shape[1]))


class _Regression:
    """Least squares with coefficients for each fold from the draws outside it.

    Arguments:
        groups: the folds.
        features: c, with mean zero under the target.
        values: v, one column per function.
        shrinkage: of the coefficients, relative to the number of draws and to features of size 1.
    """

    def __init__(
        self,
        groups: DrawGroups,
        features: Float[np.ndarray, "m p"],
        values: Float[np.ndarray, "m k"],
        shrinkage: float,
    ):
        sizes = np.sqrt(np.mean(features**2, axis=0))
        self.sizes = np.where(sizes > 0, sizes, 1.0)
        self._folds, self._values = groups.folds, values
        self._features = features = features / self.sizes
        self._products = self._outside(features)
        for product in self._products:
            product[np.diag_indices_from(product)] += shrinkage * len(features)
        self._with_values = self._outside(values)

    def _outside(self, right: Float[np.ndarray, "m k"]) -> list[Float[np.ndarray, "p k"]]:
        """For each fold, the sums of centred products with the features over the draws outside."""
        left = self._features
        parts = [left[rows].T @ right[rows] for rows in self._folds]
        lefts = [left[rows].sum(axis=0) for rows in self._folds]
        rights = [right[rows].sum(axis=0) for rows in self._folds]
        products = []
        for fold, rows in enumerate(self._folds):
            number = len(left) - (rows.stop - rows.start)
            sums = np.outer(sum(lefts) - lefts[fold], sum(rights) - rights[fold])
            products.append(sum(parts) - parts[fold] - sums / number)
        return products

    def coefficients(self, p: int) -> list[Float[np.ndarray, "p k"]]:
        """Coefficients of the first p features, for each fold."""
        pairs = zip(self._products, self._with_values, strict=True)
        return [np.linalg.solve(product[:p, :p], right[:p]) for product, right in pairs]

    def residuals(self, coefficients: list[np.ndarray]) -> Float[np.ndarray, "m k"]:
        """v − b·c, with the coefficients b of the draw's own fold."""
        p = len(coefficients[0])
        pairs = zip(self._folds, coefficients, strict=True)
        return self._values - np.concatenate([self._features[r, :p] @ b for r, b in pairs])

    def weights(self, p: int) -> Float[np.ndarray, " m"]:
        """By how much a residual changes the sum of all residuals, coefficients included.

        A draw's residual counts once by itself, and changes the coefficients of the other folds.
        """
        features = self._features[:, :p]
        weights = np.ones(len(features))
        for rows, product in zip(self._folds, self._products, strict=True):
            outside = np.delete(np.arange(len(features)), rows)
            change = np.linalg.solve(product[:p, :p], features[rows].sum(axis=0))
            effects = features[outside] @ change
            weights[outside] -= effects - effects.mean()
        return weights

    def explained_further(
        self, fold: int, extra: Float[np.ndarray, "m l"], coefficients: Float[np.ndarray, "p k"]
    ) -> Float[np.ndarray, "n k"]:
        """What one more feature per column explains of the values of a fold.

        By the theorem of Frisch, Waugh and Lovell, its coefficient is that of the values' residuals
        on the residuals of the extra feature, both from regressions on the common features. Column
        i of the values has the extra feature i modulo l.
        """
        rows, features = self._folds[fold], self._features
        outside = np.delete(np.arange(len(extra)), rows)
        centred = extra[outside] - extra[outside].mean(axis=0)
        with_features = features[outside].T @ centred
        of_extra = np.linalg.solve(self._products[fold], with_features)
        total = np.sum(centred**2, axis=0)
        rest = total - np.sum(with_features * of_extra, axis=0)
        is_new = rest > 1e-8 * total
        residuals = extra[rows] - features[rows] @ of_extra
        parts = []
        for first in range(0, self._values.shape[1], extra.shape[1]):
            columns = slice(first, first + extra.shape[1])
            common = np.sum(centred * self._values[outside, columns], axis=0)
            common -= np.sum(with_features * coefficients[:, columns], axis=0)
            parts.append(np.where(is_new, common / np.where(is_new, rest, 1.0), 0.0) * residuals)
        return np.concatenate(parts, axis=1)
