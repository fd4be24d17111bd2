"""Encoders of other tools in ONNX, by the program `pcp embed`, beside onnxruntime and PyTorch."""

import json

import numpy as np
import pytest
from PIL import Image
from test_task import program

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def photographs(folder, side, count=3):
    """Images of the network's own size, which need not be resized; normalised, as a batch [n, 3, side, side]."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    folder.mkdir()
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{i}.png")
    return ((pixels / 255 - MEAN) / STD).astype(np.float32).transpose(0, 3, 1, 2)


def embedded(model, images, *words):
    """The rows that `pcp embed` writes, and what it says."""
    out = model.with_suffix(".npy")
    out.unlink(missing_ok=True)
    done = program("embed", str(model), str(images), "--out", str(out), "--json", *words)
    assert done.returncode == 0, done.stderr
    return np.load(out), json.loads(done.stdout)


def close(found, truth):
    """Within 1e-4 of the largest."""
    assert found.shape == truth.shape
    assert np.abs(found - truth).max() < 1e-4 * max(1, np.abs(truth).max())


NORMAL = ["--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD))]


def test_an_own_export_knows_how_its_images_are_made(run, tmp_path):
    photographs(tmp_path / "images", 40)
    rows = run.embed(tmp_path / "images")
    for whole in (False, True):
        model = run.export("onnx", tmp_path / f"own-{whole}.onnx", with_preprocess=whole)
        found, told = embedded(model, tmp_path / "images")
        close(found, rows)
        assert told["features"] == "embedding" and told["rows"] == 3
    pooled, told = embedded(model, tmp_path / "images", "--features", "pooled")
    close(pooled, run.embed(tmp_path / "images", features="pooled"))
    (tmp_path / "images" / "broken.png").write_text("no image")
    assert embedded(model, tmp_path / "images")[1]["unreadable"] == 1


def test_wrong_use_is_told(run, tmp_path):
    photographs(tmp_path / "images", 16)
    model = run.export("onnx", tmp_path / "own.onnx")
    out = ["--out", str(tmp_path / "out.npy")]
    fail = lambda model, *words: program("embed", str(model), str(tmp_path / "images"), *out, *words).stderr
    assert "has no output logits" in fail(model, "--features", "logits") and "embedding, pooled" in fail(model, "--features", "logits")
    assert "takes images of 16 px, not 99" in fail(model, "--size", "99")
    assert "is an ONNX file, which has one set of weights" in fail(model, "--best")
    assert "are for ONNX files" in fail(run.path, "--size", "32")
    assert "--mean has 2 numbers" in fail(model, "--mean", "1,2")
    assert "cannot read" in fail(tmp_path / "nothing.onnx")
    (tmp_path / "junk.onnx").write_bytes(b"\x08junk")
    assert "junk.onnx" in fail(tmp_path / "junk.onnx") and not (tmp_path / "out.npy").exists()


def torch_export(module, file, side, outputs, dynamic=True):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnx")
    axes = {name: {0: "n"} for name in ("pixel_values", *outputs)} if dynamic else None
    torch.onnx.export(
        module.eval(), torch.zeros(2, 3, side, side), str(file), input_names=["pixel_values"], output_names=list(outputs),
        dynamic_axes=axes, opset_version=17, dynamo=False,
    )  # fmt: skip
    return file


def in_onnxruntime(file, batch, output):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return session.run([output], {"pixel_values": batch})[0]


def test_torchvisions_resnet(tmp_path):
    models = pytest.importorskip("torchvision").models
    batch = photographs(tmp_path / "images", 64)
    file = torch_export(models.resnet18(), tmp_path / "resnet18.onnx", 64, ["logits"])
    found, told = embedded(file, tmp_path / "images", *NORMAL)
    close(found, in_onnxruntime(file, batch, "logits"))
    assert told["features"] == "logits"
    # A configuration beside it does as well; without any, it says what is missing.
    out = ["--out", str(tmp_path / "x.npy")]
    assert "does not say how its images are normalised" in program("embed", str(file), str(tmp_path / "images"), *out).stderr
    config = {"image_mean": MEAN, "image_std": STD, "size": {"shortest_edge": 64}, "crop_size": 64, "resample": 2}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    close(embedded(file, tmp_path / "images")[0], found)
    # A fixed batch of two, of three images.
    fixed = torch_export(models.resnet18(), tmp_path / "fixed.onnx", 64, ["logits"], dynamic=False)
    halves = [in_onnxruntime(fixed, batch[[0, 1]], "logits"), in_onnxruntime(fixed, batch[[2, 2]], "logits")[:1]]
    close(embedded(fixed, tmp_path / "images")[0], np.concatenate(halves))


def test_torchvisions_vit(tmp_path):
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("torchvision").models
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(0)
    batch = photographs(tmp_path / "images", 224, 2)
    file = torch_export(models.vit_b_16(), tmp_path / "vit.onnx", 224, ["logits"])
    close(embedded(file, tmp_path / "images", *NORMAL)[0], in_onnxruntime(file, batch, "logits"))


def test_tokens_and_maps_become_a_row(tmp_path):
    torch = pytest.importorskip("torch")
    batch = photographs(tmp_path / "images", 32)

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 5, 8, 8)

        def forward(self, x):
            maps = self.conv(x)
            return maps, maps.flatten(2).transpose(1, 2)

    file = torch_export(Both(), tmp_path / "both.onnx", 32, ["maps", "last_hidden_state"])
    maps = in_onnxruntime(file, batch, "maps")
    close(embedded(file, tmp_path / "images", *NORMAL, "--features", "maps")[0], maps.mean((2, 3)))
    tokens = in_onnxruntime(file, batch, "last_hidden_state")
    close(embedded(file, tmp_path / "images", *NORMAL, "--features", "last_hidden_state")[0], tokens[:, 0])
