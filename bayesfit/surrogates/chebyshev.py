"""Chebyshev polynomials in all parameters, by least squares: for one to three parameters."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayesfit.surrogates.emulator import Arrays, Fitted, of_mean

RUNS_PER_TERM = 2.0  # at least, so that runs can be held out
HIGHEST = {1: 40, 2: 24, 3: 16}  # degree, by the number of parameters
HIGHEST_OF_MORE = 6
LARGEST_LEVERAGE = 0.999


def fit(x: Float[np.ndarray, "run param"], h: Float[np.ndarray, "run tau"]) -> list[Fitted]:
    """The polynomials of every total degree that the runs determine. Each run is predicted from all others in closed
    form, by the leverages (Allen, Technometrics 16, 125 (1974))."""
    found = []
    for degree in range(HIGHEST.get(x.shape[1], HIGHEST_OF_MORE) + 1):
        powers = exponents(x.shape[1], degree)
        if len(powers) * RUNS_PER_TERM > len(x):
            break
        basis = terms(x, powers, np)
        q, r = np.linalg.qr(basis)
        if np.abs(np.diag(r)).min() < 1e-8 * np.abs(np.diag(r)).max():
            break
        leverage = np.minimum(np.sum(q**2, axis=1), LARGEST_LEVERAGE)
        held_out = h - (h - q @ (q.T @ h)) / (1.0 - leverage)[:, None]
        arrays = {"powers": powers, "coefficients": np.linalg.solve(r, q.T @ h)}
        words = f"polynomials of degree {degree}, {len(powers)} terms"
        found.append(Fitted("chebyshev", arrays, held_out, words, of_mean(leverage)))
    return found


def exponents(size: int, degree: int) -> Int[np.ndarray, "term param"]:
    """The degrees in each parameter of all products up to a total degree."""
    chosen = [each for total in range(degree + 1) for each in combinations_with_replacement(range(size), total)]
    return np.array([[each.count(place) for place in range(size)] for each in chosen])


def terms(x: Float[Any, "*run param"], powers: Int[np.ndarray, "term param"], xp: Any) -> Float[Any, "*run term"]:
    """The products of Chebyshev polynomials, by their recurrence."""
    rows = [xp.ones_like(x), x]
    for _ in range(int(powers.max(initial=0)) - 1):
        rows.append(2.0 * x * rows[-1] - rows[-2])
    table = xp.stack(rows, axis=-1)  # (..., param, degree)
    product = xp.ones(())
    for place in range(powers.shape[1]):
        product = product * table[..., place, powers[:, place]]
    return product


def predict(arrays: Arrays, x: Float[Array, " param"]) -> Float[Array, " tau"]:
    """What is learnt, at one point."""
    return terms(x, np.asarray(arrays["powers"]), jnp) @ jnp.asarray(arrays["coefficients"])
