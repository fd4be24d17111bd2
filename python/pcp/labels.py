"""Wrong labels."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
from sklearn.utils import check_array

from . import _pcp
from ._input import directed, frame, row_names, seed
from .progress import shown


@dataclass(frozen=True)
class LabelIssues:
    """What is known about labels; see :func:`find_label_issues`."""

    errors: np.ndarray
    """Rows whose label is more probably wrong than right, the most doubtful first."""
    doubtful: np.ndarray
    """Rows whose label is probably right, though another one fits better, the most doubtful first."""
    suggested: np.ndarray
    """The label that fits every row best."""
    doubt: np.ndarray
    """How badly every label fits, from 0 to 1; NaN for a row without a label."""
    probability: np.ndarray
    """The probability that it is wrong."""
    labels: np.ndarray = field(repr=False)
    """The labels that were checked."""
    summary: dict
    """Key figures: `noise` has the estimated share of wrong labels with an interval of 95 %, and how many of them these features recognise."""
    sentence: str
    """The estimate in a sentence."""
    index: object = field(default=None, repr=False)

    @property
    def mask(self) -> np.ndarray:
        """True for rows whose label is more probably wrong than right."""
        mask = np.zeros(len(self.labels), dtype=bool)
        mask[self.errors] = True
        return mask

    def to_frame(self):
        """A pandas frame with a line per row, under the names that X had."""
        columns = {
            "label": self.labels,
            "suggested": self.suggested,
            "doubt": self.doubt,
            "probability": self.probability,
            "is_error": self.mask,
        }
        return frame(columns, self.index)

    def __str__(self) -> str:
        return self.sentence


def find_label_issues(X, y, *, metric="cosine", random_state=0, verbose=False) -> LabelIssues:
    """How many labels of rows are wrong, and which.

    Two predictions that never use a row's own label (ridge regression with the row left out, and a vote of its nearest neighbours) are
    weighted by their likelihood, together with the share of wrong labels; a label's probability of being wrong follows by Bayes' rule.

    Parameters
    ----------
    X : array or frame of shape (n_samples, n_features)
        Embeddings.
    y : array of shape (n_samples,)
        Labels of any kind; None or NaN where there is none.
    metric : {"cosine", "euclidean"}, default="cosine"
        Whether rows are scaled to unit length first.
    random_state, verbose
        As in :class:`KMeans`.

    Examples
    --------
    >>> import numpy as np
    >>> from pcp import find_label_issues
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["cat", "dog", "owl"], 40)
    >>> X = np.repeat(np.eye(3), 40, axis=0) + 0.2 * rng.standard_normal((120, 3))
    >>> y[3] = "owl"
    >>> issues = find_label_issues(X, y)
    >>> issues.errors.tolist(), str(issues.suggested[3])
    ([3], 'cat')
    """
    index = row_names(X)
    X = check_array(X, dtype=np.float32, order="C")
    if metric == "cosine":
        directed(X)
    labels = np.asarray(y)
    if labels.shape != (X.shape[0],):
        raise ValueError(f"y has the shape {labels.shape}; there must be one label for each of the {X.shape[0]} rows")
    # What is not equal to itself is NaN.
    known = np.array([label is not None and label == label for label in labels.tolist()], dtype=bool)
    classes, codes = np.unique(labels[known].tolist() if labels.dtype == object else labels[known], return_inverse=True)
    own = np.full(len(labels), -1, dtype=np.int64)
    own[known] = codes
    found = shown(
        lambda progress: _pcp.label_issues(X, own, max(1, len(classes)), metric, seed(random_state), progress), verbose
    )
    suggested = labels.copy()
    suggested[known] = classes[found["suggested"][known]]
    return LabelIssues(
        errors=found["errors"],
        doubtful=found["doubtful"],
        suggested=suggested,
        doubt=found["doubt"],
        probability=found["wrong"],
        labels=labels,
        summary=json.loads(found["summary"]),
        sentence=found["sentence"],
        index=index,
    )
