# Every recipe is one line that can as well be run by hand.

# Measure against PyTorch, torchvision and faiss; for example: just peers --data-dir DIR
peers *arguments:
    benches/peers/run {{arguments}}

# Everything that must hold before a change is taken
ci:
    bash .ci/run

# Look at reports in a real browser
browser *arguments:
    tests/browser/run {{arguments}}

# Exported networks in PyTorch, torchvision and onnxruntime
exports:
    tests/exports/run

# The Python package: wheel, tests, types
python *arguments:
    python/test {{arguments}}

# Several processes by MPI
mpi *arguments:
    tests/mpi/run {{arguments}}

# Event files in TensorBoard's own reader
tensorboard:
    tests/tensorboard/run

# Kill every command that writes, 1,000 times in all; they must end with the same bits
kill-campaign:
    cargo test --release -p pcp-cli --test program campaign -- --ignored --nocapture

# Feed 100,000 mutated inputs to every parser
fuzz inputs="100000":
    PCP_FUZZ_INPUTS={{inputs}} cargo test --release -p pcp --test fuzz -- --nocapture

# Run all tests
test:
    cargo test --release

# Run the unit tests with debug assertions and overflow checks
test-checked:
    cargo test --release --config .ci/checked.toml -p pcp-kernels -p pcp-core -p pcp --lib

# Print the checksums of all files that must keep their bits
golden:
    tests/golden/make

# What would be uploaded to crates.io, without uploading it
package:
    cargo package --workspace --exclude pcp-python

# Format the code
fmt:
    cargo fmt --all

# Look for mistakes
lint:
    cargo clippy --release --workspace --all-targets -- -D warnings
