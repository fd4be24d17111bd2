"""The other side: one job of PyTorch, torchvision or faiss. It says it is ready, then does the job once for every line on
its standard input, and answers each with a line of JSON."""

import argparse
import json
import resource
import sys
import time

import faiss
import numpy
import torch
import torchvision
from torch.nn import functional as F

import data
import epoch
import models


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def images(rows):
    return torch.randn(rows, 3, 32, 32).to(memory_format=torch.channels_last)


def step(args):
    model, batch = models.formed(models.build(args.arch, args.width), args.form), images(args.batch)
    optimizer = models.sgd(model)
    bank = F.normalize(torch.randn(args.bank, 128))
    samples = torch.arange(args.batch) * 7919 % args.bank

    def once():
        with models.autocast(args.form):
            loss = F.cross_entropy(model(batch) @ bank.T / 0.1, samples)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def measure():
        once()
        once()
        started = time.perf_counter()
        for _ in range(args.iters):
            once()
        return {"value": args.batch * args.iters / (time.perf_counter() - started), "megabytes": megabytes()}

    return measure


def infer(args):
    model, batch = models.formed(models.build(args.arch, args.width).eval(), args.form), images(args.batch)

    def measure():
        with torch.no_grad(), models.autocast(args.form):
            model(batch)
            model(batch)
            started = time.perf_counter()
            for _ in range(args.iters):
                model(batch)
        return {"value": args.batch * args.iters / (time.perf_counter() - started)}

    return measure


def kmeans(args):
    x, start = numpy.load(args.input), numpy.load(args.start)

    def measure():
        started = time.perf_counter()
        clustering = faiss.Clustering(x.shape[1], len(start))
        clustering.niter = args.iters
        clustering.max_points_per_centroid = len(x)
        clustering.min_points_per_centroid = 1
        faiss.copy_array_to_vector(start.ravel(), clustering.centroids)
        index = faiss.IndexFlatL2(x.shape[1])
        clustering.train(x, index)
        # One more assignment after the last update, as ours does.
        distances, labels = index.search(x, 1)
        seconds = time.perf_counter() - started
        centroids = faiss.vector_to_array(clustering.centroids).reshape(start.shape)
        exact = float(((x - centroids[labels[:, 0]]).astype("f8") ** 2).sum())
        return {"value": seconds, "objective": exact}

    return measure


def knn(args):
    bank, queries = numpy.load(args.input), numpy.load(args.query_input)

    def measure():
        started = time.perf_counter()
        index = faiss.IndexFlatIP(bank.shape[1])
        index.add(bank)
        similarity, _ = index.search(queries, args.k)
        return {"value": time.perf_counter() - started, "mean_similarity": float(similarity.mean(dtype="f8"))}

    return measure


def boxes(first, n):
    """The boxes of `pcp bench boxes`."""
    i = torch.arange(first, first + n)
    left, top = i * 7919 % 700, i * 104_729 % 500
    return torch.stack([left, top, left + 20 + i * 31 % 200, top + 20 + i * 17 % 180], 1).float()


def detect(args):
    """What a detector does beside its network, by torchvision's own operations."""
    found, i = boxes(0, args.n), torch.arange(args.n)
    if args.work == "nms":
        scores = (i * 48_271 % 65_537).float() / 65_537

        def once():
            return float(torchvision.ops.nms(found, scores, 0.7).sum())
    elif args.work == "iou":
        others = boxes(args.n, 1000)

        def once():
            return float(torchvision.ops.box_iou(found, others)[9, 500])
    else:
        back = args.work == "roi-back"
        maps = torch.randn(4, 256, 38, 50).requires_grad_(back)
        rois = torch.cat([(i % 4).float()[:, None], found], 1)

        def align():
            return torchvision.ops.roi_align(maps, rois, 7, 1 / 16, 2, True)

        if back:
            # The graph is made once: the gradient alone is measured.
            aligned, gradient = align(), torch.randn(args.n, 256, 7, 7)

            def once():
                return float(torch.autograd.grad(aligned, maps, gradient, retain_graph=True)[0].numel())
        else:
            def once():
                with torch.no_grad():
                    return float(align().numel())

    def measure():
        once()
        once()
        started = time.perf_counter()
        for _ in range(args.iters):
            total = once()
        return {"value": time.perf_counter() - started, "total": total}

    return measure


def augment(args):
    view = data.train_view((0.5,) * 3, (0.25,) * 3)
    [image] = data.pictures(torch.randn(1, 3, 32, 32).mul(60).add(128).clamp(0, 255).to(torch.uint8))

    def measure():
        started = time.perf_counter()
        for _ in range(args.iters):
            view(image)
            view(image)
        return {"value": args.iters / (time.perf_counter() - started)}

    return measure


def embed(args):
    """Embeddings of all CIFAR-10 images by a network that pcp has trained, checked against pcp's own."""
    model = models.build("resnet18", args.width).eval()
    models.load(model, args.run + "/model.safetensors")

    def measure():
        with torch.no_grad():
            for name, train in [("bank", True), ("queries", False)]:
                batches = data.clean(data.cifar(args.data_dir, train)).split(250)
                found = torch.cat([model(b.contiguous(memory_format=torch.channels_last)) for b in batches]).numpy()
                if train:
                    ours = numpy.load(args.run + "/embeddings.npy")
                    difference = float(abs(found[: len(ours)] - ours).max())
                    if difference > 1e-3:
                        raise SystemExit(f"the two networks are not the same: embeddings differ by {difference}")
                numpy.save(f"{args.out}/{name}.npy", found.astype("<f4"))
        return {"value": difference}

    return measure


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["step", "infer", "kmeans", "knn", "augment", "epoch", "embed", "boxes"])
    parser.add_argument("work", nargs="?")
    for name in ["arch", "input", "start", "query-input", "data-dir", "run", "out", "weights"]:
        parser.add_argument("--" + name)
    for name in ["width", "batch", "bank", "iters", "k", "threads", "limit", "epochs", "first", "n"]:
        parser.add_argument("--" + name, type=int)
    parser.add_argument("--form", choices=models.FORMS, default=models.FORMS[0], help="of step, infer and epoch")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    faiss.omp_set_num_threads(args.threads)
    jobs = {"step": step, "infer": infer, "kmeans": kmeans, "knn": knn, "augment": augment, "embed": embed}
    jobs["epoch"], jobs["boxes"] = epoch.prepare, detect
    idle = megabytes()
    measure = jobs[args.job](args)
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__, "faiss": faiss.__version__}
    print(json.dumps({"versions": versions | {"numpy": numpy.__version__}, "idle_megabytes": idle}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(measure()), flush=True)


if __name__ == "__main__":
    main()
