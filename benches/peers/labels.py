"""Which labels are wrong? A share of a run's labels is flipped at random; pcp and cleanlab rank all labels by doubt on the same
embeddings, and the average precision says how well the flipped ones come first. Chance is the share itself. What pcp says of
all labels together, the share that is wrong and which ones are, stands below, also for labels as they are (--noise 0)."""

import argparse
import csv
import importlib.metadata
import json
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
parser.add_argument("--noise", type=float, default=[0.2], nargs="+", help="share of the labels that is flipped, or several; 0 flips none")
parser.add_argument("--seeds", type=int, default=5, help="how many times")
parser.add_argument("--next", action="store_true", help="flip to the next class, as people confuse things, instead of any")
parser.add_argument("--k", type=int, default=100, help="clusters of pcp purify")
parser.add_argument("--record", metavar="NAME", help="keep the figures in labels.json beside this script, as NAME")
args = parser.parse_args()

features = np.load(args.run / "embeddings.npy")
with open(args.run / "files.csv", newline="") as file:
    files = list(csv.DictReader(file))
classes = sorted({row["label"] for row in files})
truth = np.array([classes.index(row["label"]) for row in files])
n = len(truth)


def flipped(noise, seed):
    """Labels of which a share is another class, each with the same chance or always the next; and which they are."""
    rng = np.random.default_rng(seed)
    wrong = np.zeros(n, bool)
    wrong[rng.choice(n, round(noise * n), replace=False)] = True
    labels = truth.copy()
    step = 1 if args.next else rng.integers(1, len(classes), wrong.sum())
    labels[wrong] = (truth[wrong] + step) % len(classes)
    return labels, wrong


def purify(labels, seed, *more):
    """The doubt of `pcp purify` in every label, which labels it calls wrong, and its summary."""
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
            rows = list(csv.DictReader(file))
        summary = json.loads((folder / "out/summary.json").read_text())["labels"]
    doubt, wrong = (np.array([float(row[column]) for row in rows]) for column in ("label_doubt", "label_wrong"))
    return doubt, wrong > 0.5, summary


def cleanlab(labels, models):
    """cleanlab's self-confidence by out-of-sample probabilities, five folds, of the model that predicts them best."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    tried = [cross_val_predict(model, features, labels, method="predict_proba", cv=folds) for model in models]
    likelihood = [np.log(np.maximum(p[np.arange(n), labels], 1e-12)).sum() for p in tried]
    return 1 - get_label_quality_scores(labels, tried[int(np.argmax(likelihood))])


def measured(noise):
    """Average precisions of all rankings, and what pcp says of the labels, a draw each."""
    rankings = {"chance": [], "pcp purify": []}
    rankings |= {"cleanlab, logistic regression, regularisation by cross-validation": [], "cleanlab, nearest neighbours, their number by cross-validation": []}
    said = []
    for seed in range(args.seeds if noise > 0 else 1):
        labels, wrong = flipped(noise, seed)
        doubt, called, summary = purify(labels, seed, "--no-votes")
        estimate = {key: round(100 * summary["noise"][key], 1) for key in ("share", "low", "high", "recognised")}
        said.append(estimate | {"weak": summary["weak"], "called": int(called.sum()), "called_and_flipped": int((called & wrong).sum())})
        if noise == 0:
            continue
        found = [
            np.full(n, 0.5),
            doubt,
            cleanlab(labels, [LogisticRegression(C=c, max_iter=1000) for c in (0.1, 1, 10, 100, 1000)]),
            cleanlab(labels, [KNeighborsClassifier(k, weights="distance", metric="cosine") for k in (10, 20, 50, 100)]),
        ]
        for ranking, doubt in zip(rankings.values(), found):
            ranking.append(round(float(average_precision_score(wrong, doubt)), 3))
    return rankings if noise > 0 else {}, said


what = {"images": n, "classes": len(classes), "numbers": features.shape[1], "flipped to": "the next class" if args.next else "any other class"}
print(", ".join(f"{key} {value}" for key, value in what.items()))
results = {}
for noise in args.noise:
    rankings, said = measured(noise)
    results[f"{noise:g}"] = {"average precision": rankings, "pcp purify": said}
    print(f"\n{noise:.0%} of the labels flipped, {len(said)} draws")
    if rankings:
        print("| ranking | average precision | least to greatest |\n|---|---|---|")
    for name, values in rankings.items():
        print(f"| {name} | {np.mean(values):.3f} | {min(values):.3f} to {max(values):.3f} |")
    for one in said:
        weak = ": too weak to tell" if one["weak"] else ""
        print(f"pcp purify: {one['share']} % wrong ({one['low']} to {one['high']}), {one['called']} called wrong, {one['called_and_flipped']} of them flipped; recognises {one['recognised']} %{weak}")

if args.record:
    path = Path(__file__).with_name("labels.json")
    records = json.loads(path.read_text()) if path.exists() else {}
    version = lambda package: importlib.metadata.version(package)
    command = f"benches/peers/run-labels RUN --noise {' '.join(f'{x:g}' for x in args.noise)} --seeds {args.seeds}{' --next' if args.next else ''}"
    made_by = json.loads((args.run / "result.json").read_text())["command"] if (args.run / "result.json").exists() else None
    records[args.record] = what | {"RUN": made_by, "command": command, "cleanlab": version("cleanlab"), "scikit-learn": version("scikit-learn"), "noise": results}
    path.write_text(json.dumps(records, indent=1) + "\n")
