"""A 1-D regression whose uncertainty grows away from the data, as a figure.

python examples/network_regression.py [figure.png]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from nvgd.sklearn import BayesianNetworkRegressor


def main() -> None:
    """Fit, predict, draw."""
    path = sys.argv[1] if len(sys.argv) > 1 else "network_regression.png"
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-4.0, -1.0, 40), rng.uniform(1.5, 4.0, 40)])
    y = np.sin(1.5 * x) + 0.3 * x + 0.15 * rng.normal(size=80)
    regressor = BayesianNetworkRegressor((50,), activation="tanh", random_state=0)
    regressor.fit(x[:, None], y)

    grid = np.linspace(-8.0, 8.0, 400)
    found = regressor.predictive(grid[:, None], quantiles=(0.05, 0.25, 0.75, 0.95))
    figure, axes = plt.subplots(figsize=(8.0, 4.0), layout="constrained")
    for low, high, shade in ((0.05, 0.95, 0.2), (0.25, 0.75, 0.3)):
        label = f"{round(100 * (high - low))} % of new values"
        low, high = found.quantiles[low], found.quantiles[high]
        axes.fill_between(grid, low, high, color="#D55E00", alpha=shade, linewidth=0, label=label)
    axes.plot(grid, found.mean, color="#D55E00", label="mean of all networks")
    noise = np.sqrt(found.aleatoric)
    axes.plot(
        grid, found.mean + noise, "--", color="#444444", linewidth=1, label="± noise (aleatoric sd)"
    )
    axes.plot(grid, found.mean - noise, "--", color="#444444", linewidth=1)
    axes.plot(x, y, "k.", markersize=4, label="data")
    axes.set(xlabel="x", ylabel="y", xlim=(-8, 8), ylim=(-3, 3))
    axes.legend(loc="upper left", fontsize=8, ncols=2)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
