"""Fields of speckle: stationary complex Gaussian series in time, whose modes add up to the intensity of each pixel."""

import math

import numpy as np
import scipy.fft


def spectrum(rate: float, beta: float, frames: int) -> tuple[np.ndarray, float]:
    """Amplitudes (frequency,) of a periodic series that has the wanted g1 within any stretch of `frames`; its error.

    Circulant embedding (Dietrich and Newsam, SIAM J. Sci. Comput. 18, 1088 (1997)): the covariance g1(k) =
    exp(-(rate k)^beta), wrapped around a circle, has its Fourier transform for eigenvalues. `rate` is per frame. The
    circle has twice the frames, or fewer where g1 falls below 1e-7 on the way. Negative eigenvalues, which only beta
    above 1 can have, are set to 0. The error is the largest difference of the covariance that is left from g1.
    """
    vanished = math.ceil(math.log(1e7) ** (1 / beta) / rate)
    circle = scipy.fft.next_fast_len(frames + min(frames, vanished))
    lag = np.minimum(np.arange(circle), circle - np.arange(circle))
    eigenvalues = np.maximum(scipy.fft.fft(np.exp(-((rate * lag) ** beta))).real, 0)
    wanted = np.exp(-((rate * np.arange(frames)) ** beta))
    error = np.abs(scipy.fft.fft(eigenvalues).real[:frames] / circle - wanted).max()
    return np.sqrt(eigenvalues / (2 * circle)).astype(np.float32), float(error)


def fields(amplitudes: np.ndarray, series: int, frames: int, rng: np.random.Generator) -> np.ndarray:
    """Independent complex Gaussian fields (series, frame) of mean intensity 1."""
    noise = rng.standard_normal((series, 2 * amplitudes.size), dtype=np.float32).view(np.complex64)
    noise *= amplitudes
    return scipy.fft.fft(noise, overwrite_x=True)[:, :frames]


def mode_weights(contrast: float) -> np.ndarray:
    """Weights (mode,) of sum 1 and sum of squares `contrast`: one mode may be stronger than its equal fellows."""
    modes = math.ceil(1 / contrast - 1e-9)
    if modes == 1:
        return np.ones(1)
    strong = (1 + math.sqrt(max(0.0, (modes - 1) * (contrast * modes - 1)))) / modes
    return np.array([strong] + [(1 - strong) / (modes - 1)] * (modes - 1))


def intensities(
    amplitudes: np.ndarray, weights: np.ndarray, pixels: int, frames: int, rng: np.random.Generator
) -> np.ndarray:
    """Intensity of mean 1 (pixel, frame): the modes add up without interference."""
    total = np.zeros((pixels, frames), np.float32)
    for weight in weights.astype(np.float32):
        field = fields(amplitudes, pixels, frames, rng)
        total += weight * (field.real**2 + field.imag**2)
    return total
