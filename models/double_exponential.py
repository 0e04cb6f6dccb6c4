"""Double exponential: two ordered relaxation rates, added as fields.

Formula     g2(tau) = baseline + contrast * |g1|^2,
            g1 = fraction * exp(-rate_fast tau) + (1 - fraction) * exp(-rate tau)
Symbols     tau delay [s]; rate the slower relaxation rate [1/s]; rate_fast the faster one [1/s];
            fraction share of the faster decay in g1 [1]
Validity    Two populations or two processes in one scattered field: the fields add and Siegert's relation squares
            their sum, so the cross term decays with rate + rate_fast. (A sum of two decays of g2 itself, without the
            cross term, holds only for separate scattering volumes.)
Reference   Siegert's relation for two species: Berne & Pecora, Dynamic Light Scattering (Wiley, 1976), ch. 5;
            Pusey in Neutrons, X-rays and Light (Elsevier, 2002), ch. 9.
Prior       rate_fast log-uniform over the rates that the delays can see, rate log-uniform below rate_fast; fraction
            uniform.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfit import Model, Parameter


def program(tau):
    slowest, fastest = 0.1 / jnp.max(tau), 10.0 / jnp.min(tau)
    rate_fast = numpyro.sample("rate_fast", dist.LogUniform(slowest, fastest))
    rate = numpyro.sample("rate", dist.LogUniform(0.5 * slowest, rate_fast))
    fraction = numpyro.sample("fraction", dist.Uniform(0.0, 1.0))
    g1 = fraction * jnp.exp(-rate_fast * tau) + (1.0 - fraction) * jnp.exp(-rate * tau)
    return g1**2


model = Model(
    name="double_exponential",
    program=program,
    parameters=(
        Parameter("rate", "1/s", r"\Gamma_\mathrm{slow}", "relaxation rate of the slower decay of g1"),
        Parameter("rate_fast", "1/s", r"\Gamma_\mathrm{fast}", "relaxation rate of the faster decay of g1"),
        Parameter("fraction", "", "f", "share of the faster decay in g1"),
    ),
    description="two ordered decays of the field, squared together",
    formula="g2 = baseline + contrast * (fraction exp(-rate_fast tau) + (1 - fraction) exp(-rate tau))^2",
    reference="Berne & Pecora, Dynamic Light Scattering (Wiley, 1976), ch. 5",
)
