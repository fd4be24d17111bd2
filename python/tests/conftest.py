"""What tests share: rows in groups, and one run on the bundled photographs."""

import numpy as np
import pytest


@pytest.fixture
def blobs():
    """Ten groups of 30 rows, and the group of every row."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((10, 16))
    of = np.arange(300) % 10
    return (centres[of] + 0.2 * rng.standard_normal((300, 16))).astype(np.float32), of


SMALL = dict(epochs=2, limit=64, size=16, width=4, batch=16, clusters=4, precision="f32", verbose=False)


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A small run, with a page."""
    import pcp

    return pcp.train("bundled", tmp_path_factory.mktemp("runs") / "small", **SMALL)
