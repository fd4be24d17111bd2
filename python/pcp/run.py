"""Training on images, and what it leaves: a run."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np

from . import _images, _pcp
from .errors import DataError, FileError, UsageError
from .progress import shown

# Settings with a name of their own; all others go into `settings`.
_NAMED = {
    "arch": "network.arch",
    "batch": "train.batch",
    "cache": "data.cache",
    "clusters": "clusters.floor",
    "epochs": "train.epochs",
    "eval_every": "evaluate.every",
    "gamma": "purify.gamma",
    "limit": "data.limit",
    "lr": "train.lr",
    "precision": "train.precision",
    "rounds": "train.rounds",
    "seed": "train.seed",
    "size": "data.size",
    "width": "network.width",
}


def train(
    data="bundled",
    out=None,
    *,
    minutes=None,
    labels=None,
    presets=(),
    settings=None,
    data_dir=None,
    init_from=None,
    overwrite=False,
    report=True,
    verbose=True,
    **named,
) -> Run:
    """Learns features of images without labels; leaves embeddings, purified clusters, the network and a page in a run folder.

    Ctrl-C saves everything; :func:`resume` goes on.

    Parameters
    ----------
    data : str, path, or images
        A folder of images, "cifar10", "cifar100" (with `data_dir`) or "bundled"; or images in memory: PIL images, arrays (n, h, w, 3), torch
        tensors (n, 3, h, w). Those in memory are kept as PNG files in a folder beside the run.
    out : path, optional
        The run folder; otherwise a new one below "runs".
    minutes : float, optional
        The best that can be had in this time: width, size and epochs are chosen for it, unless they are given. A folder gets 20 minutes, when
        nothing else is asked for.
    labels : sequence, optional
        Classes of images in memory; they only serve to measure the features.
    presets : str or sequence of str
        Systems, data sets or TOML files of settings.
    settings : dict, optional
        Single settings, as {"train.epochs": 20}. The usual ones are arguments: epochs, rounds, batch, lr, seed, precision, size, limit, cache, arch,
        width, clusters, gamma, eval_every.
    data_dir, init_from, overwrite
        Where the CIFAR files are; weights to begin with; whether a run in `out` is replaced.
    report : bool
        Write the page at the end.
    verbose : bool
        Show progress.

    Examples
    --------
    >>> folder = getfixture("tmp_path")
    >>> import pcp
    >>> run = pcp.train("bundled", folder / "run", epochs=1, limit=32, size=16, width=4, batch=16, report=False, verbose=False)
    >>> run.embeddings.shape
    (32, 128)
    """
    unknown = set(named) - set(_NAMED)
    if unknown:
        raise TypeError(f"train() has no argument {sorted(unknown)[0]!r}; settings go into settings={{'section.key': value}}")
    chosen = {_NAMED[name]: value for name, value in named.items() if value is not None} | dict(settings or {})
    if not _images.is_path(data):
        out = _fresh() if out is None else Path(out)
        data = _stored(_images.arrays(data), labels, out.with_name(out.name + "-images"))
    elif labels is not None:
        raise UsageError("`labels` are for images in memory", "put the images of a class into a folder of their own")
    presets = [presets] if isinstance(presets, str) else list(map(str, presets))
    assignments = [f"{key}={json.dumps(value)}" for key, value in chosen.items()]
    path, _ = shown(
        lambda progress: _pcp.train(
            str(data), out, minutes, presets, assignments, data_dir, init_from, overwrite, not report, progress
        ),
        verbose,
    )
    return Run(path)


def resume(path, *, report=True, verbose=True) -> Run:
    """Goes on with a run that was stopped or killed; the result is bit for bit that of a run that was not."""
    path, _ = shown(lambda progress: _pcp.resume(Path(path), not report, progress), verbose)
    return Run(path)


def open(path) -> Run:
    """A run that was trained before, by :func:`train` or by the program.

    >>> import pcp
    >>> pcp.open("no/such/run")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    pcp.errors.FileError: no/such/run is no run folder (give the folder that pcp.train or `pcp train` made)
    """
    return Run(path)


def _fresh() -> Path:
    """The first free folder for a run on images in memory."""
    number = 1
    while (Path("runs") / f"memory-{number}").exists() or (Path("runs") / f"memory-{number}-images").exists():
        number += 1
    return Path("runs") / f"memory-{number}"


def _stored(images, labels, folder: Path) -> Path:
    """Images as files, in a folder per class where there are labels."""
    if labels is not None and len(labels) != len(images):
        raise UsageError(f"there are {len(labels)} labels for {len(images)} images", "give one for each, or none")
    digits = len(str(max(len(images) - 1, 0)))
    names = [f"{i:0{digits}}.png" for i in range(len(images))]
    if labels is not None:
        classes = [str(label).replace("/", "_").replace("\\", "_") for label in labels]
        names = [f"{of}/{name}" for of, name in zip(classes, names)]
    _pcp.write_images(folder, names, images)
    return folder


class Report:
    """A page about runs; shown inline in a notebook."""

    def __init__(self, path: Path):
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"Report({str(self.path)!r})"

    def _repr_html_(self) -> str:
        from html import escape

        page = escape(self.path.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 600px; border: 1px solid #ccc"></iframe>'


class Run:
    """A run folder: what a training left. :func:`train` and :func:`open` give one."""

    def __init__(self, path):
        self.path = Path(path)
        if not (self.path / "config.toml").is_file():
            raise FileError(f"{path} is no run folder", "give the folder that pcp.train or `pcp train` made")
        self._models = {}

    def __repr__(self) -> str:
        result = self.result
        if result is None:
            return f"Run({str(self.path)!r}, unfinished)"
        shown = f"{result['images']} images, {result['clusters']} clusters, {100 * result['kept']:.0f} % kept"
        return f"Run({str(self.path)!r}, {shown})"

    @property
    def result(self) -> dict | None:
        """What was reached; None before the run has ended."""
        file = self.path / "result.json"
        return json.loads(file.read_text()) if file.is_file() else None

    @property
    def metrics(self) -> list[dict]:
        """A record per epoch."""
        file = self.path / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []

    def _finished(self, name: str) -> Path:
        file = self.path / name
        if not file.is_file():
            raise UsageError(f"{self.path} has no {name} yet", f"finish the run: pcp.resume({str(self.path)!r})")
        return file

    @property
    def embeddings(self) -> np.ndarray:
        """The embeddings of its images, in the order of `clusters`."""
        return np.load(self._finished("embeddings.npy"))

    @property
    def clusters(self):
        """A pandas frame with a line per image: its file, label, cluster and what purification made of it."""
        from ._input import pandas

        read = lambda name: pandas().read_csv(self._finished(name), keep_default_na=False, na_values={"vote": ""}, dtype={"label": str})
        clusters = read("clusters.csv")
        clusters.insert(1, "label", read("files.csv")["label"])
        return clusters

    def _model(self, best: bool):
        if best not in self._models:
            self._models[best] = _pcp.Model(self.path, best)
        return self._models[best]

    @property
    def kind(self) -> str:
        """What it trained: a "network", clusters of "patches", or "both", whose features stand side by side in an embedding."""
        return self._model(False).kind

    def embed(self, images, *, features="embedding", best=False, skip_bad_files=False, return_files=False, verbose=False):
        """A row of numbers per image.

        Parameters
        ----------
        images : path, list of paths, or images
            A folder, files, or images in memory (PIL, arrays (n, h, w, 3), torch tensors (n, 3, h, w), not normalised).
        features : str
            "embedding" (unit vectors), or of a network "pooled" or a layer, such as "layer4".
        best : bool
            Use the weights of the best probe instead of the last.
        skip_bad_files : bool
            Leave out files that cannot be read, with a warning, instead of an error.
        return_files : bool
            Also return the names of the rows' files.
        """
        model, places = self._model(best), _images.paths(images)
        if places is None:
            if return_files:
                raise ValueError("images in memory have no files to return")
            pixels = _images.arrays(images)
            return shown(lambda progress: model.features(pixels, features, progress), verbose)
        rows, names, bad = shown(lambda progress: model.features_of_files(places, features, progress), verbose)
        if bad:
            name, reason = bad[0]
            message = f"{len(bad)} of the files cannot be read, for example {name}: {reason}"
            if not skip_bad_files:
                raise DataError(message, "remove them, or leave them out with skip_bad_files=True")
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        return (rows, names) if return_files else rows

    def report(self, *, renew=False, max_images=None, verbose=False) -> Report:
        """The page about the run, which a notebook shows; it is written where there is none, or with `renew`."""
        page = self.path / "report.html"
        if renew or max_images is not None or not page.is_file():
            page = shown(lambda progress: _pcp.report([self.path], None, max_images, progress), verbose)
        return Report(page)

    def export(self, to="onnx", out=None, *, part=None, with_preprocess=False, best=False) -> Path:
        """Writes the model as "onnx" or "safetensors"; returns the file, by default named after the run, in the current folder.

        Of a run of both, whose embedding has the features of patches and of a network side by side, the ONNX model takes two views of an image,
        "input" and "square" (its metadata say how they are made), and `part` gives one of the two alone: "patches" or "network".
        With `with_preprocess`, the ONNX model takes values from 0 to 1 for "input" and normalises them itself; "square" and patches always do.
        """
        out = Path(f"{self.path.resolve().name}.{to}") if out is None else Path(out)
        return _pcp.export(self.path, to, out, part, with_preprocess, best)

    @property
    def preprocess(self) -> dict:
        """How images are made for the network (or for the patches, where there is no network): side, margin (0 for the whole image), and means
        and deviations of the channels."""
        return json.loads(self._model(False).preprocess)

    def to_torch(self, *, part=None, best=False):
        """The network as a torch module that turns normalised images (n, 3, side, side) into embeddings; see `preprocess`.

        Of a run of both, `part="network"` gives the network alone.
        """
        import tempfile

        if "patches" in (self.kind, part):
            raise UsageError(
                f"{self.path}: clusters of patches are no torch module",
                "run.export('onnx') writes them for onnxruntime" + (", and part='network' gives the network" if self.kind == "both" else ""),
            )
        if self.kind == "both" and part is None:
            raise UsageError(
                f"{self.path} has patches and a network side by side, and a torch module is the network alone",
                "give part='network', or export both: run.export('onnx')",
            )
        try:
            import pcp_models
        except ImportError as e:
            raise ImportError("to_torch() needs torch and safetensors: pip install torch safetensors") from e
        with tempfile.TemporaryDirectory() as folder:
            return pcp_models.load(self.export("safetensors", Path(folder) / "model.safetensors", part=part, best=best))
