"""Long work: Ctrl-C, the interpreter lock, progress, and the program."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import pcp


def test_ctrl_c_stops_at_once():
    code = """
import numpy as np, pcp, time
X = np.random.default_rng(0).standard_normal((60000, 64)).astype(np.float32)
print("begins", flush=True)
try:
    pcp.KMeans(2000, max_iter=100000).fit(X)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begins\n"
    time.sleep(1)
    asked = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "stopped\n"
    assert time.monotonic() - asked < 2
    # What still runs on other threads ends with the process.
    child.kill()
    child.wait()


def test_other_threads_go_on():
    X = np.random.default_rng(0).standard_normal((20000, 64)).astype(np.float32)
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    began = time.monotonic()
    pcp.KMeans(200, n_init=1).fit(X)
    seconds = time.monotonic() - began
    done.set()
    thread.join()
    assert counted[0] > 20 * seconds


def test_progress_is_shown_when_asked_for(capfd, blobs):
    pcp.KMeans(10, verbose=True).fit(blobs[0])
    assert "clustering" in capfd.readouterr().err
    pcp.KMeans(10).fit(blobs[0])
    assert capfd.readouterr().err == ""


def test_an_error_of_progress_ends_the_work(blobs):
    from pcp import _pcp

    class Broken:
        def __getattr__(self, name):
            raise RuntimeError("no terminal")

    with pytest.raises(RuntimeError, match="no terminal"):
        _pcp.kmeans(blobs[0], 10, "euclidean", None, False, 3, 30, 0, Broken())


def program(*words, **more):
    return subprocess.run([os.path.join(os.path.dirname(sys.executable), "pcp"), *words], capture_output=True, text=True, **more)


def test_the_program_is_there(tmp_path):
    assert program("--version").stdout.strip() == f"pcp {pcp.__version__}"
    wrong = program("trian")
    assert wrong.returncode == 2 and "did you mean train?" in wrong.stderr
    np.save(tmp_path / "e.npy", np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32))
    done = program("cluster", str(tmp_path / "e.npy"), "--k", "3", "--out", str(tmp_path / "out"))
    assert done.returncode == 0 and (tmp_path / "out" / "clusters.csv").is_file()


def test_the_program_starts_without_scikit_learn():
    code = "import pcp._program, sys; print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
