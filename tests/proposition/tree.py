"""Random radial grids under LinDistFlow, with injections and sensor errors of which every expectation is a finite sum.

Names are those of the appendix. Bus 0 is the source; matrices have a row per bus 1..N, branch e is the one above bus e.
Injections take 4N values with equal chance: plus and minus each column of √(2N) chol(Σ). Their mean is 0 and their
covariance Σ, exactly. Errors do likewise with τ Σ, independently: (4N)² equally likely snapshots are the population.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Tree:
    """A radial grid.

    Attributes:
        parent: Of bus k + 1; parents come before children, the root is bus 0. [bus]
        r, x: Resistance and reactance of the branch above each bus. [bus]
    """

    parent: tuple[int, ...]
    r: Floats
    x: Floats

    @staticmethod
    def random(n: int, reach: int, seed: int) -> Tree:
        """A bus hangs from one of the ``reach`` buses before it: 1 is a chain, few are deep trees."""
        rng = np.random.default_rng(seed)
        parent = tuple(int(rng.integers(max(0, k - reach), k)) for k in range(1, n + 1))
        return Tree(parent, rng.uniform(0.1, 1.0, n), rng.uniform(0.0, 1.0, n))

    @property
    def n(self) -> int:
        return len(self.parent)

    @cached_property
    def paths(self) -> list[list[int]]:
        """Buses from each bus to the root, itself first, the root left out."""
        found: list[list[int]] = []
        for bus, above in enumerate(self.parent, start=1):
            found.append([bus, *(found[above - 1] if above else [])])
        return found

    @property
    def depth(self) -> int:
        """h"""
        return max(len(path) for path in self.paths)

    @property
    def rounds(self) -> int:
        """K = ⌈log2 h⌉"""
        return (self.depth - 1).bit_length()

    @cached_property
    def J(self) -> Floats:  # noqa: N802
        """1 where the column's bus is the row's parent."""
        matrix = np.zeros((self.n, self.n))
        for bus, above in enumerate(self.parent, start=1):
            if above:
                matrix[bus - 1, above - 1] = 1.0
        return matrix

    @cached_property
    def T(self) -> Floats:  # noqa: N802
        """1 where the column's bus is on the row's path to the root."""
        matrix = np.zeros((self.n, self.n))
        for bus, path in enumerate(self.paths):
            matrix[bus, np.array(path) - 1] = 1.0
        return matrix

    @cached_property
    def distance(self) -> npt.NDArray[np.int64]:
        """Branches between two buses."""
        result = np.zeros((self.n, self.n), dtype=np.int64)
        for i, one in enumerate(self.paths):
            for j, other in enumerate(self.paths):
                result[i, j] = len(one) + len(other) - 2 * len(set(one) & set(other))
        return result

    @cached_property
    def M(self) -> Floats:  # noqa: N802
        """M_* = [2R 2X], from injections [p; q] to squared voltages."""
        return 2.0 * np.hstack([self.T @ np.diag(values) @ self.T.T for values in (self.r, self.x)])

    def features(self, z: Floats) -> Floats:
        """Φ(z), linear in the branch coefficients: [output, coefficient] for z [injection]."""
        p, q = np.split(z, 2)
        return self.T @ np.hstack([np.diag(self.T.T @ p), np.diag(self.T.T @ q)])


@dataclass(frozen=True)
class Population:
    """All snapshots of a grid, equally likely.

    Attributes:
        tree: The grid.
        sigma: Σ, covariance of injections.
        tau: τ, variance of errors over that of injections.
    """

    tree: Tree
    sigma: Floats
    tau: float

    @staticmethod
    def random(tree: Tree, tau: float, seed: int) -> Population:
        """Correlated injections."""
        rng = np.random.default_rng(seed)
        mix = rng.normal(size=(2 * tree.n, 2 * tree.n)) / np.sqrt(2 * tree.n)
        return Population(tree, mix @ mix.T + 0.2 * np.eye(2 * tree.n), tau)

    @cached_property
    def snapshots(self) -> tuple[Floats, Floats]:
        """Injections and measurements. [snapshot, injection] each"""
        half = np.sqrt(2 * self.tree.n) * np.linalg.cholesky(self.sigma).T
        values = np.vstack([half, -half])
        z = np.repeat(values, len(values), axis=0)
        return z, z + np.sqrt(self.tau) * np.tile(values, (len(values), 1))

    @cached_property
    def targets(self) -> Floats:
        """y [snapshot, bus]"""
        return self.snapshots[0] @ self.tree.M.T

    def error(self, predicted: Floats) -> float:
        """E‖ŷ - y‖² of predictions [snapshot, bus]."""
        return float(np.square(predicted - self.targets).sum(axis=1).mean())

    @cached_property
    def features(self) -> Floats:
        """Φ of every measurement. [snapshot, bus, coefficient]"""
        return np.stack([self.tree.features(z) for z in self.snapshots[1]])

    @cached_property
    def hessian(self) -> Floats:
        """E[ΦᵀΦ]"""
        flat = self.features.reshape(-1, 2 * self.tree.n)
        return flat.T @ flat / len(self.features)

    def learner_error(self, w: Floats) -> float:
        """E_H of coefficients."""
        return self.error(self.features @ w)

    def descend(self, step: float, n: int) -> Floats:
        """Coefficients after each of n steps of gradient descent on half the error, from 0. [step, coefficient]"""
        flat = self.features.reshape(-1, 2 * self.tree.n)
        slope = flat.T @ self.targets.reshape(-1) / len(self.features)
        found = [np.zeros(2 * self.tree.n)]
        for _ in range(n):
            found.append(found[-1] - step * (self.hessian @ found[-1] - slope))
        return np.stack(found)

    @property
    def alpha(self) -> float:
        """α = 1/(1 + τ)"""
        return 1.0 / (1.0 + self.tau)

    @property
    def floor(self) -> float:
        """ν_τ = (1 - α) E_H(0)"""
        return (1.0 - self.alpha) * float(np.trace(self.tree.M @ self.sigma @ self.tree.M.T))

    def remaining(self, step: float, n: int) -> Floats:
        """Q_0 ... Q_n in the eigenbasis of the Hessian."""
        eigenvalue, basis = np.linalg.eigh(self.hessian)
        best = self.alpha * 2.0 * np.concatenate([self.tree.r, self.tree.x])
        c = basis.T @ -best
        powers = (1.0 - step * eigenvalue) ** (2 * np.arange(n + 1)[:, None])
        return np.asarray((eigenvalue * powers * c**2).sum(axis=1))

    # ---- predictors that only hear what is within some hops ----------------------------------------------------------

    def within(self, hops: int) -> Flags:
        """Accessible injections of every bus. [bus, injection]"""
        near = self.tree.distance <= hops
        return np.hstack([near, near])

    def unheard(self, hops: int) -> float:
        """C_ℓ, by Schur complements."""
        total = 0.0
        for near, m in zip(self.within(hops), self.tree.M, strict=True):
            far = ~near
            across = self.sigma[np.ix_(near, far)]
            schur = self.sigma[np.ix_(far, far)] - across.T @ np.linalg.solve(self.sigma[np.ix_(near, near)], across)
            total += float(m[far] @ schur @ m[far])
        return total

    def fitted(self, hops: int) -> Floats:
        """The best predictor within hops, fitted to all snapshots bus by bus. [bus, injection]"""
        measured = self.snapshots[1]
        result = np.zeros((self.tree.n, 2 * self.tree.n))
        for bus, near in enumerate(self.within(hops)):
            result[bus, near] = np.linalg.lstsq(measured[:, near], self.targets[:, bus], rcond=None)[0]
        return result
