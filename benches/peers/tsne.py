"""t-SNE of embeddings, by pcp and by scikit-learn's Barnes-Hut in turn: seconds and trustworthiness of both."""

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
    for name, side in [("pcp", 0), ("scikit-learn", 1)]:
        seconds = statistics.median(pair[side][0] for pair in pairs)
        print(f"{name:>12}: {seconds:7.2f} s, trustworthiness {pairs[-1][side][1]:.4f}")


main()
