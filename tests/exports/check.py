"""Holds exported networks against pcp's own features, in PyTorch and onnxruntime. Arguments: the folder of exports, the program."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torchvision
from pcp_models import load
from safetensors.torch import load_file, save_file

TOLERANCE = 1e-4
models, program = Path(sys.argv[1]), sys.argv[2]
failed = 0


def hold(what, found, truth):
    """Says how far `found` is from `truth`: embeddings as they are, other features by the largest of them."""
    global failed
    wrong = float(np.abs(np.asarray(found) - truth).max() / max(1.0, np.abs(truth).max()))
    good = wrong < TOLERANCE and np.shape(found) == truth.shape
    failed += not good
    print(f"{'ok    ' if good else 'FAILED'} {what}: {wrong:.1e}")


def in_onnx(path, sample, outputs=("embedding", "pooled", "whitened")):
    onnx.checker.check_model(str(path), full_check=True)
    opset = onnx.load(str(path), load_external_data=False).opset_import[0].version
    assert opset >= 17, opset
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    run = lambda count: session.run(list(outputs), {x.name: sample[x.name][:count] for x in session.get_inputs()})
    # Any number of images at once gives the same.
    one, all_of_them = run(1), run(len(sample["input"]))
    assert np.abs(one[0] - all_of_them[0][:1]).max() < 1e-5
    return all_of_them


torch.set_grad_enabled(False)
for weights in sorted(models.glob("*.safetensors")):
    name = weights.stem
    sample, whole = np.load(models / f"{name}.npz"), np.load(models / f"{name}-whole.npz")
    module = load(weights)
    images = torch.from_numpy(sample["input"])
    hold(f"{name}, PyTorch, embedding", module(images).numpy(), sample["embedding"])
    hold(f"{name}, PyTorch, pooled", module.pooled(images).numpy(), sample["pooled"])
    for file, case in [(f"{name}.onnx", sample), (f"{name}-whole.onnx", whole)]:
        embedding, pooled, whitened = in_onnx(models / file, case)
        hold(f"{file}, onnxruntime, embedding", embedding, case["embedding"])
        hold(f"{file}, onnxruntime, pooled", pooled, case["pooled"])
        hold(f"{file}, onnxruntime, whitened", whitened, case["whitened"])

sample = np.load(models / "patches.npz")
hold("patches, onnxruntime, embedding", in_onnx(models / "patches.onnx", sample, ["embedding"])[0], sample["embedding"])
for name in ["plus", "plus-whole"]:
    sample = np.load(models / f"{name}.npz")
    for output, found in zip(["embedding", "pooled"], in_onnx(models / f"{name}.onnx", sample, ["embedding", "pooled"])):
        hold(f"{name}.onnx, patches and network, onnxruntime, {output}", found, sample[output])

# A torchvision ResNet18 takes an export of the usual width and stem as it is ...
net = torchvision.models.resnet18(num_classes=128).eval()
net.load_state_dict(load_file(models / "resnet18-224.safetensors"))
sample = np.load(models / "resnet18-224.npz")
embedding = torch.nn.functional.normalize(net(torch.from_numpy(sample["input"]))).numpy()
hold("resnet18-224, torchvision's module, embedding", embedding, sample["embedding"])
# ... and pcp takes a torchvision ResNet18: its pooled features are torchvision's.
torch.manual_seed(0)
net = torchvision.models.resnet18().eval()
arrays = {k: v.contiguous() for k, v in net.state_dict().items()}
save_file(arrays, models / "torchvision.st")
(models / "torchvision.onnx").unlink(missing_ok=True)
command = [program, "export", models / "torchvision.st", "--to", "onnx", "--out", models / "torchvision.onnx", "--sample", models / "torchvision.npz"]
subprocess.run(command, check=True)
sample = np.load(models / "torchvision.npz")
net.fc = torch.nn.Identity()
hold("torchvision's weights in pcp, pooled", sample["pooled"], net(torch.from_numpy(sample["input"])).numpy())
print("exports agree" if not failed else f"{failed} exports differ")
sys.exit(bool(failed))
