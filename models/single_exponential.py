"""Single exponential: one relaxation rate.

Formula     g2(tau) = baseline + contrast * exp(-2 rate tau),  |g1| = exp(-rate tau)
Symbols     tau delay [s]; rate relaxation rate Gamma [1/s]
Validity    Brownian motion of identical particles without interactions, where rate = D q^2; single scattering.
Reference   Berne & Pecora, Dynamic Light Scattering (Wiley, 1976), ch. 5.
Prior       rate log-uniform from 1/10 of the slowest to 10 times the fastest rate that the delays can see.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfit import Model, Parameter


def program(tau):
    rate = numpyro.sample("rate", dist.LogUniform(0.1 / jnp.max(tau), 10.0 / jnp.min(tau)))
    return jnp.exp(-2.0 * rate * tau)


model = Model(
    name="single_exponential",
    program=program,
    parameters=(Parameter("rate", "1/s", r"\Gamma", "relaxation rate of g1"),),
    description="one relaxation rate",
    formula="g2 = baseline + contrast * exp(-2 rate tau)",
    reference="Berne & Pecora, Dynamic Light Scattering (Wiley, 1976), ch. 5",
)
