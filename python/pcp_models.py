"""pcp's networks in PyTorch. `load("model.safetensors")` gives a module that turns normalised images [n, 3, side, side] into pcp's
embeddings (unit vectors); `preprocess("model.safetensors")` says how to make them. Arrays have torchvision's names, so that a
torchvision ResNet18 takes them, too: `resnet18(num_classes=128).load_state_dict(load_file("model.safetensors"))`.
"""

import json

from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


def head(inputs, embedding, kind):
    """One layer, or two with a ReLU between them."""
    if kind == "mlp":
        return nn.Sequential(nn.Linear(inputs, inputs), nn.ReLU(), nn.Linear(inputs, embedding))
    return nn.Linear(inputs, embedding)


class ResNet18(nn.Module):
    """`width` 64 is the usual one; `large` is the 7x7 stem with a max-pool, for images above 64 px."""

    def __init__(self, width=64, embedding=128, large=False, kind="linear"):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False) if large else nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        inputs = width
        for stage in range(4):
            outputs = width << stage
            blocks = nn.Sequential(Block(inputs, outputs, 2 if stage else 1), Block(outputs, outputs, 1))
            setattr(self, f"layer{stage + 1}", blocks)
            inputs = outputs
        self.fc = head(inputs, embedding, kind)

    def pooled(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        for stage in range(4):
            x = getattr(self, f"layer{stage + 1}")(x)
        return x.mean((2, 3))

    def forward(self, x):
        return F.normalize(self.fc(self.pooled(x)))


class AlexNet(nn.Module):
    """`large` is the 224-px form with dropout; the other is for about 32 px. Channels scale with width / 64."""

    def __init__(self, side, width=64, embedding=128, large=False, kind="linear"):
        super().__init__()
        small = [(64, 3, 1, 1), (192, 3, 1, 1), (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1)]
        wide = [(96, 11, 4, 2), (256, 5, 1, 2), (384, 3, 1, 1), (384, 3, 1, 1), (256, 3, 1, 1)]
        scaled = lambda channels: -(-channels * width // 64)
        layers, inputs, pool = [], 3, 3 if large else 2
        for i, (outputs, kernel, stride, padding) in enumerate(wide if large else small):
            outputs = scaled(outputs)
            layers += [nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=large), nn.BatchNorm2d(outputs), nn.ReLU()]
            side = (side + 2 * padding - kernel) // stride + 1
            if i in (0, 1, 4):
                layers.append(nn.MaxPool2d(pool, 2))
                side = (side - pool) // 2 + 1
            inputs = outputs
        self.features = nn.Sequential(*layers)
        flat, hidden = inputs * side * side, scaled(4096 if large else 1024)
        if large:
            layers = [nn.Dropout(), nn.Linear(flat, hidden), nn.ReLU(), nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU()]
        else:
            norm = lambda a: [nn.Linear(a, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU()]
            layers = norm(flat) + norm(hidden)
        self.classifier = nn.Sequential(*layers, head(hidden, embedding, kind))

    def pooled(self, x):
        return self.classifier[:-1](self.features(x).flatten(1))

    def forward(self, x):
        return F.normalize(self.classifier(self.features(x).flatten(1)))


def card(path):
    """What the file says of itself."""
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["pcp"])["about"]


def preprocess(path):
    """Side of the images, how much larger they are before the centre is cut out, and the channels' means and deviations."""
    about = card(path)
    return {key: about[key] for key in ("size", "margin", "mean", "std")}


def load(path):
    """The network of an exported file, ready for inference."""
    about = card(path)
    net, side = about["network"], about["size"]
    arch, width, embedding, kind = net["arch"], net["width"], net["embedding"], net["head"]
    if arch == "resnet18":
        large = net["stem"] == "large" or net["stem"] == "auto" and side > 64
        module = ResNet18(width, embedding, large, kind)
    else:
        module = AlexNet(side, width, embedding, arch == "alexnet224", kind)
    module.load_state_dict(load_file(path))
    return module.eval()
