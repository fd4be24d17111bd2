"""scikit-learn's own checks of estimators, and frames."""

import pickle

import numpy as np
import pandas
import polars
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import pcp

# Checks that an estimator does not pass, each with its reason.
EXPECTED = {
    "cosine": {"check_estimators_dtypes": "one of its rows of whole numbers is zero, which has no direction: that is an error"},
}


@parametrize_with_checks(
    [pcp.KMeans(n_clusters=3), pcp.ProgressivePurifier(metric="euclidean"), pcp.ProgressivePurifier(), pcp.NearestNeighbors(n_neighbors=1)],
    expected_failed_checks=lambda estimator: EXPECTED.get(getattr(estimator, "metric", None), {}),
)
def test_an_estimator_passes_scikit_learns_checks(estimator, check):
    check(estimator)


def test_frames_keep_their_names(blobs):
    X, _ = blobs
    columns = [f"f{i}" for i in range(X.shape[1])]
    names = [f"row{i}" for i in range(len(X))]
    pandas_frame = pandas.DataFrame(X, columns=columns, index=names)
    polars_frame = polars.DataFrame(X, schema=columns)
    plain = pcp.KMeans(10).fit(X)
    for frame in (pandas_frame, polars_frame):
        kmeans = pcp.KMeans(10).fit(frame)
        assert list(kmeans.feature_names_in_) == columns
        assert np.array_equal(kmeans.labels_, plain.labels_)
    assert list(plain.get_feature_names_out()[:2]) == ["kmeans0", "kmeans1"]
    out = pcp.KMeans(10).set_output(transform="pandas").fit(pandas_frame).transform(pandas_frame)
    assert list(out.index) == names and out.shape == (300, 10)
    purified = pcp.ProgressivePurifier(10).fit(pandas_frame).to_frame()
    assert list(purified.index) == names
    assert set(purified.columns) == {"cluster", "status", "kept", "distance", "vote", "doubt"}
    issues = pcp.find_label_issues(pandas_frame, pandas.Series(plain.labels_, index=names))
    assert list(issues.to_frame().index) == names


def test_estimators_are_cloned_pickled_and_piped(blobs):
    X, _ = blobs
    for estimator in (pcp.KMeans(10), pcp.ProgressivePurifier(10)):
        fitted = clone(estimator).fit(X)
        assert np.array_equal(pickle.loads(pickle.dumps(fitted)).labels_, fitted.labels_)
    piped = make_pipeline(StandardScaler(), pcp.KMeans(10)).fit(X)
    assert piped.transform(X).shape == (300, 10)


@pytest.mark.parametrize(
    "estimator, message",
    [
        (pcp.KMeans(0), "n_clusters is 0"),
        (pcp.KMeans(2.5), "n_clusters is 2.5"),
        (pcp.KMeans(301), "n_samples=300 should be >= n_clusters=301"),
        (pcp.KMeans(metric="manhattan"), "'cosine' or 'euclidean'"),
        (pcp.KMeans(init="first"), "'k-means\\+\\+', 'random' or an array"),
        (pcp.KMeans(2, init=np.zeros((3, 16))), "3 first centroids"),
        (pcp.KMeans(max_iter=0), "max_iter is 0"),
        (pcp.KMeans(random_state=-1), "random_state is -1"),
        (pcp.ProgressivePurifier(gamma=1.0), "`gamma` is out of range"),
        (pcp.ProgressivePurifier(votes=1, alpha=0.1, lower=-5), "no vote can fall below"),
        (pcp.NearestNeighbors(0), "n_neighbors is 0"),
    ],
)
def test_wrong_arguments_are_named(blobs, estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(blobs[0])
