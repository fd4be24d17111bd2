"""Measures pcp and its peers in turn, on the same cores, and writes down how they compare."""

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
WORK = Path("target/peers")
PCP = os.environ["PCP"]

# A run of ten epochs: the alternated ones come after two that only prepare, and before the votes begin.
RUN = "--limit 10000 --width 16 --epochs 10 --snapshots 10 --eval-every 10 --seed 0".split()
EPOCHS, FIRST = 10, 2

# The forms of PyTorch that `peer.py` has.
FORMS = ("f32", "compile", "bf16", "compile-bf16")


class Row:
    """What is measured: pcp's arguments, the peer's and its forms, of which the first is its default, and the ratios to
    reach, which are to the fastest form. A rate is the better the higher."""

    def __init__(self, name, work, peer, target, stretch, unit, ours, theirs, needs_data=False, forms=(None,)):
        self.name, self.work, self.peer, self.target, self.stretch = name, work, peer, target, stretch
        self.unit, self.needs_data, self.forms = unit, needs_data, forms
        self.ours, self.theirs = ours.split(), theirs.split()

    def asked(self, form):
        """The peer's arguments for one of its forms."""
        return self.theirs + (["--form", form] if form else [])

    def ratio(self, ours, theirs):
        return ours / theirs if self.unit == "images/s" else theirs / ours


def network(kind, arch, width, batch, iters):
    bank = " --bank 50000" if kind == "step" else ""
    line = f"{kind} --arch {arch} --width {width} --batch {batch} --iters {iters}{bank}"
    return "bench " + line, line


def rows():
    torch = "PyTorch channels_last"
    quick = "images/s"
    vectors = f"--input {WORK}/bank.npy"
    for name, work, peer, target, job in [
        ("step-64", "ResNet18 training step, width 64, batch 64", torch, 1.8, ("step", "resnet18", 64, 64, 5)),
        ("step-16", "ResNet18 training step, width 16, batch 128", torch, 1.9, ("step", "resnet18", 16, 128, 10)),
        ("infer-64", "ResNet18 inference, width 64", torch + ", eval, no_grad", 2, ("infer", "resnet18", 64, 64, 8)),
        ("infer-16", "ResNet18 inference, width 16", torch + ", eval, no_grad", 2, ("infer", "resnet18", 16, 128, 20)),
        ("step-alexnet", "AlexNet (32) training step, batch 128", torch, 1.8, ("step", "alexnet", 64, 128, 5)),
    ]:
        yield Row(name, work, peer, target, 2.5, quick, *network(*job), forms=FORMS)
    for k, target in [(1000, 1.4), (10_000, 1.7)]:
        line = f"kmeans {vectors} --start {WORK}/start-{k}.npy --iters 20"
        yield Row(f"kmeans-{k}", f"k-means on 50,000 embeddings of a trained run, 20 iterations, K = {k:,}",
                  "faiss-cpu Clustering, same start", target, 3, "s", "bench " + line, line, True)
    line = f"knn {vectors} --query-input {WORK}/queries.npy --k 200"
    yield Row("knn", "kNN 10,000 x 50,000 x 128, k = 200", "faiss-cpu IndexFlatIP", 1.5, 2, "s",
              "bench " + line, line, True)
    yield Row("augment", "augmentation, two views of 32 x 32 per image, one core", "torchvision transforms.v2", 5, 20,
              quick, "bench augment --size 32 --views 2 --iters 5000", "augment --iters 500")
    for work, n, iters, what in [
        ("roi", 512, 5, "RoIAlign 7 x 7 of 512 boxes on maps of 38 x 50 x 256, 5 times"),
        ("roi-back", 512, 5, "the gradient of RoIAlign, as above"),
        ("nms", 6000, 5, "non-maximum suppression of 6,000 boxes at IoU 0.7, 5 times"),
        ("iou", 5000, 20, "overlaps of 5,000 boxes with 1,000, 20 times"),
    ]:
        line = f"boxes {work} --n {n} --iters {iters}"
        yield Row(f"boxes-{work}", what, "torchvision.ops", 1, 2, "s", "bench " + line, line)
    yield Row("epoch", "whole PCP epoch, CIFAR-10 10,000 images, width 16", "plain PyTorch + faiss script", 2.5, 4, "s",
              "train cifar10 " + " ".join(RUN),
              f"epoch --limit 10000 --width 16 --epochs {EPOCHS} --first {FIRST}", True, forms=("f32", "bf16"))


class Ended(Exception):
    """A peer's process has ended."""


