//! The same seed gives the same bits, whatever the number of threads.

use crate::common::*;

#[test]
fn one_two_and_three_threads_give_the_same_bits() {
    let (dir, _) = place("");
    let runs: Vec<_> = ["1", "2", "3"]
        .iter()
        .map(|threads| {
            let out = dir.path().join(threads);
            succeed(&words(&small(&out, &["--threads", threads, "--quiet"])));
            bits(&out)
        })
        .collect();
    assert!(runs[0].iter().any(|f| f.0 == "model.safetensors") && runs[0].iter().any(|f| f.0 == "clusters.csv"));
    assert_same(&runs[0], &runs[1]);
    assert_same(&runs[0], &runs[2]);
}

#[test]
fn another_seed_gives_another_network() {
    let (dir, _) = place("");
    let train = |seed: &str| {
        let out = dir.path().join(seed);
        succeed(&words(&small(&out, &["--seed", seed, "--epochs", "2", "--rounds", "1", "--quiet"])));
        std::fs::read(out.join("model.safetensors")).unwrap()
    };
    assert_ne!(train("1"), train("2"));
}
