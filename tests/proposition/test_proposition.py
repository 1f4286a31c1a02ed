"""The communication proposition of the paper, number by number, on random trees.

It compares a learner with ancestor links at distances 1, 2, 4, ... to the best of all linear predictors that hear
injections within some physical hops only. Everything here is computed twice: by the formula of the appendix, and by
passing messages, descending gradients or fitting predictors over all snapshots of a population that is a finite sum.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.proposition.tree import Floats, Population, Tree

SHAPES = [(1, 1), (2, 1), (7, 1), (9, 2), (12, 2), (12, 3), (10, 10)]  # buses, reach
TREES = [Tree.random(n, reach, seed) for seed, (n, reach) in enumerate(SHAPES)]
DEEP = [Tree.random(12, 1, 20), Tree.random(13, 2, 23), Tree.random(14, 2, 31)]
IDS = [f"{tree.n} buses, depth {tree.depth}" for tree in TREES]
DEEP_IDS = [f"{tree.n} buses, depth {tree.depth}" for tree in DEEP]


@pytest.mark.parametrize("tree", TREES, ids=IDS)
def test_paths_are_powers_of_the_parent_matrix_and_the_doubling_product(tree: Tree) -> None:
    n, h = tree.n, tree.depth
    power = np.linalg.matrix_power
    assert not power(tree.J, h).any()
    np.testing.assert_array_equal(sum(power(tree.J, k) for k in range(h)), tree.T)
    np.testing.assert_allclose(-np.linalg.inv(tree.J - np.eye(n)), tree.T, atol=1e-12)
    product = np.eye(n)
    for k in range(tree.rounds):
        product = product @ (np.eye(n) + power(tree.J, 2**k))
    np.testing.assert_array_equal(product, tree.T)
    assert 2**tree.rounds >= h > 2 ** (tree.rounds - 1) or h == 1


@pytest.mark.parametrize("tree", TREES, ids=IDS)
def test_voltages_are_those_of_a_sweep_along_the_branches(tree: Tree) -> None:
    """LinDistFlow solved branch by branch: V_parent² - V_child² = 2 (r P + x Q), supplied power flowing away."""
    p, q = np.random.default_rng(0).normal(size=(2, tree.n))
    flow = np.zeros((2, tree.n))
    for bus in range(tree.n, 0, -1):  # children before parents: what a branch carries up is all below it
        flow[:, bus - 1] += (p[bus - 1], q[bus - 1])
        if tree.parent[bus - 1]:
            flow[:, tree.parent[bus - 1] - 1] += flow[:, bus - 1]
    y = np.zeros(tree.n + 1)
    for bus in range(1, tree.n + 1):
        y[bus] = y[tree.parent[bus - 1]] + 2.0 * (
            tree.r[bus - 1] * flow[0, bus - 1] + tree.x[bus - 1] * flow[1, bus - 1]
        )
    z = np.concatenate([p, q])
    np.testing.assert_allclose(tree.M @ z, y[1:], atol=1e-12)
    np.testing.assert_allclose(tree.features(z) @ (2.0 * np.concatenate([tree.r, tree.x])), y[1:], atol=1e-12)


def ancestor(tree: Tree, bus: int, distance: int) -> int | None:
    path = tree.paths[bus - 1]
    return path[distance] if distance < len(path) else None


@pytest.mark.parametrize("tree", TREES, ids=IDS)
def test_twice_log_depth_rounds_of_messages_compute_the_learner(tree: Tree) -> None:
    """Each bus hears, per round, only buses that it is linked to, and every weight but the branch's own is one."""
    rng = np.random.default_rng(1)
    z, w = rng.normal(size=2 * tree.n), rng.normal(size=2 * tree.n)
    state = np.stack(np.split(z, 2))  # two numbers of each bus
    for k in range(tree.rounds):
        heard = state.copy()
        for bus in range(1, tree.n + 1):
            above = ancestor(tree, bus, 2**k)
            if above is not None:
                heard[:, above - 1] += state[:, bus - 1]
        state = heard
    value = w[: tree.n] * state[0] + w[tree.n :] * state[1]
    for k in range(tree.rounds):
        heard = value.copy()
        for bus in range(1, tree.n + 1):
            above = ancestor(tree, bus, 2**k)
            if above is not None:
                heard[bus - 1] += value[above - 1]
        value = heard
    np.testing.assert_allclose(value, tree.features(z) @ w, atol=1e-11)


