"""Cumulant expansion: mean rate and polydispersity of a narrow distribution of rates.

Formula     g2(tau) = baseline + contrast * exp(-2 x) * (1 + mu2 x^2 / 2 - mu3 x^3 / 6)^2,  x = rate tau
Symbols     tau delay [s]; rate mean relaxation rate [1/s]; mu2 relative second cumulant (variance of the rate over
            its squared mean, the polydispersity index) [1]; mu3 relative third central moment [1]
Validity    Narrow distributions with a single peak (mu2 below about 0.3). This form, in moments about the mean, stays
            finite at long delays, while the exponential of Koppel's series diverges; the two agree to third order.
            mu3 is optional: it is fixed at 0 unless it is given a prior.
Reference   Frisken, Appl. Opt. 40, 4087 (2001); Koppel, J. Chem. Phys. 57, 4814 (1972).
Prior       rate log-uniform over the rates that the delays can see; mu2 half-normal with scale 0.3.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfit import Model, Parameter


def program(tau):
    rate = numpyro.sample("rate", dist.LogUniform(0.1 / jnp.max(tau), 10.0 / jnp.min(tau)))
    mu2 = numpyro.sample("mu2", dist.HalfNormal(0.3))
    mu3 = numpyro.sample("mu3", dist.Delta(0.0))
    x = rate * tau
    return jnp.exp(-2.0 * x) * (1.0 + mu2 * x**2 / 2.0 - mu3 * x**3 / 6.0) ** 2


model = Model(
    name="cumulant",
    program=program,
    parameters=(
        Parameter("rate", "1/s", r"\bar\Gamma", "mean relaxation rate of g1"),
        Parameter("mu2", "", r"\mu_2/\bar\Gamma^2", "relative second cumulant, the polydispersity index"),
        Parameter("mu3", "", r"\mu_3/\bar\Gamma^3", "relative third central moment; 0 unless given a prior"),
    ),
    description="mean rate and polydispersity; third cumulant on request",
    formula="g2 = baseline + contrast * exp(-2 rate tau) (1 + mu2 (rate tau)^2/2 - mu3 (rate tau)^3/6)^2",
    reference="Frisken, Appl. Opt. 40, 4087 (2001)",
)
