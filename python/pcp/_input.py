"""What estimators are given, as Rust takes it: float32, row by row."""

from __future__ import annotations

import numbers
from importlib import import_module

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data


def rows(estimator, X, *, reset, metric="euclidean"):
    """The checked rows of X as float32; no copy where they are so already. Names of columns are kept in `feature_names_in_`."""
    X = validate_data(estimator, X, reset=reset, dtype=np.float32, order="C", accept_sparse=False)
    if metric == "cosine":
        directed(X)
    return X


def directed(X):
    """An error for rows without a direction."""
    zero = np.flatnonzero(~X.any(axis=1))
    if zero.size:
        which = ", ".join(map(str, zero[:3])) + (" and others" if zero.size > 3 else "")
        raise ValueError(f"row {which} is zero and has no direction: leave it out, or use metric='euclidean'")


def seed(random_state) -> int:
    """A seed from 0 on: an int is one; None is 0, since results never vary; a generator is asked for one."""
    if random_state is None:
        return 0
    if isinstance(random_state, numbers.Integral):
        if random_state < 0:
            raise ValueError(f"random_state is {random_state}; it may be 0 or more")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def positive(name: str, value) -> int:
    """A whole number from 1 on."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; it may be a whole number from 1 on")
    return int(value)


def clusters(n_clusters, X) -> int:
    """A number of clusters that X has rows for; 0 for "auto"."""
    if isinstance(n_clusters, str) and n_clusters == "auto":
        return 0
    k = positive("n_clusters", n_clusters)
    if k > X.shape[0]:
        raise ValueError(f"n_samples={X.shape[0]} should be >= n_clusters={k}.")
    return k


def effort(estimator) -> tuple[int, int, int]:
    """Starts, updates and seed of an estimator's k-means."""
    starts, updates = positive("n_init", estimator.n_init), positive("max_iter", estimator.max_iter)
    return starts, updates, seed(estimator.random_state)


def row_names(X):
    """The index of a pandas frame; None of anything else."""
    index = getattr(X, "index", None)
    return index if index is not None and hasattr(X, "iloc") else None


def pandas():
    """The module, or an error that says how to get it."""
    try:
        return import_module("pandas")
    except ImportError as e:
        raise ImportError("a frame needs pandas: pip install pandas") from e


def frame(columns: dict, index=None):
    """A pandas frame."""
    return pandas().DataFrame(columns, index=index)
