# %% [markdown]
# # A PyMC regression, to ArviZ
#
# A model that you already have in PyMC needs no translation. You will sample a regression with outliers and hand the
# result over to ArviZ.

# %%
import numpy as np
import pymc as pm

import nvgd

random = np.random.default_rng(0)
age = random.uniform(20, 70, size=80)
height = random.normal(172, 9, size=80)
score = 30 + 0.4 * (age - 45) - 0.2 * (height - 172) + random.standard_t(2, size=80) * 3

features = np.stack(
    [(age - age.mean()) / age.std(), (height - height.mean()) / height.std()], axis=1
)

with pm.Model(coords={"feature": ["age", "height"]}) as model:
    intercept = pm.Normal("intercept", 0, 50)
    slope = pm.Normal("slope", 0, 10, dims="feature")
    scale = pm.HalfNormal("scale", 10)
    freedom = pm.Gamma("freedom", 2, 0.1)
    line = intercept + pm.math.dot(features, slope)
    pm.StudentT("score", freedom, mu=line, sigma=scale, observed=score)

# %% [markdown]
# Student's t has heavy tails, so single outliers do not pull the line. `scale` and `freedom` must be positive; PyMC's
# own transforms take care of that.

# %%
target = nvgd.from_pymc(model)
posterior = nvgd.sample(target)
print(posterior.summary())

# %%
print(posterior.diagnose().verdict)

# %% [markdown]
# The true slopes, per standard deviation of each feature, are:

# %%
print("age", round(0.4 * age.std(), 2), " height", round(-0.2 * height.std(), 2))

# %% [markdown]
# ## To ArviZ
#
# `to_arviz` returns what the installed version of ArviZ works with: posterior, sample statistics, log
# likelihood, observed data and predictions, with the coordinates of the model.

# %%
import arviz as az
import matplotlib.pyplot as plt

data = posterior.to_arviz()
table = az.summary(data, var_names=["intercept", "slope", "scale"])
print(table.to_string())

# %% [markdown]
# ArviZ's plots accept it. Every particle is a chain, so there are 256 chains: combine them in plots that would draw each.

# %%
az.plot_forest(
    data, var_names=["slope", "scale", "freedom"], combined=True, figsize=(7, 3)
)
plt.show()

# %% [markdown]
# ## Predictions
#
# Predicted data should look like the observed data.

# %%
predicted = np.asarray(posterior.predict()["score"]).reshape(-1, len(score))
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
bins = np.linspace(0, 60, 41)
for row in predicted[:: len(predicted) // 40]:
    axes.hist(row, bins, histtype="step", color="C0", alpha=0.15, density=True)
axes.hist(score, bins, histtype="step", color="k", lw=2, density=True, label="data")
axes.plot([], [], color="C0", label="40 predictions")
axes.set(xlabel="score", ylabel="density")
axes.legend()
plt.show()

# %% [markdown]
# `data.to_netcdf("regression.nc")` writes everything to one file.
#
# **Next:** [a million rows](million_rows.md), where the data come in minibatches.
