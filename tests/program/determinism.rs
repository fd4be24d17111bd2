//! The same seed gives the same bits, whatever the number of threads.

use crate::common::*;

#[test]
fn one_three_and_all_threads_give_the_same_bits() {
    let expected = &reference().bits;
    assert!(expected.iter().any(|f| f.0 == "model.safetensors") && expected.iter().any(|f| f.0 == "clusters.csv"));
    // The reference has a thread for every core: one of these differs from it, whatever the machine.
    for threads in ["1", "3"] {
        assert_same(expected, &Finished::train(&["--threads", threads, "--quiet", "--no-report"]).bits);
    }
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
