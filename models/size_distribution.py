"""Size distribution: positive smooth weights over the logarithm of the radius, of inferred smoothness.

Formula     g2(tau) = baseline + contrast * g1^2,  g1 = sum_k w_k exp(-D(R_k) q^2 tau),  D(R) = kB T / (6 pi eta R)
Symbols     tau delay [s]; R_k radii, on even steps of log R; w_k the shares of the field that is scattered by spheres
            of these radii (at one angle in proportion to their intensity), sum_k w_k = 1; rate mean relaxation rate
            [1/s], which is the initial slope of -log g1 and belongs to the harmonic mean of the radii; width standard
            deviation of log R [1]; shape_3 to shape_6 [1], how the distribution differs from a
            log-normal one
Validity    Dilute, diffusing spheres. The weights are those of the intensity at the angle of the bin. A measurement
            determines few features of them: the mean rate, the width, with good data the skewness or a second peak.
            What it does not determine is filled in by the prior, smooth and near log-normal, and the bands say so.
Method      What CONTIN and NNLS estimate, as a posterior. The distribution, on 17 radii that go along with its mean and
            width, is log-normal times the exponential of a smooth function (`_sizes.py`).
Derived     Mean, median, 10 and 90 % and standard deviation of the radius [nm], where temperature, viscosity and q are
            known, else relative to the harmonic mean.
Reference   Provencher, Comput. Phys. Commun. 27, 229 (1982), CONTIN; Leonard, J. R. Statist. Soc. B 40, 113 (1978),
            smooth densities; Frisken, Appl. Opt. 40, 4087 (2001), the mean rate.
Prior       rate log-uniform over the rates that the delays can see; width log-normal with median 0.15 and standard
            deviation 1 of the logarithm; shape_3 to shape_6 Student-t with 8 degrees of freedom and scale 0.7,
            which is normal with an inferred variance.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfit import Model, Parameter
from bayesfit.models._sizes import PARAMETERS, about_harmonic, derived, distribution, sample_weights


def program(tau):
    rate = numpyro.sample("rate", dist.LogUniform(0.1 / jnp.max(tau), 10.0 / jnp.min(tau)))
    log_radius, weight = sample_weights()
    relative = jnp.exp(-about_harmonic(log_radius, weight, jnp))
    return (jnp.exp(-rate * relative * tau[:, None]) @ weight) ** 2


model = Model(
    name="size_distribution",
    program=program,
    parameters=(Parameter("rate", "1/s", r"\bar\Gamma", "mean relaxation rate of g1"), *PARAMETERS),
    description="smooth positive weights over log radius, with moments and percentiles of the radius",
    formula="g2 = baseline + contrast * (sum_k w_k exp(-rate R / R_k tau))^2, w_k smooth over log R_k",
    reference="Provencher, Comput. Phys. Commun. 27, 229 (1982); Leonard, J. R. Statist. Soc. B 40, 113 (1978)",
    derive=derived,
    distribution=distribution,
)
