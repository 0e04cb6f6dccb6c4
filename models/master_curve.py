"""Master curve: a tabulated g1 of any form, of which the time scale is fitted.

Formula     g2(tau) = baseline + contrast * g1(x)^2,  x = rate tau,  g1 from the user's table
Symbols     tau delay [s]; x delay in the table's own unit of time [1]; rate that unit's inverse [1/s]. Where the
            table's x is itself a delay in s, rate is the factor by which the specimen is faster than the table.
Validity    Curves of one form that differ in their time scale: superposition in time and temperature, a simulated
            intermediate scattering function, a reference specimen. The table holds g1, not its square; it begins near 1
            (at least 0.95) and ends near 0 (at most 0.05). If a spline through every second point misses the others by
            0.03, the table is too coarse or too noisy, and is refused. Smaller errors of the table become errors of the
            model.
Method      Between the points, g1 is a cubic spline in log x, with two continuous derivatives. Before the first point,
            1 - g1 continues as a power of x between 0.2 and 2; after the last point, g1 continues as a power between
            -0.5 and -10. The powers are those with which the table begins and ends, so that the first derivative is
            continuous there.
Reference   Götze & Sjögren, Rep. Prog. Phys. 55, 241 (1992).
Prior       rate log-uniform from 1/10 of the slowest to 10 times the fastest rate that the delays can see; the decay of
            the table is taken to be at the x where g1 first falls to 1/e.
"""

from typing import NamedTuple

import interpax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.interpolate import CubicSpline

from bayesfit import InputError, Model, Parameter, read_table

FEWEST, CELLS = 8, 1000  # points of a table; steps of the even grid on which the spline is tabulated again
END, MISS = 0.05, 0.03  # largest distance of g1 from 1 and 0 at the ends; of a point from the spline through others
RISE, FALL = (0.2, 2.0), (0.5, 10.0)

description = "a tabulated g1, of which the time scale is fitted; needs the option `table`"
formula = "g2 = baseline + contrast * g1(rate tau)^2, g1 from a table"


class Spline(NamedTuple):
    """g1 and its slope on even steps of log x, each (step,); and the powers `rise` and `fall` that continue it before
    the first and after the last step."""

    log_x: np.ndarray
    g1: np.ndarray
    slope: np.ndarray
    rise: float
    fall: float

    def __call__(self, log_x):
        """g1 at any log x; the same shape."""
        before, after = log_x - self.log_x[0], log_x - self.log_x[-1]
        inside = (before >= 0) & (after <= 0)
        within = interpax.interp1d(
            jnp.where(inside, log_x, self.log_x[0]),
            *(jnp.asarray(array) for array in (self.log_x, self.g1)),
            method="cubic2",
            fx=jnp.asarray(self.slope),
            even_spacing=True,
        )
        early = 1.0 - (1.0 - self.g1[0]) * jnp.exp(self.rise * jnp.minimum(before, 0.0))
        late = self.g1[-1] * jnp.exp(-self.fall * jnp.maximum(after, 0.0))
        return jnp.where(inside, within, jnp.where(before < 0, early, late))


def make(table):
    """The model of a table of x and g1: two sequences, a text file of two columns, or anything else that
    `bayesfit.read_table` takes. x is positive and may be in any order; no value occurs twice.

    Raises:
        InputError: the table cannot be read, does not reach from near 1 to near 0, or is too coarse or too noisy.
    """
    table = read_table(table, "master_curve.table", ("x", "g1"), FEWEST)
    check(table)
    g1 = spline(np.log(table.x), table.values)
    decay = np.exp(CubicSpline(g1.log_x, g1.g1).solve(np.exp(-1.0), extrapolate=False)[0])

    def program(tau):
        rate = numpyro.sample("rate", dist.LogUniform(0.1 * decay / jnp.max(tau), 10.0 * decay / jnp.min(tau)))
        return g1(jnp.log(rate) + jnp.log(tau)) ** 2

    return Model(
        name="master_curve",
        program=program,
        parameters=(Parameter("rate", "1/s", r"\Gamma", "inverse of the table's unit of time"),),
        description=description,
        formula=formula,
        reference="Götze & Sjögren, Rep. Prog. Phys. 55, 241 (1992)",
        options={"table": table.plain},
    )


def spline(log_x, g1):
    """The spline through the points (point,); at its ends it has the slopes of the powers that continue it."""
    first, last = CubicSpline(log_x, g1)(log_x[[0, -1]], 1)
    rise, fall = power(-first, 1.0 - g1[0], *RISE), power(-last, g1[-1], *FALL)
    ends = (1, -rise * (1.0 - g1[0])), (1, -fall * g1[-1])
    steps = np.linspace(log_x[0], log_x[-1], CELLS + 1)
    values = CubicSpline(log_x, g1, bc_type=ends)(steps)
    return Spline(steps, values, CubicSpline(steps, values, bc_type=ends)(steps, 1), rise, fall)


def power(slope, value, low, high):
    """The power of x by which a value with this slope in log x goes to 0, between `low` and `high`."""
    return float(np.clip(slope / value if value else low, low, high))


def check(table):
    """Refuse a table that does not reach from near 1 to near 0, or whose points do not lie on a smooth curve."""
    x, g1 = table.x, table.values

    def refuse(problem, remedy):
        raise InputError(problem, file=table.file or None, field="master_curve.table", remedy=remedy)

    for place in np.flatnonzero(np.abs(g1) > 1.0 + END)[:1]:
        refuse(f"g1 at x = {x[place]:g} is {g1[place]:g}, outside -1 to 1", "Give g1, which is 1 at x = 0")
    if abs(g1[0] - 1.0) > END:
        refuse(f"begins at x = {x[0]:g} with g1 = {g1[0]:.3g}, not near 1", "Begin at a smaller x, and give g1")
    if abs(g1[-1]) > END:
        refuse(f"ends at x = {x[-1]:g} with g1 = {g1[-1]:.3g}, not near 0", "Go on to a larger x")
    miss = np.array([distance(np.log(x), g1, place) for place in (0, 1)]).max(axis=0)
    worst = int(np.argmax(miss))
    if miss[worst] > MISS:
        problem = f"g1 at x = {x[worst]:g} is {miss[worst]:.2g} from the spline through other points"
        refuse(f"{problem}: too few points, or too noisy ones", "Give more, or smooth them")


def distance(log_x, g1, start):
    """How far each point (point,) is from the spline through every second point from `start`; 0 outside its range."""
    through = CubicSpline(log_x[start::2], g1[start::2], extrapolate=False)
    return np.abs(np.nan_to_num(through(log_x), nan=0.0) - g1) * np.isfinite(through(log_x))
