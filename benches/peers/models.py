"""The networks of pcp in PyTorch, with the same names, shapes and defaults."""

import json

import numpy
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class ResNet18(nn.Module):
    """For images of 32 px: a 3x3 stem of stride 1, no max-pool."""

    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        before = width
        for stage in range(4):
            after, stride = width << stage, 1 if stage == 0 else 2
            setattr(self, f"layer{stage + 1}", nn.Sequential(Block(before, after, stride), Block(after, after, 1)))
            before = after
        self.fc = nn.Linear(before, 128)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return F.normalize(self.fc(x.mean((2, 3))))


class AlexNet(nn.Module):
    """For images of 32 px."""

    def __init__(self):
        super().__init__()
        layers, before = [], 3
        for i, after in enumerate([64, 192, 384, 256, 256]):
            layers += [nn.Conv2d(before, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
            if i in (0, 1, 4):
                layers.append(nn.MaxPool2d(2))
            before = after
        self.features = nn.Sequential(*layers)
        layers = []
        for before, after in [(4096, 1024), (1024, 1024)]:
            layers += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.ReLU(inplace=True)]
        self.classifier = nn.Sequential(*layers, nn.Linear(1024, 128))

    def forward(self, x):
        return F.normalize(self.classifier(self.features(x).flatten(1)))


def build(arch, width):
    model = AlexNet() if arch == "alexnet" else ResNet18(width)
    return model.to(memory_format=torch.channels_last)


def load(model, path):
    """Fills `model` from a safetensors file: the length of a JSON header, the header, the arrays."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    state = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = entry["data_offsets"]
            array = numpy.frombuffer(data[start:end], "<f4").reshape(entry["shape"])
            state[name] = torch.from_numpy(array.copy())
    missing, unknown = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unknown:
        raise SystemExit(f"{path} does not fit the network: without {missing}, unknown {unknown}")


# PyTorch as it comes, compiled, with products and activations in bf16, and both.
FORMS = ["f32", "compile", "bf16", "compile-bf16"]


def formed(model, form):
    """The model in one of the forms; its calls belong into `autocast` of the same."""
    return torch.compile(model) if form.startswith("compile") else model


def autocast(form):
    """What a user of PyTorch puts around a model and its loss, though not around the backward pass."""
    return torch.autocast("cpu", torch.bfloat16, enabled=form.endswith("bf16"))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4)
