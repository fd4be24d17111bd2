"""Image features without labels, and what follows from them: Progressive Cluster Purification.

On matrices, with scikit-learn's manners:

- :class:`KMeans`: exact, deterministic, fast with many clusters
- :class:`ProgressivePurifier`: which rows do not belong to their clusters
- :func:`find_label_issues`: how many labels are wrong, and which
- :class:`NearestNeighbors`: exact search by cosine

On images:

- :func:`train`: learn features of a folder of images, without labels; gives a :class:`Run`
- :func:`open`: a run that was trained before

>>> import numpy as np, pcp
>>> rows = np.repeat(np.eye(3, dtype=np.float32), 20, axis=0)
>>> rows += 0.1 * np.random.default_rng(0).standard_normal(rows.shape).astype(np.float32)
>>> labels = pcp.KMeans(n_clusters=3).fit_predict(rows)
>>> sorted(np.bincount(labels).tolist())
[20, 20, 20]
"""

from importlib import import_module as _import
from typing import TYPE_CHECKING

from ._pcp import __version__
from .errors import DataError, Error, FileError, TrainingError, UsageError

if TYPE_CHECKING:
    from .cluster import KMeans
    from .labels import LabelIssues, find_label_issues
    from .neighbors import NearestNeighbors
    from .purify import ProgressivePurifier
    from .run import Run, open, resume, train

# Imported when they are first used: the program starts without scikit-learn.
_PLACES = {
    "KMeans": "cluster",
    "LabelIssues": "labels",
    "find_label_issues": "labels",
    "NearestNeighbors": "neighbors",
    "ProgressivePurifier": "purify",
    "Run": "run",
    "open": "run",
    "resume": "run",
    "train": "run",
}

__all__ = ["DataError", "Error", "FileError", "TrainingError", "UsageError", "__version__", *_PLACES]


def __getattr__(name):
    if name not in _PLACES:
        raise AttributeError(f"module 'pcp' has no attribute {name!r}")
    found = getattr(_import(f".{_PLACES[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__():
    return sorted(__all__)
