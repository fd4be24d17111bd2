"""K-means, neighbours, purification and wrong labels, beside plain NumPy."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import pcp


def lloyd(X, centroids, steps):
    """Plain k-means in double precision, without repair of empty clusters."""
    X, centroids = X.astype(np.float64), centroids.astype(np.float64)
    assigned = lambda: ((X[:, None] - centroids[None]) ** 2).sum(2).argmin(1)
    for _ in range(steps):
        of = assigned()
        centroids = np.stack([X[of == k].mean(0) for k in range(len(centroids))])
    return assigned(), centroids


def test_kmeans_is_lloyds(blobs):
    X, _ = blobs
    start = X[:10]
    found = pcp.KMeans(10, init=start, max_iter=7).fit(X)
    labels, centroids = lloyd(X, start, 7)
    assert np.array_equal(found.labels_, labels)
    assert np.allclose(found.cluster_centers_, centroids, atol=1e-5)
    assert found.inertia_ == pytest.approx(((X - centroids[labels]) ** 2).sum(), rel=1e-5)
    assert np.array_equal(found.predict(X), labels)
    assert found.score(X) == pytest.approx(-found.inertia_, rel=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_groups_are_found_the_same_way_every_time(blobs, metric, init):
    X, of = blobs
    fit = lambda: pcp.KMeans(10, metric=metric, init=init, n_init=10).fit(X)
    first, second = fit(), fit()
    assert adjusted_rand_score(of, first.labels_) > 0.99
    assert np.array_equal(first.cluster_centers_, second.cluster_centers_)
    if metric == "cosine":
        assert np.allclose(np.linalg.norm(first.cluster_centers_, axis=1), 1)


def test_the_number_of_groups_is_found(blobs):
    kmeans = pcp.KMeans("auto").fit(blobs[0])
    assert 9 <= kmeans.n_clusters_ <= 11
    assert max(kmeans.silhouettes_, key=kmeans.silhouettes_.get) == kmeans.n_clusters_


def test_degenerate_rows():
    one = np.ones((1, 3))
    assert pcp.KMeans(1).fit_predict(one).tolist() == [0]
    same = np.ones((9, 3))
    assert pcp.KMeans(3).fit(same).inertia_ < 1e-6
    apart = np.arange(7.0)[:, None]
    assert pcp.KMeans(7).fit(apart).inertia_ == 0
    with pytest.raises(ValueError, match="0 sample"):
        pcp.KMeans(1).fit(np.zeros((0, 3)))
    with pytest.raises(ValueError, match="row 1 is zero"):
        pcp.KMeans(1, metric="cosine").fit([[1.0, 0], [0, 0]])
    assert pcp.ProgressivePurifier().fit(one).status_.tolist() == ["instance"]


def test_neighbours_are_those_of_all_cosines(blobs):
    X, _ = blobs
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    queries = np.random.default_rng(1).standard_normal((500, 16)).astype(np.float32)
    search = pcp.NearestNeighbors(7).fit(X)
    for given, rows in ((queries, queries / np.linalg.norm(queries, axis=1, keepdims=True)), (None, unit)):
        cosines = rows.astype(np.float64) @ unit.T
        if given is None:
            np.fill_diagonal(cosines, -2)
        truth = np.sort(1 - cosines, axis=1)[:, :7]
        distances, indices = search.kneighbors(given)
        assert np.allclose(distances, truth, atol=1e-5)
        assert np.allclose(np.take_along_axis(1 - cosines, indices, 1), truth, atol=1e-5)
    with pytest.raises(ValueError, match="n_neighbors is 300, and there are 299"):
        search.kneighbors(n_neighbors=300)


def test_what_does_not_belong_comes_first(blobs):
    X, of = blobs
    strange = [3, 77, 205]
    X[strange] = np.random.default_rng(5).standard_normal((3, 16))
    purifier = pcp.ProgressivePurifier(10).fit(X)
    assert set(strange) == set(np.argsort(-purifier.doubt_)[:3].tolist())
    assert set(purifier.suspicious_.tolist()) == set(np.flatnonzero(~purifier.kept_mask_).tolist())
    assert np.array_equal(purifier.kept_mask_, np.isin(purifier.status_, ["kept", "pulled_back"]))
    assert purifier.summary_["votes"] == 15 and purifier.summary_["votes_from"] == "repeated k-means"
    earlier = X + 0.01 * np.random.default_rng(6).standard_normal(X.shape)
    voted = pcp.ProgressivePurifier(10).fit(X, past=[earlier, earlier])
    assert voted.summary_["votes"] == 2 and voted.summary_["votes_from"] == "the matrices before"
    alone = pcp.ProgressivePurifier(10, votes=0).fit(X)
    assert set(strange) == set(alone.suspicious_[:3].tolist())
    assert np.isnan(alone.vote_).all()


def test_wrong_labels_are_found(blobs):
    X, of = blobs
    names = np.array(list("abcdefghij"))
    labels = names[of]
    wrong = [5, 50, 150, 222]
    labels[wrong] = names[(of[wrong] + 1) % 10]
    issues = pcp.find_label_issues(X, labels)
    assert set(wrong) == set([*issues.errors, *issues.doubtful][:4]) and len(issues.errors) >= 2
    assert np.array_equal(np.flatnonzero(issues.mask), np.sort(issues.errors))
    assert (issues.suggested[wrong] == names[of[wrong]]).all()
    noise = issues.summary["noise"]
    assert noise["low"] <= 4 / 300 <= noise["high"]
    assert "of the labels are wrong" in str(issues)
    # Labels of any kind, some missing.
    unknown = labels.astype(object)
    unknown[7] = None
    found = pcp.find_label_issues(X, unknown)
    assert set(found.errors.tolist()) <= set(wrong) and np.isnan(found.doubt[7])
    numbers = of.astype(float)
    numbers[3] = np.nan
    assert pcp.find_label_issues(X, numbers).summary["labels"] == 299
    with pytest.raises(ValueError, match="one label for each of the 300 rows"):
        pcp.find_label_issues(X, labels[:10])


def test_the_same_array_is_not_changed(blobs):
    X, of = blobs
    before = X.copy()
    pcp.KMeans(10, metric="cosine").fit(X)
    pcp.ProgressivePurifier(10).fit(X)
    pcp.find_label_issues(X, of)
    assert np.array_equal(X, before)
