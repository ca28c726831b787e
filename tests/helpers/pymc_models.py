"""A small regression in PyMC."""

import numpy as np
import pymc as pm

FEATURES = np.random.default_rng(0).normal(size=(30, 2))
TRUTH = np.array([1.0, -0.5])
VALUES = FEATURES @ TRUTH + 0.5 * np.random.default_rng(1).normal(size=30)


def regression(values=VALUES):
    with pm.Model(coords={"feature": ["age", "height"]}) as model:
        slope = pm.Normal("slope", 0.0, 1.0, dims="feature")
        scale = pm.HalfNormal("scale", 1.0)
        share = pm.Uniform("share", 0.0, 2.0)
        pm.Deterministic("length", pm.math.sqrt((slope**2).sum()))
        pm.Normal("value", pm.math.dot(FEATURES, slope), scale * share, observed=values)
    return model
