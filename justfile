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

# Run all tests
test:
    cargo test --release --workspace

# Format the code
fmt:
    cargo fmt --all

# Look for mistakes
lint:
    cargo clippy --workspace --all-targets -- -D warnings
