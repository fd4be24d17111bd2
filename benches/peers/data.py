"""CIFAR-10 and the training views, by torchvision."""

from pathlib import Path

import numpy
import torch
from torchvision.transforms import v2

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def labelled(folder, train):
    """The images as a uint8 tensor [n, 3, 32, 32], and their labels."""
    root = Path(folder)
    if (root / "cifar-10-batches-bin").is_dir():
        root = root / "cifar-10-batches-bin"
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
    # A record is a label, then the pixels.
    records = torch.from_numpy(numpy.concatenate([numpy.fromfile(root / name, "u1") for name in names]).reshape(-1, 3073))
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()


def cifar(folder, train):
    return labelled(folder, train)[0]


def pictures(images):
    return [v2.functional.to_pil_image(image) for image in images]


def train_view(mean=MEAN, std=STD):
    """pcp's training view. On 32 x 32 pixels torchvision is fastest with PIL images."""
    return v2.Compose([
        v2.RandomResizedCrop(32, scale=(0.2, 1.0), antialias=True),
        v2.ColorJitter(0.4, 0.4, 0.4, 0.4),
        v2.RandomGrayscale(0.2),
        v2.RandomHorizontalFlip(),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(mean, std),
    ])


def clean(images):
    return v2.functional.normalize(v2.functional.to_dtype(images, torch.float32, scale=True), MEAN, STD)
