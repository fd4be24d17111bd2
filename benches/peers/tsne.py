"""t-SNE of embeddings, by pcp and by scikit-learn's Barnes-Hut in turn: seconds and trustworthiness of both, also written to
benches/peers/tsne.json. Fails when pcp is slower, or less trustworthy by more than 0.01."""

import json
import os
import statistics
import subprocess
import sys
import time

import numpy
from sklearn.manifold import TSNE, trustworthiness


def ours(path):
    line = [os.environ["PCP"], "bench", "tsne", "--input", path, "--json"]
    report = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    return report["seconds"], report["trustworthiness"]


def theirs(features):
    started = time.perf_counter()
    places = TSNE(init="pca", learning_rate="auto", random_state=0, n_jobs=os.cpu_count()).fit_transform(features)
    return time.perf_counter() - started, trustworthiness(features, places, n_neighbors=5)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: benches/peers/run-tsne RUN/embeddings.npy [ROUNDS]")
    features = numpy.load(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) == 3 else 3
    pairs = [(ours(sys.argv[1]), theirs(features)) for _ in range(rounds)]
    found = {}
    for name, side in [("pcp", 0), ("scikit-learn", 1)]:
        seconds = statistics.median(pair[side][0] for pair in pairs)
        found[name] = {"seconds": seconds, "trustworthiness": pairs[-1][side][1]}
        print(f"{name:>12}: {seconds:7.2f} s, trustworthiness {pairs[-1][side][1]:.4f}")
    report = {"command": f"benches/peers/run-tsne RUN/embeddings.npy {rounds}", "rows": len(features), "rounds": rounds, **found}
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tsne.json")
    with open(out, "w") as file:
        file.write(json.dumps(report, indent=1) + "\n")
    ours_, theirs_ = found["pcp"], found["scikit-learn"]
    if ours_["seconds"] > theirs_["seconds"] or ours_["trustworthiness"] < theirs_["trustworthiness"] - 0.01:
        sys.exit("pcp falls behind")


main()
