"""K-means."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted

from . import _pcp
from ._input import clusters, effort, rows
from .progress import shown


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Exact k-means, deterministic on any number of threads, made for many clusters.

    Lloyd's iterations with bounds that skip what cannot change; an empty cluster splits a large one. The same `random_state` gives the same
    bits. Computes in float32: an array of that type is taken as it is.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters; "auto" takes the one with the greatest mean silhouette.
    metric : {"euclidean", "cosine"}, default="euclidean"
        With "cosine", rows and centroids are scaled to unit length.
    init : {"k-means++", "random"} or array of shape (n_clusters, n_features), default="k-means++"
        The first centroids: spread, distinct random rows, or these.
    n_init : int, default=3
        Starts, of which the best counts; one where `init` is an array.
    max_iter : int, default=30
        Updates of the centroids; all are made, since converged ones cost next to nothing.
    random_state : int, RandomState or None, default=0
        Everything random follows from it; None is 0.
    verbose : bool, default=False
        Show progress.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, n_iter_, n_clusters_, n_features_in_, feature_names_in_
        As in scikit-learn; `n_clusters_` is the number that was made.
    distances_ : array of shape (n_samples,)
        Distance of every row to its centroid.
    silhouettes_ : dict
        The mean silhouette of every number that was tried; empty unless `n_clusters` is "auto".

    Examples
    --------
    >>> import numpy as np
    >>> from pcp import KMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> kmeans = KMeans(n_clusters=2, random_state=0).fit(X)
    >>> bool(kmeans.labels_[0] == kmeans.labels_[1] != kmeans.labels_[3])
    True
    >>> kmeans.cluster_centers_[kmeans.predict([[0, 0], [12, 3]])].tolist()
    [[1.0, 2.0], [10.0, 2.0]]
    """

    def __init__(
        self, n_clusters=8, *, metric="euclidean", init="k-means++", n_init=3, max_iter=30, random_state=0, verbose=False
    ):
        self.n_clusters = n_clusters
        self.metric = metric
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y=None):
        """Clusters the rows of X; y is not used."""
        X = rows(self, X, reset=True, metric=self.metric)
        k, (starts, steps, first), start = clusters(self.n_clusters, X), effort(self), None
        if not isinstance(self.init, str):
            start = np.ascontiguousarray(self.init, dtype=np.float32)
            if start.ndim != 2 or k == 0:
                raise ValueError("init is an array of first centroids, n_clusters rows of n_features numbers")
        elif self.init not in ("k-means++", "random"):
            raise ValueError(f"init is {self.init!r}; it may be 'k-means++', 'random' or an array")
        found = shown(
            lambda progress: _pcp.kmeans(
                X, k, self.metric, start, start is None and self.init == "random", starts, steps, first, progress
            ),
            self.verbose,
        )
        self.labels_, self.cluster_centers_, self.distances_, self.inertia_, tried = found
        self.silhouettes_ = dict(tried)
        self.n_clusters_ = self.cluster_centers_.shape[0]
        self.n_iter_ = steps
        return self

    @property
    def _n_features_out(self):
        return self.cluster_centers_.shape[0]

    def _assigned(self, X):
        check_is_fitted(self)
        X = rows(self, X, reset=False, metric=self.metric)
        return _pcp.assign(X, np.ascontiguousarray(self.cluster_centers_, dtype=np.float32), self.metric)

    def predict(self, X):
        """The nearest centroid of every row."""
        return self._assigned(X)[0]

    def transform(self, X):
        """Distances of every row to all centroids."""
        check_is_fitted(self)
        X = rows(self, X, reset=False, metric=self.metric)
        return euclidean_distances(normalize(X) if self.metric == "cosine" else X, self.cluster_centers_)

    def score(self, X, y=None):
        """The negative sum of squared distances to the nearest centroids."""
        distances = self._assigned(X)[1].astype(np.float64)
        return -float(distances @ distances)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
