"""Purification of clusters."""

from __future__ import annotations

import json

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin

from . import _pcp
from ._input import clusters, effort, frame, positive, row_names, rows
from .progress import shown


class ProgressivePurifier(ClusterMixin, BaseEstimator):
    """Clusters rows, and says which of them do not belong to their cluster (Progressive Cluster Purification).

    Of every cluster, the share `gamma` that is farthest from its centre is *filtered*. Past clusterings correct that by a vote, V: a row near the
    centre that was seldom in one cluster with it before is *dropped*, and a row far from it that nearly always was is *pulled back*. The past is
    `fit(X, past=[...])`, earlier embeddings of the same rows; without, k-means is repeated on random halves of the rows.

    Parameters
    ----------
    n_clusters : int, "auto" or None, default=None
        Number of clusters; "auto" takes the one with the greatest mean silhouette, None one per 50 rows, 2 to 1,000.
    gamma : float, default=0.5
        Share of a cluster that is filtered at first, from 0 to below 1.
    votes : int, default=15
        Clusterings that vote; 0 for distance alone.
    alpha, lower, upper : float or None
        How much a vote counts less for every step it is older; the vote below which a row is dropped; the vote from which it is pulled back.
        None takes the paper's.
    metric : {"cosine", "euclidean"}, default="cosine"
        What counts as near.
    n_init, max_iter, random_state, verbose
        As in :class:`KMeans`.

    Attributes
    ----------
    labels_ : array of int
        The cluster of every row.
    status_ : array of str
        What became of it: kept, filtered, dropped, pulled_back or instance (alone).
    kept_mask_ : array of bool
        Whether it belongs: kept or pulled_back.
    doubt_ : array of float
        How doubtful it is that it belongs, from 0 to 1.
    vote_, distance_ : array of float
        V, NaN where no vote was counted; distance to the mean of its cluster.
    suspicious_ : array of int
        Rows that do not belong, those that belong least first.
    summary_ : dict
        Key figures.

    Examples
    --------
    >>> import numpy as np
    >>> from pcp import ProgressivePurifier
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat(np.eye(4), 30, axis=0) + 0.05 * rng.standard_normal((120, 4))
    >>> X[7] = [1, 1, 1, 1]
    >>> purifier = ProgressivePurifier(n_clusters=4).fit(X)
    >>> int(purifier.suspicious_[0]), str(purifier.status_[7])
    (7, 'filtered')
    """

    def __init__(
        self, n_clusters=None, *, gamma=0.5, votes=15, alpha=None, lower=None, upper=None, metric="cosine", n_init=3, max_iter=30,
        random_state=0, verbose=False
    ):  # fmt: skip
        self.n_clusters = n_clusters
        self.gamma = gamma
        self.votes = votes
        self.alpha = alpha
        self.lower = lower
        self.upper = upper
        self.metric = metric
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y=None, *, past=()):
        """Clusters and purifies the rows of X; `past` has earlier matrices of the same rows, the oldest first. y is not used."""
        self._index = row_names(X)
        X = rows(self, X, reset=True, metric=self.metric)
        older = [np.ascontiguousarray(matrix, dtype=np.float32) for matrix in past]
        k = None if self.n_clusters is None else clusters(self.n_clusters, X)
        votes = self.votes if self.votes == 0 else positive("votes", self.votes)
        starts, steps, first = effort(self)
        found = shown(
            lambda progress: _pcp.purify(
                X, older, k, self.gamma, votes, self.alpha, self.lower, self.upper, self.metric, starts, steps, first, progress
            ),
            self.verbose,
        )
        self.labels_ = found["cluster"]
        self.status_ = np.array(found["status"])
        self.kept_mask_ = found["kept"]
        self.distance_, self.vote_, self.doubt_ = found["distance"], found["vote"], found["doubt"]
        self.suspicious_ = found["suspicious"]
        self.summary_ = json.loads(found["summary"])
        self.n_clusters_ = self.summary_["clusters"]
        self.n_iter_ = steps
        return self

    def to_frame(self):
        """A pandas frame with a line per row of X, under the names that X had."""
        columns = {
            "cluster": self.labels_,
            "status": self.status_,
            "kept": self.kept_mask_,
            "distance": self.distance_,
            "vote": self.vote_,
            "doubt": self.doubt_,
        }
        return frame(columns, self._index)
