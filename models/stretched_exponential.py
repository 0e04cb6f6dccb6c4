"""Stretched or compressed exponential (Kohlrausch-Williams-Watts).

Formula     g2(tau) = baseline + contrast * exp(-2 (rate tau)^beta),  |g1| = exp(-(rate tau)^beta)
Symbols     tau delay [s]; rate relaxation rate Gamma [1/s]; beta stretching exponent [1]
Validity    beta < 1: a spread of relaxation times (glasses, polydisperse specimens); beta > 1: ballistic-like motion
            (gels, ageing soft solids). The factor 2 stands outside the power; with exp(-(2 rate tau)^beta), also in
            use, rates differ by 2^(1 - 1/beta).
Reference   Williams & Watts, Trans. Faraday Soc. 66, 80 (1970); Cipelletti et al., Faraday Discuss. 123, 237 (2003).
Prior       rate log-uniform from 1/10 of the slowest to 10 times the fastest rate that the delays can see;
            beta uniform from 0.2 to 2.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfit import Model, Parameter


def program(tau):
    rate = numpyro.sample("rate", dist.LogUniform(0.1 / jnp.max(tau), 10.0 / jnp.min(tau)))
    beta = numpyro.sample("beta", dist.Uniform(0.2, 2.0))
    return jnp.exp(-2.0 * jnp.exp(beta * (jnp.log(rate) + jnp.log(tau))))


model = Model(
    name="stretched_exponential",
    program=program,
    parameters=(
        Parameter("rate", "1/s", r"\Gamma", "relaxation rate of g1"),
        Parameter("beta", "", r"\beta", "stretching exponent; above 1 the decay is compressed"),
    ),
    description="one stretched or compressed decay",
    formula="g2 = baseline + contrast * exp(-2 (rate tau)^beta)",
    reference="Williams & Watts, Trans. Faraday Soc. 66, 80 (1970)",
)
