"""Images in any form, as Rust takes them: paths, or uint8 arrays of height x width x 3."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np


def is_path(images) -> bool:
    """Whether it names a file or a folder."""
    return isinstance(images, (str, os.PathLike))


def paths(images):
    """The paths, when all of `images` are paths; otherwise None."""
    if is_path(images):
        return [Path(images)]
    if isinstance(images, (list, tuple)) and images and all(map(is_path, images)):
        return [Path(image) for image in images]
    return None


def arrays(images) -> list[np.ndarray]:
    """Every image as a uint8 array of height x width x 3.

    Takes one or several of: PIL images, NumPy arrays (h, w), (h, w, 3), (n, h, w, 3), torch tensors (3, h, w), (n, 3, h, w). Numbers are
    bytes, or floats from 0 to 1.

    >>> [a.shape for a in arrays(np.zeros((2, 4, 5, 3), dtype=np.uint8))]
    [(4, 5, 3), (4, 5, 3)]
    >>> arrays(np.array([[0.0, 1.0]]))[0].tolist()
    [[[0, 0, 0], [255, 255, 255]]]
    """
    if isinstance(images, (list, tuple)):
        return [array for image in images for array in arrays(image)]
    if hasattr(images, "convert") and hasattr(images, "getexif"):  # PIL
        return [np.asarray(images.convert("RGB"))]
    channels_first = hasattr(images, "detach")  # torch
    pixels = images.detach().cpu().numpy() if channels_first else np.asarray(images)
    if channels_first and pixels.ndim >= 3:
        pixels = np.moveaxis(pixels, -3, -1)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim == 3 and pixels.shape[-1] not in (1, 3):
        raise ValueError(f"an array of the shape {pixels.shape} is no image: (h, w), (h, w, 3) and (n, h, w, 3) are")
    if pixels.ndim not in (3, 4) or pixels.shape[-1] not in (1, 3):
        raise ValueError(f"an array of the shape {pixels.shape} has no images: (h, w), (h, w, 3) and (n, h, w, 3) do")
    if pixels.dtype != np.uint8:
        if not np.issubdtype(pixels.dtype, np.floating) or not (np.min(pixels) >= 0 and np.max(pixels) <= 1):
            raise ValueError(f"pixels are {pixels.dtype}; they may be uint8, or floats from 0 to 1 (not normalised)")
        pixels = np.rint(pixels * 255).astype(np.uint8)
    pixels = np.broadcast_to(pixels, (*pixels.shape[:-1], 3))
    return [np.ascontiguousarray(image) for image in (pixels if pixels.ndim == 4 else pixels[None])]
