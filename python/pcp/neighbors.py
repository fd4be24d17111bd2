"""Nearest neighbours."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from . import _pcp
from ._input import positive, rows
from .progress import shown


class NearestNeighbors(BaseEstimator):
    """Exact nearest neighbours by cosine; of equals the lower row comes first. A zero row has the cosine 0 with all others.

    Parameters
    ----------
    n_neighbors : int, default=5
        Neighbours of a row.
    verbose : bool, default=False
        Show progress.

    Examples
    --------
    >>> import numpy as np
    >>> from pcp import NearestNeighbors
    >>> X = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]])
    >>> distances, indices = NearestNeighbors(n_neighbors=1).fit(X).kneighbors()
    >>> indices.ravel().tolist()
    [1, 0, 3, 2]
    """

    def __init__(self, n_neighbors=5, *, verbose=False):
        self.n_neighbors = n_neighbors
        self.verbose = verbose

    def fit(self, X, y=None):
        """Keeps the rows of X; y is not used."""
        positive("n_neighbors", self.n_neighbors)
        self._rows = rows(self, X, reset=True)
        self.n_samples_fit_ = self._rows.shape[0]
        return self

    def kneighbors(self, X=None, n_neighbors=None, return_distance=True):
        """Cosine distances (1 - cosine) and indices of the nearest rows, nearest first. Without X, those of every fitted row, itself left out."""
        check_is_fitted(self)
        k = positive("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors)
        queries = None if X is None else rows(self, X, reset=False)
        most = self.n_samples_fit_ - (X is None)
        if k > most:
            raise ValueError(f"n_neighbors is {k}, and there are {most} rows to find")
        cosines, indices = shown(lambda progress: _pcp.nearest(queries, self._rows, k, progress), self.verbose)
        return (np.clip(1 - cosines, 0, 2), indices) if return_distance else indices
