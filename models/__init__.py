"""The models: one file each, the physics and its priors as a NumPyro program; and a simulator that can be learnt."""

from bayesfit.models._brownian_dynamics import BrownianDynamics

__all__ = ["BrownianDynamics"]
