"""PCP and IS from the first epoch to the last in plain PyTorch and faiss: what kNN accuracy does the recipe itself give?

It writes a JSON line with everything. Its randomness is PyTorch's, so a seed here is not the same run as that seed of pcp."""

import argparse
import json
import time
from collections import deque

import faiss
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

import data
import models
from epoch import ALPHA, BATCH, TAU, Views, clusters, embed, kmeans, purify, train


def knn(model, known, asked, k=200):
    """Percent of the test images that their weighted neighbours among the training images name rightly."""
    bank, queries = [embed(model, data.clean(images).split(500)) for images, _ in (known, asked)]
    near, rows = (queries @ bank.T).topk(min(k, len(bank)), 1)
    classes = F.one_hot(known[1], 10).float()[rows]
    found = (classes * (near / TAU).exp()[:, :, None]).sum(1).argmax(1)
    return 100 * (found == asked[1]).float().mean().item()


def learn(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    known = [part[: args.limit] for part in data.labelled(args.data_dir, True)]
    asked = data.labelled(args.data_dir, False)
    pictures, n, epochs = data.pictures(known[0]), len(known[0]), args.epochs
    at = {share: int(share * epochs + 0.5) for share in (0.5, 0.6, 0.8, 0.9)}
    history = deque(maxlen=max(3, int(15 * epochs / 200 + 0.5)))
    upper = 0.617378 * sum(ALPHA**h for h in range(history.maxlen + 1))
    model = models.build("resnet18", args.width)
    optimizer = models.sgd(model)
    bank = torch.empty(n, 128).uniform_(-1, 1) * (3 / 128) ** 0.5
    options = {"batch_size": BATCH, "num_workers": args.threads, "persistent_workers": True}
    one = DataLoader(Views(pictures, 1), **options)
    shuffled = {views: DataLoader(Views(pictures, views), shuffle=True, drop_last=args.system == "is", **options) for views in (1, 2)}
    told = []
    for epoch in range(epochs):
        sets, k = torch.arange(n), n
        if args.system == "pcp":
            features = embed(model, (views[0] for views, _ in one)).numpy()
            k = clusters(n, args.clusters, epoch, epochs)
            if k < 0.95 * n:
                found = kmeans(features, k)
                past = list(history) if len(history) == history.maxlen else []
                sets = purify(features, found, k, 5 if epoch < at[0.5] else 0, past, upper)
                if epoch >= at[0.5]:
                    history.appendleft(found)
            weight, last = 0.8 - 0.3 * epoch / at[0.9] if epoch < at[0.9] else 0, 0.01
        else:
            weight, last = 1, 0.05
        optimizer.param_groups[0]["lr"] = 0.03 * (last if epoch >= at[0.8] else 0.1 if epoch >= at[0.6] else 1)
        loss = train(model, optimizer, shuffled[2 if weight else 1], bank, sets, weight)
        told.append({"clusters": k, "kept": float((sets < k).float().mean()) if k < 0.95 * n else 0.0, "loss": loss})
        print(f"epoch {epoch + 1}/{epochs}: {told[-1]}", flush=True)
    return knn(model, known, asked), told


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True, help="where the binary version of CIFAR-10 is")
    parser.add_argument("--system", choices=["pcp", "is"], default="pcp")
    parser.add_argument("--limit", type=int, default=5000, help="images to learn from (%(default)s)")
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="the random views depend on it (%(default)s)")
    args = parser.parse_args()
    began = time.perf_counter()
    accuracy, told = learn(args)
    settings = {key: value for key, value in vars(args).items() if key != "data_dir"}
    versions = {"torch": torch.__version__, "faiss": faiss.__version__}
    print(json.dumps({**settings, "knn": accuracy, "seconds": time.perf_counter() - began, **versions, "epochs_told": told}))


if __name__ == "__main__":
    main()