@pytest.mark.parametrize("tau", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("tree", TREES, ids=IDS)
def test_moments_of_the_population_and_the_noise_floor(tree: Tree, tau: float) -> None:
    population = Population.random(tree, tau, seed=tree.n)
    z, measured = population.snapshots
    n = len(z)
    np.testing.assert_allclose(z.T @ z / n, population.sigma, atol=1e-12)
    np.testing.assert_allclose(measured.T @ measured / n, (1.0 + tau) * population.sigma, atol=1e-12)
    residual = population.targets - population.alpha * measured @ tree.M.T
    np.testing.assert_allclose(residual.T @ measured / n, 0.0, atol=1e-11)
    best = population.alpha * 2.0 * np.concatenate([tree.r, tree.x])
    assert population.learner_error(best) == pytest.approx(population.floor, rel=1e-9, abs=1e-10)
    unrestricted = np.linalg.lstsq(measured, population.targets, rcond=None)[0]
    assert population.error(measured @ unrestricted) == pytest.approx(population.floor, rel=1e-9, abs=1e-10)
    without_noise = Population(tree, population.sigma, 0.0)
    np.testing.assert_allclose(population.hessian, (1.0 + tau) * without_noise.hessian, rtol=1e-9, atol=1e-9)
    assert np.linalg.eigvalsh(population.hessian)[0] > 0.0


def physical_rounds(tree: Tree, hops: int) -> Floats:
    """What reaches each bus when every bus sends its own number to its neighbours, and later passes on what came to all
    but where it came from. [bus, bus that it started from]"""
    neighbours: list[list[int]] = [[] for _ in range(tree.n + 1)]
    for bus, above in enumerate(tree.parent, start=1):
        neighbours[bus].append(above)
        neighbours[above].append(bus)
    own = np.eye(tree.n + 1)
    own[0] = 0.0  # the root measures nothing, but relays
    total = own.copy()
    messages = {(bus, to): own[bus] for bus in range(tree.n + 1) for to in neighbours[bus]}
    for _ in range(hops):
        arrived = {at: {start: messages[start, at] for start in neighbours[at]} for at in range(tree.n + 1)}
        for at, came in arrived.items():
            total[at] = total[at] + sum(came.values())
        messages = {
            (at, to): sum((part for start, part in arrived[at].items() if start != to), np.zeros(tree.n + 1))
            for at in range(tree.n + 1)
            for to in neighbours[at]
        }
    return np.asarray(total[1:, 1:])


@pytest.mark.parametrize("tree", TREES, ids=IDS)
def test_physical_rounds_bring_each_measurement_within_reach_once_and_no_other(tree: Tree) -> None:
    for hops in range(int(tree.distance.max()) + 2):
        np.testing.assert_array_equal(physical_rounds(tree, hops), tree.distance <= hops)


@pytest.mark.parametrize("tau", [0.0, 0.5])
@pytest.mark.parametrize("tree", TREES, ids=IDS)
def test_the_best_local_predictor_misses_what_schur_complements_say(tree: Tree, tau: float) -> None:
    """Fitted bus by bus over all snapshots, for every number of hops; more hops never hurt."""
    population = Population.random(tree, tau, seed=tree.n + 1)
    misses = []
    for hops in range(int(tree.distance.max()) + 1):
        misses.append(population.unheard(hops))
        found = population.error(population.snapshots[1] @ population.fitted(hops).T)
        assert found == pytest.approx(population.floor + population.alpha * misses[-1], rel=1e-8, abs=1e-9)
        matters = (tree.M[:, : tree.n] ** 2 + tree.M[:, tree.n :] ** 2 > 0.0) & (tree.distance > hops)
        assert (misses[-1] > 1e-12) == matters.any()
    assert misses == sorted(misses, reverse=True) and misses[-1] == 0.0
    assert misses[0] <= np.trace(tree.M @ population.sigma @ tree.M.T)


@pytest.mark.parametrize("tau", [0.0, 0.7])
@pytest.mark.parametrize("tree", TREES, ids=IDS)
def test_gradient_descent_leaves_what_the_spectrum_says(tree: Tree, tau: float) -> None:
    population = Population.random(tree, tau, seed=3)
    step = 1.7 / float(np.linalg.eigvalsh(population.hessian)[-1])
    descended = population.descend(step, 40)
    remaining = population.remaining(step, 40)
    found = [population.learner_error(w) for w in descended[::8]]
    np.testing.assert_allclose(found, population.floor + remaining[::8], rtol=1e-8, atol=1e-9)
    assert remaining[0] == pytest.approx(population.alpha * population.learner_error(descended[0]))
    assert (np.diff(remaining) <= 1e-12).all()


@pytest.mark.parametrize("tau", [0.0, 0.7])
@pytest.mark.parametrize("tree", DEEP, ids=DEEP_IDS)
def test_the_gap_of_errors_is_exact_for_any_local_predictor(tree: Tree, tau: float) -> None:
    """E_P(F) - E_H(n) = C/(1+τ) - Q_n + (1+τ) Σ δ Σ_AA δᵀ, for the best F and for others."""
    population = Population.random(tree, tau, seed=5)
    hops = 2 * tree.rounds
    step = 1.0 / float(np.linalg.eigvalsh(population.hessian)[-1])
    remaining, descended = population.remaining(step, 30), population.descend(step, 30)
    best, near = population.fitted(hops), population.within(hops)
    rng = np.random.default_rng(6)
    for size in (0.0, 0.1, 3.0):
        delta = size * rng.normal(size=best.shape) * near
        excess = (1.0 + tau) * float(np.einsum("ij,jk,ik->", delta, population.sigma, delta))
        local = population.error(population.snapshots[1] @ (best + delta).T)
        for n in (1, 10, 30):
            expected = population.alpha * population.unheard(hops) - remaining[n] + excess
            found = local - population.learner_error(descended[n])
            assert found == pytest.approx(expected, rel=1e-7, abs=1e-8)


def crossing(population: Population, hops: int, base_step: float, limit: int) -> int:
    """n♯ by the formula."""
    remaining = population.remaining(base_step * population.alpha, limit)
    below = np.flatnonzero(remaining < population.alpha * population.unheard(hops))
    assert len(below), f"no crossing in {limit} steps"
    return int(below[0])


@pytest.mark.parametrize("tree", DEEP, ids=DEEP_IDS)
def test_the_first_step_that_beats_every_local_predictor_is_the_one_said_at_any_noise(tree: Tree) -> None:
    quiet = Population.random(tree, 0.0, seed=7)
    hops = 2 * tree.rounds
    assert quiet.unheard(hops) > 0.0
    base_step = 1.0 / float(np.linalg.eigvalsh(quiet.hessian)[-1])
    steps = {}
    for tau in (0.0, 0.5, 3.0):
        population = Population(tree, quiet.sigma, tau)
        first = crossing(population, hops, base_step, 20_000)
        local = population.error(population.snapshots[1] @ population.fitted(hops).T)
        descended = population.descend(base_step * population.alpha, first + 50)
        assert population.learner_error(descended[first]) < local
        assert first == 0 or population.learner_error(descended[first - 1]) >= local
        assert all(population.learner_error(w) < local for w in descended[first::10])
        steps[tau] = first
    assert len(set(steps.values())) == 1, steps
    assert steps[0.0] > 0


def test_where_nothing_is_unheard_nothing_can_be_won() -> None:
    """A shallow tree: every bus hears all that matters within the budget, and the best local predictor is optimal."""
    tree = Tree.random(10, 10, 4)
    population = Population.random(tree, 0.4, seed=8)
    hops = int(tree.distance.max())
    assert population.unheard(hops) == 0.0
    local = population.error(population.snapshots[1] @ population.fitted(hops).T)
    assert local == pytest.approx(population.floor)
    step = 1.0 / float(np.linalg.eigvalsh(population.hessian)[-1])
    assert all(population.learner_error(w) >= local for w in population.descend(step, 30)[1::10])