class Peer:
    """A peer's process, which works only while it is asked to."""

    def __init__(self, arguments, threads):
        command = [sys.executable, str(HERE / "peer.py"), *arguments, "--threads", str(threads)]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.about = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise Ended(f"the peer ended with code {self.process.wait()}: {' '.join(self.process.args)}")
        return json.loads(line)

    def measure(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


class Peers:
    """A peer in all of its forms, each a process of its own; those that the machine cannot run are left out."""

    def __init__(self, row, threads, more=()):
        self.row, self.default = row, row.forms[0]
        self.peers = {form: Peer([*row.asked(form), *more], threads) for form in row.forms}
        self.about = self.peers[self.default].about

    def measure(self, samples):
        """Adds a sample of every form: the default's are the peer's, others have its name."""
        for form, peer in list(self.peers.items()):
            time.sleep(0.3)
            side = "peer" if form == self.default else f"peer_{form}"
            try:
                samples.setdefault(side, []).append(peer.measure())
            except Ended as ended:
                # The compiled forms need a C++ compiler.
                if form == self.default:
                    raise
                say(f"{self.row.name}: without the form {form}: {ended}")
                del self.peers[form]
                samples.pop(side, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for peer in self.peers.values():
            peer.__exit__()


def ours(arguments):
    """Runs `pcp bench`; its report, with the peak of its memory."""
    process = subprocess.Popen([PCP, *arguments, "--json"], stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"pcp ended with code {process.returncode}: pcp {' '.join(arguments)}")
    report = json.loads(text)
    report["value"] = report.get("images_per_second", report.get("seconds"))
    report["megabytes"] = usage.ru_maxrss / 1024
    return report


def bench(row, args):
    """Alternates the two sides. Steps and inference are measured on the AVX2 path too, where the CPU has a better one."""
    threads = 1 if row.name == "augment" else args.threads
    command = row.ours if row.name == "augment" else [*row.ours, "--threads", str(threads)]
    levels = [None, "avx2"] if row.ours[1] in ("step", "infer") and "avx512f" in flags() else [None]
    samples = {"ours": [], "peer": [], "ours_avx2": []}
    with Peers(row, threads) as peers:
        for _ in range(args.rounds):
            for level in levels:
                time.sleep(0.3)
                report = ours(command + (["--level", level] if level else []))
                samples["ours_avx2" if level else "ours"].append(report)
            peers.measure(samples)
        return samples, peers.about


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def alternate_epochs(row, args):
    """Lets pcp train for one epoch, holds it (SIGSTOP) while the peer trains for one, and so on; all by the wall clock."""
    out = WORK / "epoch"
    command = [PCP, *row.ours, "--data-dir", args.data_dir, "--threads", str(args.threads)]
    process = subprocess.Popen([*command, "--out", str(out), "--overwrite", "--quiet"], stdout=subprocess.DEVNULL)
    metrics, samples, peers = out / "metrics.jsonl", {"ours": [], "peer": []}, None

    def one_epoch(done):
        started = time.perf_counter()
        process.send_signal(signal.SIGCONT)
        while len(lines(metrics)) < done + 1:
            if process.poll() is not None:
                sys.exit(f"pcp ended with code {process.returncode}")
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        return time.perf_counter() - started

    try:
        time.sleep(1)  # until the metrics of an earlier run are gone
        for epoch in range(FIRST):
            one_epoch(epoch)
        weights = out / "snapshots" / f"r0-e{FIRST - 1:03}.safetensors"
        peers = Peers(row, args.threads, ["--data-dir", args.data_dir, "--weights", str(weights)])
        for epoch in range(FIRST, FIRST + min(args.rounds, EPOCHS - FIRST)):
            seconds = one_epoch(epoch)
            record = json.loads(lines(metrics)[epoch])
            samples["ours"].append({"value": seconds} | {k: record[k] for k in record if k.endswith("_seconds")} |
                                   {k: record[k] for k in ("clusters", "kept", "loss")})
            peers.measure(samples)
        about = peers.about
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        process.wait()
        if peers:
            peers.__exit__()
    return samples, about


def embeddings(args):
    """Embeddings of the CIFAR-10 images by a network that pcp trains for this, and first centroids drawn from them."""
    if not (WORK / "queries.npy").exists():
        run = WORK / "run"
        say("training a network for its embeddings, once")
        # In f32, so that PyTorch finds the same embeddings.
        where = ["--data-dir", args.data_dir, "--out", str(run), "--overwrite", "--quiet"]
        command = [PCP, "train", "cifar10", *RUN, "--precision", "f32", *where]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        job = f"embed --width 16 --run {run} --out {WORK}".split()
        with Peer([*job, "--data-dir", args.data_dir], args.threads) as peer:
            say(f"its embeddings by pcp and by PyTorch differ by {peer.measure()['value']:.1e} at most")
    import numpy

    bank = numpy.load(WORK / "bank.npy")
    for k in (1000, 10_000):
        numpy.save(WORK / f"start-{k}.npy", bank[numpy.random.default_rng(k).permutation(len(bank))[:k]])


def summary(row, samples, about, args):
    """The row of the results."""
    median = {side: statistics.median(s["value"] for s in found) for side, found in samples.items() if found}
    shown = {"threads": 1 if row.name == "augment" else args.threads}
    forms = {side: median[side] for side in median if side.startswith("peer")}
    # The fastest form is the one to which our ratio is the least.
    best = min(forms, key=lambda side: row.ratio(median["ours"], forms[side]))
    result = {
        "row": row.name, "work": row.work, "peer_is": row.peer, "unit": row.unit,
        "ours": median["ours"], "peer": median["peer"], "ratio": row.ratio(median["ours"], median["peer"]),
        "best": best.removeprefix("peer_") if best != "peer" else row.forms[0], "peer_best": median[best],
        "ratio_best": row.ratio(median["ours"], median[best]), "forms": forms,
        "target": row.target, "stretch": row.stretch, **shown, "rounds": len(samples["ours"]),
        "commands": {
            "ours": "pcp " + " ".join(row.ours) + (" --data-dir DIR" if row.name == "epoch" else ""),
            "peer": "peer.py " + " ".join(row.asked(row.forms[0])) + (" --data-dir DIR" if row.name == "epoch" else ""),
        },
        "versions": about["versions"], "cpu": cpu(), "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "revision": revision(), "samples": samples,
    }
    if "ours_avx2" in median:
        result["ratio_avx2"] = row.ratio(median["ours_avx2"], median["peer"])
    if row.ours[1] == "step":
        result["megabytes"] = {side: max(s["megabytes"] for s in samples[side]) for side in ("ours", *forms)}
        result["megabytes"]["peer_before_the_step"] = about["idle_megabytes"]
    for key, allowed in [("objective", 1e-3), ("mean_similarity", 1e-5), ("total", 1e-5)]:
        if key in samples["ours"][0]:
            found = {side: samples[side][0][key] for side in ("ours", "peer")}
            found["difference"] = found["ours"] / found["peer"] - 1
            found["within"] = allowed
            # A lower objective is no fault.
            found["holds"] = found["difference"] <= allowed if key == "objective" else abs(found["difference"]) <= allowed
            result[key] = found
    return result


def flags():
    try:
        found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        return []
    return found[1].split() if found else []


def cpu():
    known = [f for f in ("avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_bf16") if f in flags()]
    return " ".join([platform.machine(), *known])


def revision():
    def git(*words):
        return subprocess.run(["git", *words], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!benches/peers/results.json")
    return git("rev-parse", "--short", "HEAD") + ("-changed" if changed else "")


def say(text):
    print(text, file=sys.stderr, flush=True)


def store(result):
    """Puts the row into the results, in the place of an older one."""
    old = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    found = {r["row"]: r for r in old} | {result["row"]: result}
    RESULTS.write_text(json.dumps({"rows": [found[r.name] for r in rows() if r.name in found]}, indent=1) + "\n")


def table(results):
    shown = ["| work | peer | pcp | peer | its best form | ratio | to the best | to reach | stretch |", "|---|---|---|---|---|---|---|---|---|"]
    for r in results:
        digits = 0 if r["unit"] == "images/s" else 2

        def figure(key):
            return f"{r[key]:.{digits}f} {r['unit']}"

        best = f"{r['best']}: {figure('peer_best')}" if len(r["forms"]) > 1 else ""
        shown.append(f"| {r['work']} | {r['peer_is']} | {figure('ours')} | {figure('peer')} | {best} | {r['ratio']:.2f} | "
                     f"**{r['ratio_best']:.2f}** | {r['target']} | {r['stretch']} |")
    for r in results:
        if "ratio_avx2" in r:
            shown.append(f"{r['row']}: {r['ratio_avx2']:.2f} on the AVX2 path")
        if "megabytes" in r:
            shown.append(f"{r['row']}: peak memory {r['megabytes']['ours']:.0f} MB, peer {r['megabytes']['peer']:.0f} MB")
        for key in ("objective", "mean_similarity", "total"):
            if key in r:
                word = "as agreed" if r[key]["holds"] else "NOT as agreed"
                shown.append(f"{r['row']}: {key} {r[key]['difference']:+.4%} of the peer's, {word}")
    return "\n".join(shown)


def main():
    names = [row.name for row in rows()]
    parser = argparse.ArgumentParser(prog="benches/peers/run", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, metavar="ROW", help="one of: " + ", ".join(names))
    parser.add_argument("--rounds", type=int, default=5, help="alternations; medians count [5]")
    parser.add_argument("--data-dir", metavar="DIR", help="where the CIFAR-10 files are (binary version)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of both sides [all cores]")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    chosen = [row for row in rows() if args.only is None or row.name in args.only]
    done = []
    for row in chosen:
        if row.needs_data and args.data_dir is None:
            say(f"{row.name}: skipped, it needs CIFAR-10: --data-dir DIR")
            continue
        if row.name.startswith("k"):
            embeddings(args)
        started = time.perf_counter()
        samples, about = alternate_epochs(row, args) if row.name == "epoch" else bench(row, args)
        done.append(summary(row, samples, about, args))
        store(done[-1])
        say(f"{row.name}: ratio {done[-1]['ratio']:.2f}, to the best {done[-1]['ratio_best']:.2f} ({time.perf_counter() - started:.0f} s)")
    print(table(done))


if __name__ == "__main__":
    main()
