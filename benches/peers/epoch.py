"""Whole epochs of PCP in plain PyTorch and faiss: features, k-means, purification, two-view training with the warm-up.

It does what `pcp train cifar10` does by default in the epochs before the votes begin. Views are made by worker processes
beside the training, as is usual."""

import math
import time

import faiss
import numpy
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import data
import models

BATCH, TAU, GAMMA, ALPHA, BANK_MOMENTUM = 128, 0.1, 0.5, 0.8, 0.5


class Views(Dataset):
    """Every image in so many random views."""

    def __init__(self, images, views):
        self.images, self.views, self.view = images, views, data.train_view()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return [self.view(self.images[i]) for _ in range(self.views)], i


def clusters(n, floor, epoch, epochs):
    return max(floor, math.trunc(10 ** (math.log10(n) * (1 - epoch / epochs))))


def kmeans(x, k):
    clustering = faiss.Clustering(x.shape[1], k)
    clustering.niter = 20
    clustering.max_points_per_centroid, clustering.min_points_per_centroid = len(x), 1
    index = faiss.IndexFlatL2(x.shape[1])
    clustering.train(x, index)
    return index.search(x, 1)[1][:, 0]


def purify(x, labels, k, whole_up_to, past=(), upper=math.inf):
    """For every sample the number of its positive set; an instance has a number of its own. `past` are the clusterings that
    vote, newest first."""
    n = len(x)
    sizes = numpy.bincount(labels, minlength=k)
    centres = numpy.zeros((k, x.shape[1]))
    numpy.add.at(centres, labels, x)
    centres /= numpy.maximum(sizes, 1)[:, None]
    distances = numpy.linalg.norm(x - centres[labels], axis=1)
    order = numpy.lexsort((distances, labels))
    starts = numpy.cumsum(sizes) - sizes
    rank = numpy.empty(n, int)
    rank[order] = numpy.arange(n) - starts[labels[order]]
    keep = numpy.where(sizes <= whole_up_to, sizes, numpy.floor((1 - GAMMA) * sizes + 1e-6))
    kept = rank < keep[labels]
    if past:
        anchor = numpy.zeros(k, int)
        anchor[sizes > 0] = order[starts[sizes > 0]]
        anchor = anchor[labels]
        votes = 1 + sum(ALPHA**h * numpy.where(c == c[anchor], 1, -1) for h, c in enumerate(past, 1))
        others = anchor != numpy.arange(n)
        kept = numpy.where(kept, ~(others & (votes < 0)), others & (votes >= upper))
    kept &= numpy.bincount(labels[kept], minlength=k)[labels] >= 2
    return torch.from_numpy(numpy.where(kept, labels, k + numpy.arange(n)))


def bank_loss(v, bank, sets, rows):
    logits = v @ bank.T / TAU
    positive = logits.masked_fill(sets[rows, None] != sets[None, :], -torch.inf)
    return (logits.logsumexp(1) - positive.logsumexp(1)).mean()


def spreading_loss(a, b):
    v, n = torch.cat([a, b]), 2 * len(a)
    logits = (v @ v.detach().T / TAU).fill_diagonal_(-torch.inf)
    log_p = logits.log_softmax(1)
    partner = torch.arange(n).roll(len(a))
    others = torch.log1p(-log_p.exp().clamp(max=1 - 1e-6))
    rows = torch.arange(n)
    return -(log_p[rows, partner].sum() + others.sum() - others[rows, partner].sum()) / n


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def embed(model, batches, form="f32"):
    model.eval()
    with models.autocast(form):
        return torch.cat([model(channels_last(batch)) for batch in batches]).float()


def train(model, optimizer, batches, bank, sets, weight, form="f32"):
    """One epoch; returns its mean loss, in which that of IS has this weight."""
    model.train()
    total = seen = 0
    for views, rows in batches:
        # One pass per view: batch-norm statistics are per view.
        with models.autocast(form):
            passed = [model(channels_last(view)) for view in views]
            loss = weight * spreading_loss(*passed) if weight else 0
            if weight < 1:
                loss = loss + (1 - weight) * bank_loss(passed[0], bank, sets, rows)
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            bank[rows] = F.normalize(BANK_MOMENTUM * bank[rows] + (1 - BANK_MOMENTUM) * passed[0])
        optimizer.step()
        total, seen = total + loss.item() * len(rows), seen + len(rows)
    return total / seen


def prepare(args):
    images = data.pictures(data.cifar(args.data_dir, True)[: args.limit])
    n, epochs = len(images), args.epochs
    floor, warmup_end = n // 50, round(0.9 * epochs)
    model = models.build("resnet18", args.width)
    if args.weights:
        models.load(model, args.weights)
    optimizer = models.sgd(model)
    bank = torch.empty(n, 128).uniform_(-1, 1) * math.sqrt(3 / 128)
    options = {"batch_size": BATCH, "num_workers": args.threads, "persistent_workers": True}
    one = DataLoader(Views(images, 1), **options)
    two = DataLoader(Views(images, 2), shuffle=True, **options)
    state = {"epoch": args.first}

    def measure():
        epoch = state["epoch"]
        state["epoch"] += 1
        started = time.perf_counter()
        features = embed(model, (views[0] for views, _ in one), args.form).numpy()
        featured = time.perf_counter()
        k = clusters(n, floor, epoch, epochs)
        sets = purify(features, kmeans(features, k), k, 5 if epoch < round(0.5 * epochs) else 0)
        clustered = time.perf_counter()
        lr = 0.03 * (0.01 if epoch >= round(0.8 * epochs) else 0.1 if epoch >= round(0.6 * epochs) else 1)
        optimizer.param_groups[0]["lr"] = lr
        w = 0.8 - 0.3 * epoch / warmup_end
        loss = train(model, optimizer, two, bank, sets, w, args.form)
        ended = time.perf_counter()
        return {
            "value": ended - started, "feature_seconds": featured - started, "cluster_seconds": clustered - featured,
            "train_seconds": ended - clustered, "clusters": k, "loss": loss,
            "kept": float((sets < k).float().mean()),
        }

    return measure
