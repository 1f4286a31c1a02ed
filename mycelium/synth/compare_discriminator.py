"""Can a classifier tell synthetic feeders from references? Its AUC is 0.5 if not, 1 if always."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.errors import FeederError
from mycelium.synth.statistics import COMPARED

FOLDS = 5
FEWEST = 4 * FOLDS  # feeders of each kind
_SEED = 0


@dataclass(frozen=True, slots=True)
class Discrimination:
    """Area under the ROC curve, cross-validated.

    Attributes:
        classifier: Which.
        auc: Mean over the folds.
        spread: Standard deviation over the folds.
        n_synthetic, n_reference: Feeders of each kind.
    """

    classifier: str
    auc: float
    spread: float
    n_synthetic: int
    n_reference: int


def discriminate(synthetic: pd.DataFrame, reference: pd.DataFrame) -> tuple[Discrimination, ...]:
    """Train a linear and a boosted-tree classifier on all compared facts; none if there are too few feeders.

    A fact that a model does not give is set to the median, so that a gap in records does not give a reference away.
    """
    if min(len(synthetic), len(reference)) < FEWEST:
        return ()
    x = np.concatenate([_features(synthetic), _features(reference)])
    y = np.repeat([1, 0], [len(synthetic), len(reference)])
    keep = np.isfinite(x).any(axis=0)
    impute, linear, ensemble = (_sklearn(name) for name in ("impute", "linear_model", "ensemble"))
    pipeline, scale, selection = (_sklearn(name) for name in ("pipeline", "preprocessing", "model_selection"))
    classifiers = {
        "logistic regression": linear.LogisticRegression(max_iter=1000),
        "gradient-boosted trees": ensemble.GradientBoostingClassifier(random_state=_SEED),
    }
    folds = selection.StratifiedKFold(FOLDS, shuffle=True, random_state=_SEED)
    results = []
    for name, classifier in classifiers.items():
        steps = pipeline.make_pipeline(impute.SimpleImputer(strategy="median"), scale.StandardScaler(), classifier)
        auc = selection.cross_val_score(steps, x[:, keep], y, scoring="roc_auc", cv=folds)
        results.append(Discrimination(name, float(auc.mean()), float(auc.std()), len(synthetic), len(reference)))
    return tuple(results)


def _features(table: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Compared facts, their logarithm where they span decades. [feeder, fact]"""
    values = table[list(COMPARED)].to_numpy(dtype=np.float64)
    result: npt.NDArray[np.float64] = np.sign(values) * np.log1p(np.abs(values))
    return result


def _sklearn(module: str) -> Any:
    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError as error:
        raise FeederError("the comparison needs scikit-learn; install it with `pip install scikit-learn`") from error
