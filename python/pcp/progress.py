"""Progress as bars of tqdm: in a terminal as text, in a notebook as widgets. Rust calls the methods, on the thread that called it."""

from __future__ import annotations

import json
import warnings

from tqdm.auto import tqdm


class Progress:
    """Shows the part of a job that is under way, and a training by its epochs. Warnings become Python's."""

    def __init__(self, bars: bool = True):
        self._bars = bars
        self._part = None
        self._run = None

    def begin(self, part: str, total: int) -> None:
        self.end()
        if self._bars:
            self._part = tqdm(total=total or None, desc=part, leave=False, unit="")

    def advance(self, units: int) -> None:
        if self._part is not None:
            self._part.update(units)

    def end(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None

    def status(self, text: str) -> None:
        if self._part is not None:
            self._part.set_postfix_str(text)

    def training_began(self, epochs: int, done: int, images: int) -> None:
        if self._bars:
            self._run = tqdm(total=epochs, initial=done, desc="training", unit="epoch")

    def live(self, loss: float, clusters: int, kept: float) -> None:
        if self._run is not None:
            self._run.set_postfix(loss=f"{loss:.3f}", K=clusters, kept=f"{100 * kept:.0f} %")

    def epoch(self, record: str) -> None:
        if self._run is not None:
            self._run.update(1)
            knn = json.loads(record).get("knn")
            if knn is not None:
                tqdm.write(f"epoch {self._run.n}: kNN {knn:.1f} %")

    def training_ended(self) -> None:
        self.end()
        if self._run is not None:
            self._run.close()
            self._run = None

    def note(self, line: str) -> None:
        if self._bars:
            tqdm.write(line)

    def warn(self, text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=4)

    def close(self) -> None:
        """Ends all bars, also after an error."""
        self.training_ended()


def shown(work, verbose: bool):
    """`work(progress)` with bars, or without; they end with it."""
    progress = Progress(bars=bool(verbose))
    try:
        return work(progress)
    finally:
        progress.close()
