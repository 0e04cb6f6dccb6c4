"""The NIST reference sets for nonlinear regression (https://www.itl.nist.gov/div898/strd): 14 sets, two starts each.

Each is a user's model of the form "curve", and the point estimate must agree with the certified values to 6 digits.
"""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayesfit
from bayesfit.posterior.prepare import prepare
from bayesfit.sample.least_squares import careful, given

FOLDER = Path(__file__).parents[1] / ".." / "shared" / "data" / "nist"
DIGITS = 6

needs_files = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the NIST sets are not at {FOLDER}")


def enso(x, b):
    annual, long, short = (2 * jnp.pi * x / period for period in (12.0, b[3], b[6]))
    return (
        b[0]
        + b[1] * jnp.cos(annual)
        + b[2] * jnp.sin(annual)
        + b[4] * jnp.cos(long)
        + b[5] * jnp.sin(long)
        + b[7] * jnp.cos(short)
        + b[8] * jnp.sin(short)
    )


def gauss(x, b):
    first, second = (b[i] * jnp.exp(-((x - b[i + 1]) ** 2) / b[i + 2] ** 2) for i in (2, 5))
    return b[0] * jnp.exp(-b[1] * x) + first + second


def cubic_over_cubic(x, b):
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


CURVES = {
    "BoxBOD": lambda x, b: b[0] * (1 - jnp.exp(-b[1] * x)),
    "Chwirut2": lambda x, b: jnp.exp(-b[0] * x) / (b[1] + b[2] * x),
    "DanWood": lambda x, b: b[0] * x ** b[1],
    "ENSO": enso,
    "Eckerle4": lambda x, b: (b[0] / b[1]) * jnp.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": gauss,
    "Hahn1": cubic_over_cubic,
    "Kirby2": lambda x, b: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    "Lanczos3": lambda x, b: sum(b[i] * jnp.exp(-b[i + 1] * x) for i in (0, 2, 4)),
    "MGH10": lambda x, b: b[0] * jnp.exp(b[1] / (x + b[2])),
    "MGH17": lambda x, b: b[0] + b[1] * jnp.exp(-x * b[3]) + b[2] * jnp.exp(-x * b[4]),
    "Misra1a": lambda x, b: b[0] * (1 - jnp.exp(-b[1] * x)),
    "Rat42": lambda x, b: b[0] / (1 + jnp.exp(b[1] - b[2] * x)),
    "Thurber": cubic_over_cubic,
}

# Certified values checked by Newton's method on the normal equations with 50 digits: they agree to all digits given.
MGH10 = (
    np.array([34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872.0]),
    np.arange(50.0, 126.0, 5.0),
    np.array([[2.0, 400_000.0, 25_000.0], [0.02, 4_000.0, 250.0]]),
    np.array([5.6096364710e-03, 6.1813463463e03, 3.4522363462e02]),
    np.array([1.5687892471e-04, 2.3309021107e01, 7.8486103508e-01]),
    87.945855171,
)


def parse(name):
    """Data (y, x), both starts, certified values, their standard deviations and the residual sum of squares."""
    if name == "MGH10":
        return MGH10
    lines = (FOLDER / f"{name}.dat").read_text().splitlines()
    header = "\n".join(lines[:10])

    def lines_of(title):
        first, last = map(int, re.search(rf"{title}\s*\(lines\s+(\d+)\s+to\s+(\d+)\)", header).groups())
        return lines[first - 1 : last]

    rows = [line.split("=")[1].split() for line in lines_of("Starting Values") if "=" in line]
    table = np.array(rows, dtype=float)
    data = np.array([line.split() for line in lines_of("Data")], dtype=float)
    squares = next(line for line in lines_of("Certified Values") if line.startswith("Residual Sum of Squares"))
    return data[:, 0], data[:, 1], table[:, :2].T, table[:, 2], table[:, 3], float(squares.split(":")[1])


def model_of(name, starts):
    names = [f"b{i + 1}" for i in range(starts.shape[1])]
    widths = 100.0 * np.abs(starts).max(axis=0)

    def program(x):
        b = [numpyro.sample(n, dist.Normal(0.0, width)) for n, width in zip(names, widths, strict=True)]
        return CURVES[name](x, b)

    start = tuple({n: float(v) for n, v in zip(names, row, strict=True)} for row in starts)
    return bayesfit.Model(name, program, form="curve", start=start), names


def digits(got, certified):
    """Smallest log relative error, NIST's number of correct digits; at most the 11 that are certified."""
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log10(np.abs(np.asarray(got) - certified) / np.abs(certified)), 11.0).min()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "MGH10" else needs_files) for name in sorted(CURVES)]
)
def test_point_estimate_is_the_certified_one_from_both_starts(name):
    y, x, starts, certified, certified_sd, squares = parse(name)
    model, names = model_of(name, starts)
    with jax.enable_x64(True):
        problem = prepare(bayesfit.curves(x, y, None, delays=False), model)
        posterior, bin = problem.posterior, jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)

        def run(bin):
            found = given(posterior, bin, jax.random.key(0)).starts
            return jax.vmap(lambda start: careful(posterior, bin, start))(found)

        _, values, sds, chi2, converged = jax.tree.map(np.array, jax.jit(run)(bin))
    estimates = np.stack([values[n] for n in names], axis=1)
    errors = np.stack([sds[n] for n in names], axis=1) * np.sqrt(chi2 / (y.size - len(names)))[:, None]
    for i in range(2):
        print(f"{name} from start {i + 1}: {digits(estimates[i], certified):.1f} digits")
    for i in range(2):
        assert converged[i]
        assert digits(estimates[i], certified) >= DIGITS
        assert digits(errors[i], certified_sd) >= 4
        assert chi2[i] == pytest.approx(squares, rel=1e-6)


def test_a_far_start_alone_gives_the_certified_values():
    """MGH10's first start, as a user gives it; it takes Levenberg-Marquardt some 4,800 steps along a bent valley."""
    y, x, starts, certified, certified_sd, squares = MGH10
    model, names = model_of("MGH10", starts[:1])
    point = bayesfit.point_estimate(bayesfit.curves(x, y, None, delays=False), model).isel(q_bin=0)
    assert bool(point.converged)
    assert digits([point[n].item() for n in names], certified) >= DIGITS
    assert digits([point[f"{n}_sd"].item() for n in names], certified_sd) >= 4
    assert point.chi2.item() == pytest.approx(squares, rel=1e-8)


@needs_files
def test_whole_fit_gives_the_certified_values():
    """Misra1a from data to result: least squares, its standard errors, and a posterior about them."""
    y, x, starts, certified, certified_sd, squares = parse("Misra1a")
    model, names = model_of("Misra1a", starts[:1])
    result = bayesfit.fit(bayesfit.curves(x, y, None, delays=False), model, draws=500)
    point = result["point_estimate"].isel(q_bin=0)
    assert digits([point[n].item() for n in names], certified) >= DIGITS
    assert digits([point[f"{n}_sd"].item() for n in names], certified_sd) >= 4
    assert point.chi2.item() == pytest.approx(squares, rel=1e-8)
    assert bool(point.converged)
    for n, value, sd in zip(names, certified, certified_sd, strict=True):
        draws = result.posterior[n].values
        # A Student t posterior with 12 degrees of freedom: its sd is sqrt(12/10) of the certified one.
        assert abs(draws.mean() - value) < 0.2 * sd
        assert draws.std() == pytest.approx(sd * np.sqrt(1.2), rel=0.1)
    curve, residuals = bayesfit.plot_fit(result).axes[:2]
    assert (residuals.get_xlabel(), curve.get_ylabel()) == ("x", "y")
