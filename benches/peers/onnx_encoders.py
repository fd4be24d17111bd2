"""`pcp embed model.onnx` beside onnxruntime on the same images and cores, in turn. Milliseconds per image are those of the images beyond the first 16, so that
opening the model does not count; decoding counts for pcp alone. onnxruntime gets batches of 1, 4 and 16, of which the fastest counts."""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import torchvision
from PIL import Image

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--images", type=int, default=64)
parser.add_argument("--out", type=Path, default=Path(__file__).with_name("onnx.json"))
args = parser.parse_args()
FEW, SIDE = 16, 224
torch.backends.mha.set_fastpath_enabled(False)
torch.manual_seed(0)
measured = {}


def by_pcp(model, images, out):
    out.unlink(missing_ok=True)
    began = time.perf_counter()
    words = [os.environ["PCP"], "embed", str(model), str(images), "--out", str(out), "--mean", "0.5", "--std", "0.5", "--json"]
    subprocess.run(words, check=True, capture_output=True)
    return time.perf_counter() - began, np.load(out)


def by_onnxruntime(session, batch, size):
    began = time.perf_counter()
    made = [session.run(None, {"pixels": batch[i : i + size]})[0] for i in range(0, len(batch), size)]
    return time.perf_counter() - began, np.concatenate(made)


with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    pixels = np.random.default_rng(0).integers(0, 256, (args.images + FEW, SIDE, SIDE, 3), dtype=np.uint8)
    for name, count in (("few", FEW), ("all", args.images + FEW)):
        (folder / name).mkdir()
        for i, image in enumerate(pixels[:count]):
            Image.fromarray(image).save(folder / name / f"{i:04}.png")
    read = [np.asarray(Image.open(path)) for path in sorted((folder / "all").iterdir())]
    batch = ((np.stack(read) / 255 - 0.5) / 0.5).astype(np.float32).transpose(0, 3, 1, 2)
    batch = np.ascontiguousarray(batch)
    for name in ("resnet18", "vit_b_16"):
        module, model = torchvision.models.get_model(name).eval(), folder / f"{name}.onnx"
        torch.onnx.export(
            module, torch.zeros(2, 3, SIDE, SIDE), str(model), input_names=["pixels"], output_names=["logits"],
            dynamic_axes={"pixels": {0: "n"}, "logits": {0: "n"}}, opset_version=17, dynamo=False,
        )  # fmt: skip
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        samples = {"pcp": []} | {f"onnxruntime, batch {size}": [] for size in (1, 4, 16)}
        for _ in range(args.rounds):
            out = folder / "made.npy"
            few, (whole, rows) = by_pcp(model, folder / "few", out)[0], by_pcp(model, folder / "all", out)
            samples["pcp"].append(1000 * (whole - few) / args.images)
            for size in (1, 4, 16):
                seconds, truth = by_onnxruntime(session, batch[FEW:], size)
                samples[f"onnxruntime, batch {size}"].append(1000 * seconds / args.images)
        apart = float(np.abs(rows[FEW:] - truth).max() / max(1, np.abs(truth).max()))
        medians = {side: statistics.median(of) for side, of in samples.items()}
        best = min(median for side, median in medians.items() if side != "pcp")
        measured[name] = {"milliseconds per image": samples, "medians": medians, "onnxruntime / pcp": best / medians["pcp"], "largest difference": apart}
        print(name, {side: round(median, 1) for side, median in medians.items()}, f"{best / medians['pcp']:.2f} x; rows differ by {apart:.1e}", flush=True)
versions = {"onnxruntime": onnxruntime.__version__, "torch": torch.__version__, "torchvision": torchvision.__version__}
args.out.write_text(json.dumps({"threads": os.cpu_count(), "versions": versions, "models": measured}, indent=1) + "\n")
