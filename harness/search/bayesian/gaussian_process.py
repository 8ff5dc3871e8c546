"""A Gaussian process made for a few hundred observations of a discrete space.

The covariance of two configurations is a mixture of a Matérn-5/2 kernel over all features, each
with its own length scale, and a sum of one-dimensional kernels: a few observations are enough to
learn the effect of a single knob. Rasmussen and Williams, Gaussian Processes for Machine Learning
(2006), chapters 2 and 5; additive kernels: Duvenaud, Nickisch and Rasmussen (2011).
Hyperparameters are maximum a posteriori, by Rprop (Riedmiller and Braun, 1993).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
ROOT5 = math.sqrt(5.0)
JITTER = 1e-6
SCALE_SPREAD = 0.8
"""Standard deviation of the log length scales about their prior means."""
NOISE = 0.02
"""The prior's median share of noise in the variance of the observations."""
SHARE = -0.5
"""The prior's mean for the share of the additive part, as a logit."""
SCALES = (0.03, 30.0)
NOISES = (1e-4, 0.5)
"""Bounds of the length scales, and of the noise."""
MEAN_PRECISION = 1e-2
VARIANCE_WEIGHT = 1.0
"""The weight of the variance's prior, in observations of variance 1."""


def matern(distance: Array) -> Array:
    """Return the Matérn-5/2 covariance at a scaled distance."""
    scaled = ROOT5 * distance
    covariance: Array = (1.0 + scaled + scaled * scaled / 3.0) * np.exp(-scaled)
    return covariance


@dataclass(frozen=True)
class Points:
    """Encoded configurations, one row each.

    Length scales act on `features` (points x features); the inner product of `single` (points x
    columns) is the additive kernel; `advice` (points x sources) comes from other recordings.
    """

    features: Array
    single: Array
    advice: Array

    def __getitem__(self, rows: Array) -> Points:
        return Points(self.features[rows], self.single[rows], self.advice[rows])


class Hyperparameters:
    """Log length scales, log noise, and the logit of the additive part's share."""

    def __init__(self, prior_scales: Array) -> None:
        self.prior = np.concatenate([np.log(prior_scales), [math.log(NOISE), SHARE]])
        self.spread = np.concatenate([np.full(len(prior_scales), SCALE_SPREAD), [1.0, 1.0]])
        self.low = np.concatenate([np.full(len(prior_scales), math.log(SCALES[0])),
                                   [math.log(NOISES[0]), -6.0]])
        self.high = np.concatenate([np.full(len(prior_scales), math.log(SCALES[1])),
                                    [math.log(NOISES[1]), 6.0]])
        self.theta = self.prior.copy()

    def fit(self, points: Points, values: Array, steps: int) -> None:
        """Move from the current parameters towards their maximum a posteriori given `values`."""
        objective = _Objective(points, values, self)
        theta, step = self.theta.copy(), np.full(len(self.theta), 0.15)
        best, slope = objective(theta)
        for _ in range(steps):
            theta = np.clip(theta - np.sign(slope) * step, self.low, self.high)
            cost, new = objective(theta)
            if cost < best:
                best, self.theta = cost, theta.copy()
            agree = new * slope
            step = np.where(agree > 0, np.minimum(step * 1.3, 0.7),
                            np.where(agree < 0, step * 0.5, step))
            slope = new


class _Objective:
    """The negative log posterior of hyperparameters, and its gradient."""

    def __init__(self, points: Points, values: Array, hyperparameters: Hyperparameters) -> None:
        self.values, self.hyperparameters = values, hyperparameters
        self.squares = (points.features[:, None, :] - points.features[None, :, :]) ** 2
        self.single = points.single @ points.single.T
        self.advice = points.advice @ points.advice.T

    def __call__(self, theta: Array) -> tuple[float, Array]:
        count, features = len(self.values), self.squares.shape[2]
        inverse_squares = np.exp(-2.0 * theta[:features])
        distance = np.sqrt(self.squares @ inverse_squares + 1e-12)
        decay = np.exp(-ROOT5 * distance)
        product = (1.0 + ROOT5 * distance + 5.0 * distance**2 / 3.0) * decay
        noise, share = math.exp(theta[features]), 1.0 / (1.0 + math.exp(-theta[features + 1]))
        covariance = (1.0 - share) * product + share * self.single + self.advice
        covariance[np.diag_indices(count)] += noise + JITTER
        try:
            lower = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return math.inf, np.zeros_like(theta)
        root = np.linalg.inv(lower)
        inverse = root.T @ root
        _, solved, variance, fit = _generalised_least_squares(inverse, self.values)
        off = (theta - self.hyperparameters.prior) / self.hyperparameters.spread
        cost = 0.5 * (count + VARIANCE_WEIGHT) * math.log(variance) \
            + np.log(np.diag(lower)).sum() + 0.5 * fit / variance + 0.5 * off @ off
        weights = inverse - np.outer(solved, solved) / variance
        slope = off / self.hyperparameters.spread
        slope[:features] += 0.5 * inverse_squares * np.einsum(
            "ij,ijd->d", (1.0 - share) * weights * (5.0 / 3.0) * (1.0 + ROOT5 * distance) * decay,
            self.squares)
        slope[features] += 0.5 * np.trace(weights) * noise
        slope[features + 1] += 0.5 * (weights * (self.single - product)).sum() \
            * share * (1.0 - share)
        return float(cost), slope


