# %% [markdown]
# # A Bayesian network, from scikit-learn
#
# A neural network fits a curve through points, but does not say where it is guessing. A hundred networks drawn from the
# posterior do: where there are no data, they disagree. You will fit them with scikit-learn's interface.
#
# This needs `pip install "nvgd[sklearn]"`.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from nvgd.sklearn import BayesianNetworkRegressor

random = np.random.default_rng(0)
x = random.uniform(-3, 1.5, (300, 1))
y = np.sin(2 * x[:, 0]) + 0.15 * random.normal(size=300)
x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)

# %% [markdown]
# `fit` standardises inputs and targets, samples the posterior of 100 networks of 50 units, and keeps them.

# %%
regressor = BayesianNetworkRegressor(
    (50,), activation="tanh", max_steps=600, random_state=0, progress=False
)
regressor.fit(x_train, y_train)
print("R² on test rows:", round(regressor.score(x_test, y_test), 3))

# %% [markdown]
# ## How sure is it?
#
# `predict_interval` gives intervals for new observations, which include both the disagreement of the networks and the
# noise. About nine in ten test rows should lie within the 90 % interval.

# %%
low, high = regressor.predict_interval(x_test, 0.9).T
print(
    "test rows within the interval:", np.mean((low < y_test) & (y_test < high)).round(2)
)

grid = np.linspace(-5, 5, 200)[:, None]
mean, sd = regressor.predict(grid, return_std=True)
low, high = regressor.predict_interval(grid, 0.9).T
plt.fill_between(grid[:, 0], low, high, alpha=0.25, label="90 % interval")
plt.plot(grid[:, 0], mean, label="mean")
plt.plot(x_train[:, 0], y_train, "k.", markersize=3, label="training rows")
plt.xlabel("x")
plt.ylabel("y")
plt.legend()
plt.show()

# %% [markdown]
# Beyond the data, on both sides, the interval widens. Nothing told the networks where the data end.
#
# The estimator works in pipelines and grid searches, and `predict_proba` of `BayesianNetworkClassifier` averages over
# networks in the same way. For a network of your own, see [neural networks](../how-to/networks.md).
#
# **Next:** [a funnel, seen as a film](funnel.md).
