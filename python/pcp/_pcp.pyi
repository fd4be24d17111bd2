"""The extension module, written in Rust. Classes and functions of the package call it; users need not."""

import os
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float32]
_Ints = npt.NDArray[np.int32]

__version__: str

class _Progress(Protocol):
    def begin(self, part: str, total: int) -> Any: ...
    def advance(self, units: int) -> Any: ...
    def end(self) -> Any: ...

def main(words: list[str]) -> int: ...
def kmeans(
    x: _Floats,
    k: int,
    metric: str,
    start: _Floats | None,
    random: bool,
    starts: int,
    iterations: int,
    seed: int,
    progress: _Progress | None,
) -> tuple[_Ints, _Floats, _Floats, float, list[tuple[int, float]]]: ...
def assign(x: _Floats, centroids: _Floats, metric: str) -> tuple[_Ints, _Floats]: ...
def nearest(queries: _Floats | None, bank: _Floats, k: int, progress: _Progress | None) -> tuple[_Floats, _Ints]: ...
def purify(
    x: _Floats,
    past: list[_Floats],
    k: int | None,
    gamma: float,
    votes: int,
    alpha: float | None,
    lower: float | None,
    upper: float | None,
    metric: str,
    starts: int,
    iterations: int,
    seed: int,
    progress: _Progress | None,
) -> dict[str, Any]: ...
def label_issues(
    x: _Floats, labels: npt.NDArray[np.int64], classes: int, metric: str, seed: int, progress: _Progress | None
) -> dict[str, Any]: ...
def train(
    data: str,
    out: os.PathLike[str] | None,
    minutes: float | None,
    presets: list[str],
    settings: list[str],
    data_dir: os.PathLike[str] | str | None,
    init_from: os.PathLike[str] | str | None,
    overwrite: bool,
    no_report: bool,
    progress: _Progress | None,
) -> tuple[Any, str]: ...
def resume(path: os.PathLike[str], no_report: bool, progress: _Progress | None) -> tuple[Any, str]: ...
def report(
    runs: list[Any], out: os.PathLike[str] | None, max_images: int | None, progress: _Progress | None
) -> Any: ...
def export(
    model: os.PathLike[str], to: str, out: os.PathLike[str], part: str | None, with_preprocess: bool, best: bool
) -> Any: ...
def write_images(folder: os.PathLike[str], names: list[str], images: list[npt.NDArray[np.uint8]]) -> None: ...

class Model:
    def __init__(self, path: os.PathLike[str] | str, best: bool) -> None: ...
    @property
    def kind(self) -> str: ...
    @property
    def preprocess(self) -> str: ...
    def features(self, images: list[npt.NDArray[np.uint8]], features: str, progress: _Progress | None) -> _Floats: ...
    def features_of_files(
        self, paths: list[Any], features: str, progress: _Progress | None
    ) -> tuple[_Floats, list[str], list[tuple[str, str]]]: ...
