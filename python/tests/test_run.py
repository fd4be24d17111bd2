"""Training on images, and what a run gives."""

import warnings

import numpy as np
import pytest
from conftest import SMALL
from PIL import Image

import pcp


def photographs(count, side=20):
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def test_a_run_has_embeddings_clusters_and_figures(run):
    assert run.embeddings.shape == (64, 128)
    clusters = run.clusters
    assert len(clusters) == 64 and {"file", "cluster", "status"} <= set(clusters.columns)
    assert run.result["images"] == 64 and len(run.metrics) == 2
    assert "64 images" in repr(run)
    again = pcp.open(run.path)
    assert np.array_equal(again.embeddings, run.embeddings)
    assert np.array_equal(pcp.resume(run.path, verbose=False).embeddings, run.embeddings)


def test_any_form_of_an_image_gives_the_same_row(run, tmp_path):
    pixels = photographs(3)
    pictures = [Image.fromarray(image) for image in pixels]
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for picture, path in zip(pictures, paths):
        picture.save(path)
    rows = run.embed(pixels)
    assert rows.shape == (3, 128) and np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    for form in (pictures, list(pixels), pixels / 255, paths, [str(path) for path in paths], tmp_path):
        assert np.array_equal(run.embed(form), rows)
    # In a batch of another size the last bits may differ.
    assert np.allclose(run.embed(pictures[1]), rows[1:2], atol=1e-6)
    assert run.embed(tmp_path, return_files=True)[1] == ["0.png", "1.png", "2.png"]
    assert run.embed(pixels, features="pooled").shape == (3, 32)
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    assert np.array_equal(run.embed(tensor), rows)
    assert np.array_equal(run.embed(tensor.float() / 255), rows)


def test_files_that_cannot_be_read_are_named(run, tmp_path):
    Image.fromarray(photographs(1)[0]).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no image")
    with pytest.raises(pcp.DataError, match="b.png"):
        run.embed(tmp_path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert run.embed(tmp_path, skip_bad_files=True).shape == (1, 128)
    assert "b.png" in str(said[0].message)
    for wrong in (np.zeros((4, 4, 4), np.uint8), np.full((4, 4, 3), 7.0), np.zeros((4, 4, 3), np.int64)):
        with pytest.raises(ValueError):
            run.embed(wrong)


def test_the_page_is_shown_inline(run):
    assert (run.path / "report.html").is_file()
    html = run.report()._repr_html_()
    assert html.startswith("<iframe srcdoc=") and "&lt;!doctype html" in html[:200].lower()


@pytest.mark.parametrize("kind, preset", [("patches", "patches"), ("both", "pcp-plus")])
def test_patches_are_embedded_and_exported_as_networks_are(kind, preset, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for i, image in enumerate(photographs(48, 40)):
        Image.fromarray(image).resize((40, 40 - i % 9)).save(folder / f"{i:02}.png")
    few = dict(epochs=1, width=4, batch=16) if kind == "both" else {}
    run = pcp.train(folder, tmp_path / "run", presets=preset, size=16, verbose=False, **few)
    assert run.kind == kind and pcp.open(run.path).kind == kind
    rows, files = run.embed(folder, return_files=True)
    assert files == run.clusters["file"].tolist()
    assert np.allclose(rows, run.embeddings, atol=1e-5)
    assert np.allclose(run.embed([Image.open(folder / file) for file in files]), rows, atol=1e-6)
    assert run.report().path.is_file() and "48 images" in repr(run)
    assert run.preprocess["size"] >= 16
    patches = run.export("onnx", tmp_path / "patches.onnx", part="patches")
    assert patches.is_file()
    with pytest.raises(ValueError, match="it may be 'network' or 'patches'"):
        run.export("onnx", tmp_path / "x.onnx", part="head")
    with pytest.raises(pcp.UsageError, match="no torch module"):
        run.to_torch(part="patches")
    if kind == "patches":
        assert run.export("onnx", tmp_path / "run.onnx").read_bytes() == patches.read_bytes()
        with pytest.raises(pcp.UsageError, match="clusters of patches and no network"):
            run.export("onnx", tmp_path / "x.onnx", part="network")
        with pytest.raises(pcp.UsageError, match="no features called pooled"):
            run.embed(folder, features="pooled")
    else:
        for refused in (lambda: run.export("safetensors", tmp_path / "x.onnx"), run.to_torch):
            with pytest.raises(pcp.UsageError, match="side by side"):
                refused()
        network = run.export("onnx", tmp_path / "network.onnx", part="network").read_bytes()
        both = run.export("onnx", tmp_path / "both.onnx").read_bytes()
        assert len({both, network, patches.read_bytes()}) == 3
        assert run.embed(folder, features="pooled").shape == (48, 32)
    assert not (tmp_path / "x.onnx").exists()


def test_images_in_memory_are_trained_on(tmp_path):
    images = [Image.fromarray(image) for image in photographs(32)]
    run = pcp.train(images, tmp_path / "r", labels=["a", "b"] * 16, **(SMALL | dict(epochs=1, report=False)))
    assert sorted(path.name for path in (tmp_path / "r-images").iterdir()) == ["a", "b"]
    assert set(run.clusters["label"]) == {"a", "b"}
    assert run.report().path.is_file()


def test_wrong_use_is_told_with_its_remedy(tmp_path):
    with pytest.raises(pcp.UsageError, match="is no folder|no such|does not exist|cannot read") as caught:
        pcp.train(tmp_path / "nothing", tmp_path / "r", verbose=False)
    assert caught.value.hint
    with pytest.raises(pcp.UsageError, match="`minutes` is -1"):
        pcp.train("bundled", tmp_path / "r", minutes=-1, verbose=False)
    with pytest.raises(TypeError, match="'epoch'"):
        pcp.train("bundled", epoch=1)
    with pytest.raises(pcp.UsageError, match="train.epoch"):
        pcp.train("bundled", tmp_path / "r", settings={"train.epoch": 1}, verbose=False)
    with pytest.raises(pcp.UsageError, match="1 labels for 2 images"):
        pcp.train(photographs(2), tmp_path / "r", labels=["a"])
    with pytest.raises(pcp.FileError, match="no run folder"):
        pcp.open(tmp_path)


def test_the_network_goes_elsewhere(run, tmp_path):
    onnx = run.export("onnx", tmp_path / "net.onnx")
    assert onnx.is_file()
    with pytest.raises(pcp.UsageError, match="net.onnx"):
        run.export("onnx", tmp_path / "net.onnx")
    with pytest.raises(pcp.UsageError, match="a network and no patches"):
        run.export("onnx", tmp_path / "other.onnx", part="patches")
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    module = run.to_torch()
    size, mean, std = (run.preprocess[key] for key in ("size", "mean", "std"))
    pixels = photographs(4, size)
    normalised = (torch.from_numpy(pixels).float() / 255 - torch.tensor(mean)) / torch.tensor(std)
    with torch.no_grad():
        found = module(normalised.permute(0, 3, 1, 2).float()).numpy()
    assert np.abs(found - run.embed(pixels)).max() < 1e-4
