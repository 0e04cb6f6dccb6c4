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
    amplitudes: np.ndarray,
    weights: np.ndarray,
    pixels: int,
    frames: int,
    rng: np.random.Generator,
    speckle_size: float = 0.0,
) -> np.ndarray:
    """Intensity of mean 1 (pixel, frame): the modes add up without interference. Pixels form a square, in which the
    correlation of intensities falls to 1/e at the speckle size, in pixels; 0 if they are independent."""
    total = np.zeros((pixels, frames), np.float32)
    for weight in weights.astype(np.float32):
        field = blurred(fields(amplitudes, pixels, frames, rng), speckle_size)
        total += weight * (field.real**2 + field.imag**2)
    return total


def blurred(field: np.ndarray, speckle_size: float) -> np.ndarray:
    """Independent fields (pixel, frame) of a square of pixels made to correlate: by exp(-r^2 / (2 size^2)) at distance
    r, so that intensities do by exp(-r^2 / size^2)."""
    if speckle_size == 0:
        return field
    side = math.isqrt(len(field))
    if side**2 != len(field):
        raise ValueError(f"{len(field)} pixels are no square")
    place = np.arange(side)
    eigenvalues, vectors = np.linalg.eigh(np.exp(-((place[:, None] - place) ** 2) / (2 * speckle_size**2)))
    root = ((vectors * np.sqrt(np.maximum(eigenvalues, 0))) @ vectors.T).astype(np.float32)
    mixed = np.einsum("ij,kl,jlt->ikt", root, root, field.reshape(side, side, -1), optimize=True)
    return mixed.reshape(field.shape)
