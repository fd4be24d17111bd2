"""pcp from Python beside faiss, scikit-learn and cleanlab, on the same rows and threads, in turn. Medians of the rounds; a ratio above 1 means that pcp is
faster. K-means starts from the same rows, does the same updates, and must not end with an objective more than 0.1 % above the peer's."""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import cleanlab
import faiss
import numpy as np
import sklearn
from cleanlab.rank import get_label_quality_scores
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import NearestNeighbors

import pcp

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--rows", type=int, default=50_000)
parser.add_argument("--embeddings", type=Path, help="a matrix of unit rows (.npy) for k-means and kNN, such as target/peers/bank.npy of benches/peers/run")
parser.add_argument("--only", choices=["kmeans", "knn", "labels"])
parser.add_argument("--labels", type=Path, help="a matrix of embeddings (.npy) with a file of true classes (.npy) beside it, named *.classes.npy")
parser.add_argument("--out", type=Path, default=Path(__file__).with_name("python.json"))
args = parser.parse_args()

DIM, K, STEPS, NEAR = 128, 1000, 20, 10
rng = np.random.default_rng(0)
# Made-up rows: groups on the sphere that overlap so much that bounds rule out little.
centres = rng.standard_normal((2000, DIM))
rows = centres[rng.integers(0, len(centres), args.rows)] + 1.5 * rng.standard_normal((args.rows, DIM))
rows = np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
if args.embeddings:
    rows = np.ascontiguousarray(np.load(args.embeddings)[: args.rows], dtype=np.float32)
    args.rows, DIM = rows.shape
start = rows[rng.choice(len(rows), K, replace=False)]
measured = {}


def row(name, sides, same):
    """Calls every side in turn; `same` is told what they gave."""
    if args.only and not name.startswith(args.only):
        return
    seconds, gave = {side: [] for side in sides}, {}
    for _ in range(args.rounds):
        for side, work in sides.items():
            began = time.perf_counter()
            gave[side] = work()
            seconds[side].append(time.perf_counter() - began)
    agreement = same(gave)
    medians = {side: statistics.median(all_of_them) for side, all_of_them in seconds.items()}
    measured[name] = {"seconds": seconds, "medians": medians, **agreement}
    shown = ", ".join(f"{side} {median:.2f} s ({median / medians['pcp']:.1f} x)" for side, median in medians.items())
    print(f"{name}: {shown}; {agreement}", flush=True)


def faiss_kmeans():
    # No subsampling, no redoing: exactly these steps on all rows.
    found = faiss.Kmeans(DIM, K, niter=STEPS, nredo=1, max_points_per_centroid=10**9, seed=1)
    found.train(rows, init_centroids=start)
    return float(found.index.search(rows, 1)[0].sum())


def objectives(gave):
    best = min(gave.values())
    assert gave["pcp"] <= 1.001 * best, gave
    return {"objective": gave}


row(
    f"kmeans {args.rows} x {DIM}, K = {K}",
    {
        "pcp": lambda: pcp.KMeans(K, init=start, max_iter=STEPS).fit(rows).inertia_,
        "faiss": faiss_kmeans,
        "scikit-learn": lambda: KMeans(K, init=start, n_init=1, max_iter=STEPS, tol=0).fit(rows).inertia_,
    },
    objectives,
)


def faiss_knn():
    index = faiss.IndexFlatIP(DIM)
    index.add(rows)
    return 1 - index.search(rows, NEAR + 1)[0][:, 1:]


def sums(gave):
    totals = {side: float(distances.sum(dtype=np.float64)) for side, distances in gave.items()}
    assert max(totals.values()) - min(totals.values()) < 1e-4 * max(totals.values()), totals
    return {"distances": totals}


row(
    f"knn {args.rows} x {DIM}, {NEAR} of all",
    {
        "pcp": lambda: pcp.NearestNeighbors(NEAR).fit(rows).kneighbors()[0],
        "faiss": faiss_knn,
        "scikit-learn": lambda: NearestNeighbors(n_neighbors=NEAR, metric="cosine").fit(rows).kneighbors()[0],
    },
    sums,
)

if args.labels:
    features, truth = np.load(args.labels).astype(np.float32), np.load(args.labels.with_suffix(".classes.npy"))
else:
    classes = rng.standard_normal((20, DIM))
    truth = rng.integers(0, 20, 5000)
    features = (classes[truth] + 2.5 * rng.standard_normal((5000, DIM))).astype(np.float32)
features /= np.linalg.norm(features, axis=1, keepdims=True)
count = int(truth.max()) + 1
wrong = np.zeros(len(truth), bool)
wrong[rng.choice(len(truth), len(truth) // 5, replace=False)] = True
labels = np.where(wrong, (truth + rng.integers(1, count, len(truth))) % count, truth)


def cleanlab_labels():
    # Its tutorial's way: out-of-sample probabilities of a logistic regression, five folds.
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    predicted = cross_val_predict(LogisticRegression(max_iter=1000), features, labels, method="predict_proba", cv=folds)
    return 1 - get_label_quality_scores(labels, predicted)


def cleanlab_at_its_best():
    # The regularisation chosen by cross-validation, as docs/purify.md compares.
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    regression = LogisticRegressionCV(Cs=np.logspace(-3, 3, 7), cv=3, max_iter=1000)
    predicted = cross_val_predict(regression, features, labels, method="predict_proba", cv=folds)
    return 1 - get_label_quality_scores(labels, predicted)


def precisions(gave):
    return {"average precision": {side: float(average_precision_score(wrong, doubt)) for side, doubt in gave.items()}}


row(
    f"labels {len(truth)} x {features.shape[1]}, {count} classes, 20 % wrong",
    {"pcp": lambda: pcp.find_label_issues(features, labels).doubt, "cleanlab": cleanlab_labels, "cleanlab, regularisation by cross-validation": cleanlab_at_its_best},
    precisions,
)
versions = {"pcp": pcp.__version__, "faiss": faiss.__version__, "scikit-learn": sklearn.__version__, "cleanlab": cleanlab.__version__}
args.out.write_text(json.dumps({"threads": os.cpu_count(), "versions": versions, "rows": measured}, indent=1) + "\n")
