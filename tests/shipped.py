"""Every model that comes with the package, as tests ask for it: those that need options, with options."""

import numpy as np

import bayesfit


def g1(x):
    """A master curve in closed form: g1 of a gamma distribution of rates with mean 1 and variance 1/2."""
    return (1.0 + x / 2.0) ** -2.0


X = np.geomspace(1e-5, 1e5, 1001)
OPTIONS = {"master_curve": {"table": (X, g1(X))}, "mie_spheres": {"relative_index": 1.2}}
FIXED = {"mie_spheres": {"cos_angle": 0.3, "rate_of_unit_size": 1e-4}}  # what is known of each bin


def spec(name):
    """What `bayesfit.fit` takes for the model of this name."""
    return {"name": name, **OPTIONS[name]} if name in OPTIONS else name


def shipped_models():
    """The shipped models by name, but those that must know more of the bins than their delays."""
    models = [name for name in bayesfit.list_models() if name not in FIXED]
    return [n for n in models if bayesfit.get_model(spec(n)).program.__module__.startswith("bayesfit.models.")]
