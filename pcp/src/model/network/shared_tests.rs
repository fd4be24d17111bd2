//! A batch that several processes share gives what one process alone gives, up to rounding, and the same bits in all of them.

use super::*;
use crate::config::Config;
use pcp_core::cancel::Cancel;
use pcp_core::peers::Team;
use pcp_core::peers::parts::together;
use pcp_core::rng::Purpose;

fn network(arch: Arch, width: usize) -> Network {
    Network::new(&config::NetworkSettings { arch, width, ..Config::default().network }, 32).unwrap()
}

fn batch(rows: usize) -> Batch {
    let mut s = Key { purpose: Purpose::Synthetic, seed: 4, round: 0, epoch: 0 }.stream(0, 0);
    Batch { rows, pixels: (0..rows * 32 * 32 * 3).map(|_| s.normal()).collect() }
}

fn dropout(images: u64) -> DropoutKey {
    DropoutKey { key: Key { purpose: Purpose::Dropout, seed: 1, round: 0, epoch: 0 }, ids: (0..images).collect() }
}

/// Embeddings, gradients and moments of a step, as plain numbers.
fn step(net: &Network, weights: &Weights, share: BatchShare, all: &Batch, images: u64) -> [Vec<f32>; 3] {
    let image = all.pixels.len() / all.rows;
    let pixels = share.own_values(all.pixels.clone(), image);
    let own = Batch { rows: pixels.len() / image, pixels };
    // A loss whose gradient is another one for every row.
    let loss = |v: &Matrix| ((), (0..v.values.len()).map(|i| (i as f32 * 0.13).sin()).collect());
    let found = net.step(weights, own, share, dropout(images), FeatureKind::Embedding, loss);
    let gradients = found.gradients.into_iter().flat_map(|g| weights::to_vec(g.into_data())).collect();
    let moments = found.moments.iter().flat_map(|m| m.mean.iter().chain(&m.variance).copied().chain([m.count as f32]));
    [found.features.values, gradients, moments.collect()]
}

/// The greatest difference, by the greatest number.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let greatest = a.iter().fold(1e-9f32, |m, x| m.max(x.abs()));
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max) / greatest
}

#[test]
fn a_shared_step_is_the_step_of_one_process() {
    // Two views; groups as MoCo's; one part of all views; dropout in AlexNet; fewer rows than processes.
    let cases = [
        (Arch::Resnet18, 12, 2, 6),
        (Arch::Resnet18, 16, 4, 16),
        (Arch::Resnet18, 15, 1, 5),
        (Arch::Alexnet, 10, 2, 5),
        (Arch::Resnet18, 4, 2, 2),
    ];
    for (arch, rows, parts, images) in cases {
        let net = network(arch, 4);
        let (weights, all) = (net.init(3), batch(rows));
        let alone = step(&net, &weights, parts.into(), &all, images);
        for count in [2, 3] {
            let found = together(count, |peers| {
                let team = Team::new(peers, Cancel::default());
                step(&net, &weights, BatchShare::new(rows, parts, &team), &all, images)
            });
            assert!(found.iter().all(|other| *other == found[0]), "the same bits everywhere");
            for (what, (one, several)) in alone.iter().zip(&found[0]).enumerate() {
                let far = difference(one, several);
                // Groups of four rows have gradients that rounding changes most.
                assert!(far < 1e-3, "{arch:?}, {rows} rows in {parts} parts, {count} processes, {what}: {far}");
            }
        }
    }
}

#[test]
fn statistics_of_own_rows_are_others_but_agreed_on() {
    let net = Network { sync_norm: false, ..network(Arch::Resnet18, 4) };
    let (weights, all) = (net.init(3), batch(12));
    let alone = step(&net, &weights, 2.into(), &all, 6);
    let found = together(2, |peers| {
        let team = Team::new(peers, Cancel::default());
        step(&net, &weights, BatchShare::new(12, 2, &team), &all, 6)
    });
    assert_eq!(found[0], found[1]);
    assert!(difference(&alone[0], &found[0][0]) > 1e-3, "three rows have other statistics than six");
    assert!(difference(&alone[2], &found[0][2]) < 1.0);
}

#[test]
fn encoding_is_shared_too() {
    let net = network(Arch::Resnet18, 4);
    let (weights, all) = (net.init(3), batch(8));
    let (alone, _) = net.encode(&weights, all.clone(), 2, dropout(8));
    let found = together(2, |peers| {
        let share = BatchShare::new(8, 2, &Team::new(peers, Cancel::default()));
        let pixels = share.own_values(all.pixels.clone(), 32 * 32 * 3);
        net.encode(&weights, Batch { rows: 4, pixels }, share, dropout(8)).0
    });
    assert!(found.iter().all(|keys| keys == &found[0] && difference(&alone.values, &keys.values) < 1e-4));
}