def _generalised_least_squares(inverse: Array, values: Array) -> tuple[float, Array, float, float]:
    """Return the mean, inverse covariance times the residual, the variance, and the misfit."""
    ones = np.ones(len(values))
    to_values, to_ones = inverse @ values, inverse @ ones
    mean = float(ones @ to_values / (ones @ to_ones + MEAN_PRECISION))
    solved = to_values - mean * to_ones
    fit = float((values - mean) @ solved) + MEAN_PRECISION * mean**2 + VARIANCE_WEIGHT
    return mean, solved, fit / (len(values) + VARIANCE_WEIGHT), fit


class GaussianProcess:
    """The process after observing values; predicts the mean and deviation of others."""

    def __init__(self, points: Points, values: Array, hyperparameters: Hyperparameters) -> None:
        theta = hyperparameters.theta
        count = points.features.shape[1]
        self.points = points
        self.inverse_scales = np.exp(-theta[:count]).astype(np.float32)
        self.share = 1.0 / (1.0 + math.exp(-theta[count + 1]))
        self.scaled = points.features.astype(np.float32) * self.inverse_scales
        covariance = self._covariance(points).astype(float)
        covariance[np.diag_indices(len(values))] += math.exp(theta[count]) + JITTER
        lower = _factor(covariance)
        self.root = np.linalg.inv(lower)
        self.mean, self.solved, self.variance, fit = _generalised_least_squares(
            self.root.T @ self.root, values)
        self.cost = 0.5 * (len(values) + VARIANCE_WEIGHT) * math.log(self.variance) \
            + float(np.log(np.diag(lower)).sum()) + 0.5 * fit / self.variance
        """Its negative log likelihood, up to a constant."""

    def predict(self, points: Points) -> tuple[Array, Array]:
        """Return the mean and standard deviation of the values, without noise."""
        covariance = self._covariance(points)
        mean = self.mean + covariance @ self.solved.astype(np.float32)
        explained = covariance @ self.root.T.astype(np.float32)
        prior = (1.0 - self.share) + self.share * (points.single**2).sum(1) \
            + (points.advice**2).sum(1)
        left = np.maximum(prior - (explained**2).sum(1), 1e-6)
        return mean, np.sqrt(left * self.variance)

    def near(self, points: Points, rows: Array, sharpness: float) -> Array:
        """Return how close each point is to the rows: a sum of Gaussian bumps."""
        narrow = self.inverse_scales * np.float32(sharpness)
        bumps: Array = np.exp(-_squared_distances(points.features * narrow, rows * narrow)).sum(1)
        return bumps

    def _covariance(self, points: Points) -> Array:
        features = points.features.astype(np.float32) * self.inverse_scales
        scaled = np.sqrt(5.0 * _squared_distances(features, self.scaled))
        product = (1.0 + scaled + scaled * scaled / 3.0) * np.exp(-scaled)
        covariance: Array = (1.0 - self.share) * product \
            + self.share * (points.single @ self.points.single.T)
        if points.advice.shape[1]:
            covariance += points.advice @ self.points.advice.T
        return covariance


def _factor(covariance: Array) -> Array:
    """Return the Cholesky factor, with a little more noise where rounding requires it."""
    more = 0.0
    while True:
        try:
            lower: Array = np.linalg.cholesky(covariance + more * np.eye(len(covariance)))
            return lower
        except np.linalg.LinAlgError:
            more = max(10.0 * more, 1e-6 * float(np.trace(covariance)) / len(covariance))


def _squared_distances(left: Array, right: Array) -> Array:
    """Return squared distances, rows of `left` against rows of `right`."""
    squares: Array = np.maximum((left * left).sum(1)[:, None] + (right * right).sum(1)[None]
                                - 2.0 * left @ right.T, 0.0)
    return squares
