"""Copies and faults are put among photographs: which of them do pcp look, cleanvision and imagededup find, what else do they call so, and how long do they take?

Of every kind 20: the same file, resized, saved again, cropped by 5 %, mirrored, blurred (a Gaussian of 1.2 % of the short side), dark (4 stops), grey.
"Other" counts what is called so besides, among photographs as they are: for copies pairs, which need not be wrong."""

import argparse
import csv
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path, help="photographs")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--each", type=int, default=20, help="pictures of every kind")
args = parser.parse_args()

COPIES = ["same file", "resized", "saved again", "cropped", "mirrored"]
FAULTS = ["blurred", "dark", "grey"]


def darker(image, stops):
    """Exposed less by so many stops, in linear light."""
    a = np.asarray(image) / 255
    linear = np.where(a <= 0.04045, a / 12.92, ((a + 0.055) / 1.055) ** 2.4) / 2**stops
    back = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return Image.fromarray((back * 255 + 0.5).astype(np.uint8))


def made(kind, image, rng):
    """The picture, changed, and its JPEG quality."""
    (w, h), short = image.size, min(image.size)
    match kind:
        case "resized":
            s = rng.choice([0.5, 0.6, 0.75, 1.5])
            return image.resize((round(w * s), round(h * s)), Image.LANCZOS), 90
        case "saved again":
            return image, rng.choice([20, 30, 40, 60])
        case "cropped":
            a, b = rng.random(), rng.random()
            left, top = round(0.05 * w * a), round(0.05 * h * b)
            return image.crop((left, top, w - round(0.05 * w * (1 - a)), h - round(0.05 * h * (1 - b)))), 90
        case "mirrored":
            return ImageOps.mirror(image), 90
        case "blurred":
            return image.filter(ImageFilter.GaussianBlur(0.012 * short)), 90
        case "dark":
            return darker(image, 4), 90
        case "grey":
            return ImageOps.grayscale(image), 90


def fill(folder):
    """Links to the photographs, and the pictures put among them: {name: (kind, the name of the original)}."""
    rng = random.Random(args.seed)
    names = sorted(p for p in args.folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    # imagededup wants one flat folder.
    flat = {p: str(p.relative_to(args.folder)).replace(os.sep, "__") for p in names}
    for p, name in flat.items():
        shutil.copyfile(p, folder / name)
    truth = {}
    picked = rng.sample(names, args.each * len(COPIES + FAULTS))
    for i, p in enumerate(picked):
        kind = (COPIES + FAULTS)[i // args.each]
        name = f"inserted-{i:03}-{kind.replace(' ', '-')}" + (p.suffix if kind == "same file" else ".jpg")
        if kind == "same file":
            shutil.copyfile(p, folder / name)
        else:
            image, quality = made(kind, Image.open(p).convert("RGB"), rng)
            image.save(folder / name, quality=quality)
        truth[name] = (kind, flat[p])
    return truth


def pcp(folder, work):
    out = work / "looked"
    subprocess.run([os.environ["PCP"], "look", folder, "--out", out], check=True, stdout=subprocess.DEVNULL)
    groups, faults = defaultdict(set), defaultdict(set)
    with open(out / "findings.csv", newline="") as file:
        for row in csv.DictReader(file):
            faults[row["finding"]].add(row["file"])
            if row["finding"] in ("duplicate", "near_duplicate"):
                groups[row["group"]].add(row["file"])
                groups[row["group"]].add(row["why"].split(" as ")[-1].split(" with ")[-1])
    pairs = {frozenset(pair) for group in groups.values() for pair in combinations(sorted(group), 2)}
    return pairs, faults


def cleanvision(folder, _):
    from cleanvision import Imagelab

    lab = Imagelab(data_path=str(folder))
    lab.find_issues(verbose=False)
    pairs = set()
    for kind in ("exact_duplicates", "near_duplicates"):
        for group in lab.info[kind]["sets"]:
            pairs |= {frozenset(pair) for pair in combinations(sorted(Path(p).name for p in group), 2)}
    called = lambda column: {Path(p).name for p in lab.issues.index[lab.issues[column]]}
    return pairs, {"blurred": called("is_blurry_issue"), "dark": called("is_dark_issue"), "grey": called("is_grayscale_issue")}


def imagededup(folder, _):
    from imagededup.methods import PHash

    found = PHash(verbose=False).find_duplicates(image_dir=str(folder), max_distance_threshold=10)
    return {frozenset((a, b)) for a, others in found.items() for b in others}, {}


def main():
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        folder = work / "photos"
        folder.mkdir()
        truth = fill(folder)
        root = lambda name: truth[name][1] if name in truth and truth[name][0] in COPIES else name
        print(f"{len(list(folder.iterdir()))} pictures")
        print("| | " + " | ".join(COPIES) + " | other pairs | " + " | ".join(f"{f} (other)" for f in FAULTS) + " | seconds |")
        print("|" + "---|" * (len(COPIES) + len(FAULTS) + 3))
        for tool in (pcp, cleanvision, imagededup):
            start = time.perf_counter()
            pairs, faults = tool(folder, work)
            seconds = time.perf_counter() - start
            copies = [sum(frozenset((n, o)) in pairs for n, (k, o) in truth.items() if k == kind) for kind in COPIES]
            # A grey or blurred picture is a copy, too, in its way.
            changed = lambda pair: any(truth.get(name, ("",))[0] in FAULTS for name in pair)
            other = sum(len({root(name) for name in pair}) > 1 and not changed(pair) for pair in pairs)
            cells = [str(n) for n in copies] + [str(other)]
            for fault in FAULTS:
                right = {n for n, (k, _) in truth.items() if k == fault}
                called = faults.get(fault)
                cells.append("-" if called is None else f"{len(called & right)} ({len(called - right)})")
            print(f"| {tool.__name__} | " + " | ".join(cells) + f" | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
