"""Which labels are wrong? A share of a run's labels is flipped at random; pcp and cleanlab rank all labels by doubt on the same
embeddings, and the average precision says how well the flipped ones come first. Chance is the share itself."""

import argparse
import csv
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from cleanlab.rank import get_label_quality_scores
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("run", type=Path, help="a run folder with labels in its files.csv")
parser.add_argument("--noise", type=float, default=0.2, help="share of the labels that is flipped")
parser.add_argument("--seeds", type=int, default=5, help="how many times")
parser.add_argument("--next", action="store_true", help="flip to the next class, as people confuse things, instead of any")
parser.add_argument("--k", type=int, default=100, help="clusters of pcp purify")
args = parser.parse_args()

features = np.load(args.run / "embeddings.npy")
with open(args.run / "files.csv", newline="") as file:
    files = list(csv.DictReader(file))
classes = sorted({row["label"] for row in files})
truth = np.array([classes.index(row["label"]) for row in files])
n = len(truth)


def flipped(seed):
    """Labels of which a share is another class, each with the same chance or always the next; and which they are."""
    rng = np.random.default_rng(seed)
    wrong = np.zeros(n, bool)
    wrong[rng.choice(n, round(args.noise * n), replace=False)] = True
    labels = truth.copy()
    step = 1 if args.next else rng.integers(1, len(classes), wrong.sum())
    labels[wrong] = (truth[wrong] + step) % len(classes)
    return labels, wrong


def purify(labels, seed, *more):
    """The doubt of `pcp purify` in every label."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        with open(folder / "labels.csv", "w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["file", "label"])
            out.writerows([row["file"], classes[c]] for row, c in zip(files, labels))
        matrix = args.run / "embeddings.npy"
        command = [os.environ["PCP"], "purify", matrix, "--k", str(args.k), "--seed", str(seed), "--no-sheet", "--json"]
        command += ["--labels", folder / "labels.csv", "--out", folder / "out", *more]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(folder / "out/clusters.csv", newline="") as file:
            return np.array([float(row["label_doubt"]) for row in csv.DictReader(file)])


def cleanlab(labels, models):
    """cleanlab's self-confidence by out-of-sample probabilities, five folds, of the model that predicts them best."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    tried = [cross_val_predict(model, features, labels, method="predict_proba", cv=folds) for model in models]
    likelihood = [np.log(np.maximum(p[np.arange(n), labels], 1e-12)).sum() for p in tried]
    return 1 - get_label_quality_scores(labels, tried[int(np.argmax(likelihood))])


rows = {"chance": [], "pcp purify": []}
rows |= {"cleanlab, logistic regression, regularisation by cross-validation": [], "cleanlab, nearest neighbours, their number by cross-validation": []}
for seed in range(args.seeds):
    labels, wrong = flipped(seed)
    found = [
        np.full(n, 0.5),
        purify(labels, seed, "--no-votes"),
        cleanlab(labels, [LogisticRegression(C=c, max_iter=1000) for c in (0.1, 1, 10, 100, 1000)]),
        cleanlab(labels, [KNeighborsClassifier(k, weights="distance", metric="cosine") for k in (10, 20, 50, 100)]),
    ]
    for row, doubt in zip(rows.values(), found):
        row.append(average_precision_score(wrong, doubt))

print(f"{n} images, {len(classes)} classes, {features.shape[1]} numbers each, {args.noise:.0%} of the labels flipped{' to the next class' if args.next else ''}, {args.seeds} seeds")
print("| ranking | average precision | least to greatest |\n|---|---|---|")
for name, values in rows.items():
    print(f"| {name} | {np.mean(values):.3f} | {min(values):.3f} to {max(values):.3f} |")
