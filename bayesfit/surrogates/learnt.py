"""What was learnt of a simulator: the runs, the emulator, and its errors at runs that it was not shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesfit.surrogates import outputs
from bayesfit.surrogates.emulator import Arrays
from bayesfit.surrogates.ladder import PREDICT, choose
from bayesfit.surrogates.space import Space

NEAREST = 12  # held-out runs that say how large the error is at a place
NEAREST_RANDOM = 60  # and that say how the errors of a random simulator's mean correlate


@dataclass(frozen=True, eq=False)
class Learnt:
    """An emulator of |g1|^2 of a simulator.

    `points` (run, param) and `curves` (run, tau) are the runs; `errors` (run, tau) are those of |g1|^2 where each run
    was held out. `kind`, `link`, `arrays` and `falls` make the emulator; `about` says where it comes from, as JSON can
    hold it. For a random simulator, whose mean is learnt, `of_mean` (run,) are the factors that make these errors those
    of the mean (see `emulator.of_mean`).
    """

    space: Space
    tau: Float[np.ndarray, " tau"]
    points: Float[np.ndarray, "run param"]
    curves: Float[np.ndarray, "run tau"]
    errors: Float[np.ndarray, "run tau"]
    kind: str
    link: str
    arrays: Arrays
    falls: bool
    about: Mapping[str, Any]
    of_mean: Float[np.ndarray, " run"] | None = None

    @classmethod
    def of_runs(cls, space: Space, tau: np.ndarray, runs: tuple[np.ndarray, np.ndarray], about: Any) -> Learnt:
        """Learn from runs, given as points (run, param) and curves (run, tau). Call it with x64 on."""
        points, curves = runs
        x = space.coordinates(points)
        random = bool(about["simulator_noise"])
        best, half = choose(x, curves, random), len(x) // 2
        said = {
            "emulator": best.fitted.words,
            "held_out_rms": best.rms,
            "held_out_rms_of_half": choose(x[:half], curves[:half], random).rms,
            "runs": len(x),
        }
        emulator = best.fitted.kind, best.link, best.fitted.arrays, outputs.falls(curves)
        of_mean = np.broadcast_to(best.fitted.of_mean, len(x)).copy() if random else None
        return cls(space, tau, points, curves, best.errors, *emulator, {**about, **said}, of_mean)

    @property
    def random(self) -> bool:
        """Whether two runs of the simulator at one place differ."""
        return bool(self.about["simulator_noise"])

    @cached_property
    def log_tau(self) -> Float[np.ndarray, " tau"]:
        """Logarithms of the delays."""
        return np.log(self.tau)

    @cached_property
    def slopes(self) -> Float[np.ndarray, "tau tau"]:
        """The matrix of a spline's slopes."""
        return outputs.slopes(self.log_tau)

    def shape(self, x: Float[Array, " param"], tau: Float[Array, " any"]) -> Float[Array, " any"]:
        """|g1|^2 at coordinates, at any delays within those that are learnt."""
        return self._at_delays(PREDICT[self.kind](self.arrays, x), tau)

    def _at_delays(self, h: Float[Array, " tau"], tau: Float[Array, " any"]) -> Float[Array, " any"]:
        """|g1|^2 at any delays, from what is learnt."""
        sign = -1.0 if self.link == "identity" else 1.0
        h, slope = sign * h, sign * (jnp.asarray(self.slopes) @ h)
        if self.falls:
            h, slope = outputs.rising(h, slope, self.log_tau)
        return outputs.unlinked(sign * outputs.between(jnp.log(tau), self.log_tau, h, slope), self.link, jnp)

    def interpolated(self, curves: Float[np.ndarray, "run tau"], tau: Float[np.ndarray, " any"]) -> np.ndarray:
        """Curves of the simulator at other delays, as the emulator interpolates its own. Call it with x64 on."""
        if np.array_equal(tau, self.tau):
            return curves
        one = jax.jit(jax.vmap(lambda h: self._at_delays(h, jnp.asarray(tau))))
        return np.asarray(one(outputs.linked(curves, self.link)))

    def error_at(self, x: Float[np.ndarray, " param"], tau: Float[np.ndarray, " any"]) -> Float[np.ndarray, " any"]:
        """Root mean square of the held-out errors of |g1|^2 about coordinates, at any delays."""
        rms = np.sqrt(np.mean(self._errors_near(x, NEAREST) ** 2, axis=0))
        return np.interp(np.log(tau), self.log_tau, rms)

    def covariance_at(self, x: Float[np.ndarray, " param"], tau: Float[np.ndarray, " any"]) -> np.ndarray:
        """Second moments (any, any) of the errors of a random simulator's mean about coordinates, at any delays."""
        rows = self._errors_near(x, NEAREST_RANDOM)
        errors = np.stack([np.interp(np.log(tau), self.log_tau, row) for row in rows])
        return errors.T @ errors / len(errors)

    def _errors_near(self, x: Float[np.ndarray, " param"], count: int) -> Float[np.ndarray, "near tau"]:
        """The errors at the runs nearest to coordinates, those of the mean if the simulator is random."""
        distance = np.sum((self.space.coordinates(self.points) - x) ** 2, axis=1)
        nearest = np.argsort(distance, kind="stable")[:count]
        errors = self.errors[nearest]
        return errors if self.of_mean is None else errors * self.of_mean[nearest, None]

    def budget_for(self, ratio: float) -> int:
        """How many runs would make the held-out error smaller by this ratio, if it goes on falling as from half of the
        runs to all, or, where it hardly falls, with their square root."""
        before, now, runs = (self.about[name] for name in ("held_out_rms_of_half", "held_out_rms", "runs"))
        power = max(np.log2(max(before, 1e-12) / max(now, 1e-12)), 0.5)
        return int(np.ceil(min(runs * ratio ** (1.0 / power), 1e6) / 10.0) * 10)
