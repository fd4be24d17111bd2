//! Check values, plain implementations and finite differences.

use super::*;
use pcp_core::peers::parts::together;
use pcp_core::rng::{Key, Purpose};

fn unit(rows: &[[f32; 3]]) -> Matrix {
    Matrix::new(3, rows.concat()).normalised()
}

fn random(rows: usize, dim: usize, seed: u64) -> Matrix {
    let mut s = Key { purpose: Purpose::Synthetic, seed, round: 0, epoch: 0 }.stream(0, 0);
    Matrix::new(dim, (0..rows * dim).map(|_| s.normal()).collect()).normalised()
}

/// The bank of one process.
fn bank_of(rows: &Matrix) -> Bank {
    Bank::of_whole(rows.clone(), 0.5, &Alone)
}

fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() <= tolerance, "{a} is not {b}");
}

/// A case small enough to be computed by hand.
fn check_case() -> (Matrix, Matrix, Positives) {
    let bank = unit(&[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.5, 0.0], [0.8, 0.0, 0.4], [0.0, 0.0, 1.0]]);
    let v = unit(&[[1.0, 0.1, 0.1], [0.1, 1.0, 0.0]]);
    (v, bank, Positives::from_sets(5, [vec![0, 2, 3]]))
}

#[test]
fn bank_loss_check_values() {
    let (v, bank, positives) = check_case();
    for (form, expected) in
        [(LossForm::Logsum, 0.0051585082), (LossForm::Sumlog, 1.7170376791), (LossForm::Meanlog, 0.5757419859)]
    {
        let loss = bank_loss(&v, &[0, 1], &bank_of(&bank), &positives, 0.1, form, Precision::F32);
        close(loss.each.iter().sum::<f64>() / 2.0, expected, 2e-6);
    }
}

/// Eq. 3 to 6 by their definitions.
fn slow_bank_loss(
    v: &Matrix,
    samples: &[usize],
    bank: &Matrix,
    positives: &Positives,
    tau: f64,
    form: LossForm,
) -> f64 {
    let mut total = 0.0;
    for (r, &i) in samples.iter().enumerate() {
        let logit = |j: usize| -> f64 {
            (0..v.dim).map(|d| f64::from(v.row(r)[d]) * f64::from(bank.row(j)[d])).sum::<f64>() / tau
        };
        let all: f64 = (0..bank.rows).map(|j| logit(j).exp()).sum();
        let p = |j: usize| logit(j).exp() / all;
        let set: Vec<usize> = positives.of(i).map_or(vec![i], |s| s.iter().map(|j| *j as usize).collect());
        total += match form {
            LossForm::Logsum => -set.iter().map(|j| p(*j)).sum::<f64>().ln(),
            LossForm::Sumlog => -set.iter().map(|j| p(*j).ln()).sum::<f64>(),
            LossForm::Meanlog => -set.iter().map(|j| p(*j).ln()).sum::<f64>() / set.len() as f64,
        };
    }
    total / samples.len() as f64
}

#[test]
fn bank_loss_matches_its_definition_and_finite_differences() {
    // More rows than one block of the softmax.
    let bank = random(2500, 8, 1);
    let v = random(4, 8, 2);
    let samples = [3, 2100, 17, 9];
    let positives = Positives::from_sets(2500, [vec![3, 5, 1200, 2400], vec![17, 18]]);
    for form in [LossForm::Logsum, LossForm::Sumlog, LossForm::Meanlog] {
        let slow = |v: &Matrix| slow_bank_loss(v, &samples, &bank, &positives, 0.1, form);
        let fast = bank_loss(&v, &samples, &bank_of(&bank), &positives, 0.1, form, Precision::F32);
        close(fast.each.iter().sum::<f64>() / 4.0, slow(&v), 1e-5);
        for at in 0..v.values.len() {
            let moved = |by: f32| {
                let mut w = v.clone();
                w.values[at] += by;
                slow(&w)
            };
            let h = 1e-3;
            close(f64::from(fast.gradient[at]), (moved(h) - moved(-h)) / (2.0 * f64::from(h)), 2e-3);
        }
    }
}

/// Loss and gradient where several processes hold the bank: those of one, up to rounding (of gradients, to `tolerance`), and the same
/// bits in all of them. One process has the bits of a process alone.
fn divided(count: usize, tolerance: f64, alone: &BankLoss, loss: impl Fn(&dyn Peers) -> BankLoss + Sync) {
    let found = together(count, |peers| loss(&*peers));
    assert!(found.iter().all(|other| *other == found[0]), "{count} processes");
    if count == 1 {
        assert_eq!(&found[0], alone);
    }
    for (a, b) in found[0].each.iter().zip(&alone.each) {
        close(*a, *b, 1e-6 * b.abs().max(1.0));
    }
    for (a, b) in found[0].gradient.iter().zip(&alone.gradient) {
        close(f64::from(*a), f64::from(*b), tolerance);
    }
}

/// Also where there are fewer rows than processes, and where a sample's positives are elsewhere than itself.
#[test]
fn a_divided_bank_has_the_same_loss() {
    for (n, batch, counts) in [(2500, 5, vec![1, 2, 3]), (4, 5, vec![3, 5]), (1, 2, vec![2])] {
        let (bank, v) = (random(n, 8, 1), random(batch, 8, 2));
        let samples: Vec<usize> = (0..batch).map(|i| (i * 607 + n - 1) % n).collect();
        let sets = match n {
            1 => Vec::new(),
            4 => vec![vec![0, 1, 2, 3]],
            _ => vec![vec![0, 1300, 2499], vec![606, 607]],
        };
        let positives = Positives::from_sets(n, sets);
        for form in [LossForm::Logsum, LossForm::Sumlog, LossForm::Meanlog] {
            for precision in [Precision::F32, Precision::Bf16] {
                let loss = |peers: &dyn Peers| {
                    let bank = Bank::of_whole(bank.clone(), 0.5, peers);
                    bank_loss(&v, &samples, &bank, &positives, 0.1, form, BankWork { precision, peers, sample: None })
                };
                // In bf16, every exponential is rounded by 2^-9 of it, relative to a maximum of the rows of a process; a sum of four
                // logarithms has them four times.
                let tolerance = match precision {
                    Precision::F32 => 2e-6,
                    Precision::Bf16 => 4.0 * 2f64.powi(-8) / (0.1 * batch as f64),
                };
                counts.iter().for_each(|count| divided(*count, tolerance, &loss(&Alone), loss));
            }
        }
    }
}

/// Rows of a bank that a batch is compared with, and how many rows each stands for.
fn weighted(rows: usize, known: &[usize], sample: BankSample, peers: &dyn Peers) -> Vec<(usize, f64)> {
    let own = peers.own(rows);
    let known: Vec<usize> = known.iter().filter(|k| own.contains(k)).map(|k| k - own.start).collect();
    let (drawn, weight) = match sample.draw(own.len(), &known, peers) {
        Some(drawn) => drawn,
        None => ((0..own.len()).filter(|row| !known.contains(row)).collect(), 1.0),
    };
    let known = known.into_iter().map(|row| (row, 1.0));
    known.chain(drawn.into_iter().map(|row| (row, weight))).map(|(row, w)| (row + own.start, w)).collect()
}

/// [`slow_bank_loss`] with another sum in the place of Eq. 3's.
fn slow_sampled_loss(
    v: &Matrix,
    samples: &[usize],
    bank: &Matrix,
    positives: &Positives,
    (tau, form): (f64, LossForm),
    among: &[(usize, f64)],
) -> f64 {
    let sum = |r: usize, rows: &[(usize, f64)]| -> f64 {
        let product = |j: usize| -> f64 {
            v.row(r).iter().zip(bank.row(j)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() / tau
        };
        rows.iter().map(|(j, weight)| weight * product(*j).exp()).sum()
    };
    let whole: Vec<(usize, f64)> = (0..bank.rows).map(|j| (j, 1.0)).collect();
    let one = |r: usize, i: usize| {
        let row = Matrix::new(v.dim, v.row(r).to_vec());
        let exact = slow_bank_loss(&row, &[i], bank, positives, tau, form);
        let times = if form == LossForm::Sumlog { positives.of(i).map_or(1, <[u32]>::len) as f64 } else { 1.0 };
        exact + times * (sum(r, among).ln() - sum(r, &whole).ln())
    };
    samples.iter().enumerate().map(|(r, &i)| one(r, i)).sum::<f64>() / samples.len() as f64
}

/// Loss and gradient of a sampled bank on one and on several processes: the definition with the weights of the rows drawn.
#[test]
fn a_sampled_bank_loss_matches_its_definition_and_finite_differences() {
    let (n, tau, samples) = (900, 0.1, [3, 700, 17, 3]);
    let (bank, v) = (random(n, 8, 1), random(4, 8, 2));
    let positives = Positives::from_sets(n, [vec![3, 5, 400, 899], vec![17, 18]]);
    let known = [3, 5, 17, 18, 400, 700, 899];
    let key = Key { purpose: Purpose::BankRows, seed: 4, round: 0, epoch: 1 };
    for (count, rows) in [(1, 60), (1, 1), (2, 61), (3, 890), (5, 2)] {
        let sample = BankSample { rows, key, batch: 7 };
        let among = together(count, |peers| weighted(n, &known, sample, &*peers)).concat();
        close(among.iter().map(|(_, weight)| weight).sum(), n as f64, 1e-9);
        for form in [LossForm::Logsum, LossForm::Sumlog, LossForm::Meanlog] {
            let found = together(count, |peers| {
                let bank = Bank::of_whole(bank.clone(), 0.5, &*peers);
                let work = BankWork { precision: Precision::F32, peers: &*peers, sample: Some(sample) };
                bank_loss(&v, &samples, &bank, &positives, tau as f32, form, work)
            });
            assert!(found.iter().all(|other| *other == found[0]));
            let slow = |v: &Matrix| slow_sampled_loss(v, &samples, &bank, &positives, (tau, form), &among);
            close(found[0].each.iter().sum::<f64>() / 4.0, slow(&v), 1e-5);
            finite_differences(&v, &found[0].gradient, &slow);
        }
    }
}

/// As many rows as there are, or as there are without the positives: the bits of the whole bank.
#[test]
fn a_sample_of_all_rows_is_the_whole_bank() {
    let (bank, v) = (bank_of(&random(50, 8, 1)), random(3, 8, 2));
    let positives = Positives::from_sets(50, [vec![3, 5, 40]]);
    let key = Key { purpose: Purpose::BankRows, seed: 4, round: 0, epoch: 1 };
    let with = |rows: Option<usize>| {
        let sample = rows.map(|rows| BankSample { rows, key, batch: 0 });
        let work = BankWork { sample, ..Precision::Bf16.into() };
        bank_loss(&v, &[3, 9, 9], &bank, &positives, 0.1, LossForm::Logsum, work)
    };
    for rows in [46, 50, 1000] {
        assert_eq!(with(Some(rows)), with(None));
    }
    assert_ne!(with(Some(45)), with(None));
    // Drawn rows and all threads: the same bits.
    let threads = |n: usize| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(|| with(Some(9)));
    assert_eq!(threads(1), threads(3));
}

/// The mean of the denominator over many batches is Eq. 3's sum.
#[test]
fn the_denominator_of_a_sampled_bank_is_unbiased() {
    let (bank, v) = (bank_of(&random(101, 8, 1)), random(3, 8, 2));
    let samples = [3, 9, 50];
    let key = Key { purpose: Purpose::BankRows, seed: 4, round: 0, epoch: 1 };
    let denominators = |sample: Option<BankSample>| -> Vec<f64> {
        let work = BankWork { sample, ..Precision::F32.into() };
        let found = bank_loss(&v, &samples, &bank, &Positives::instances(101), 0.3, LossForm::Logsum, work);
        let logit = |r: usize| f64::from(dot(v.row(r), bank.rows.row(samples[r]))) / 0.3;
        found.each.iter().enumerate().map(|(r, loss)| (loss + logit(r)).exp()).collect()
    };
    let whole = denominators(None);
    let batches = 4000;
    let mut sums = vec![[0.0; 2]; 3];
    for batch in 0..batches {
        let found = denominators(Some(BankSample { rows: 13, key, batch }));
        for (sum, x) in sums.iter_mut().zip(found) {
            *sum = [sum[0] + x, sum[1] + x * x];
        }
    }
    for ([sum, squares], whole) in sums.into_iter().zip(whole) {
        let mean = sum / batches as f64;
        let error = ((squares / batches as f64 - mean * mean) / batches as f64).sqrt();
        assert!(error < 0.01 * whole, "the draws differ, but not by much");
        close(mean, whole, 4.0 * error);
    }
}

/// The background is that of the whole bank, wherever its rows are, also where equal rows are on several processes.
#[test]
fn a_divided_bank_has_the_same_local_loss() {
    for (n, batch, counts) in [(90usize, 7, vec![1, 2, 3, 5]), (2, 3, vec![3]), (1, 1, vec![2])] {
        let some = random(n.div_ceil(3), 6, 4);
        let bank = Matrix::new(6, some.values.repeat(3)[..n * 6].to_vec());
        let v = random(batch, 6, 5);
        let samples: Vec<usize> = (0..batch).map(|i| i * 13 % n).collect();
        let clusterings: Vec<Vec<u32>> =
            (1..4u32).map(|h| (0..n as u32).map(|i| (i * 7 + h) % (3 + h)).collect()).collect();
        for background in [1, 2, 20, 37, 1000] {
            let loss = |peers: &dyn Peers| {
                let bank = Bank::of_whole(bank.clone(), 0.5, peers);
                local_loss(&v, &samples, &bank, &clusterings, background, 0.07, peers)
            };
            counts.iter().for_each(|count| divided(*count, 2e-6, &loss(&Alone), loss));
        }
    }
}

#[test]
fn bank_softmax_of_one_row_is_certain() {
    let bank = unit(&[[0.0, 1.0, 0.0]]);
    let s = kernels::bank_softmax(&unit(&[[1.0, 1.0, 0.0]]).values, &bank.values, 3, 0.1, Precision::F32);
    close(s.log_sum_exp[0], 10.0 / 2f64.sqrt(), 1e-5);
    assert_eq!(s.expectation, bank.values);
}

/// Computed by hand.
#[test]
fn spreading_check_values() {
    let rows = [[1.0, 0.5, 0.2], [0.6, 1.0, 0.3], [0.4, 0.5, 1.0], [0.9, 0.7, 0.1], [0.7, 0.8, 0.5], [0.3, 0.7, 0.9]];
    let v = unit(&rows);
    close(spreading_loss(&v, 0.1).0, 1.2031446949, 2e-6);
    close(spreading_loss(&v, 0.5).0, 2.1399341770, 2e-6);
}

/// The loss with `queries` and `keys` apart, so that the gradient by the queries alone can be probed.
fn slow_spreading(queries: &Matrix, keys: &Matrix, tau: f64) -> f64 {
    let n = queries.rows;
    let mut total = 0.0;
    for i in 0..n {
        let e = |j: usize| -> f64 {
            if i == j {
                return 0.0;
            }
            let s: f64 = queries.row(i).iter().zip(keys.row(j)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            (s / tau).exp()
        };
        let all: f64 = (0..n).map(e).sum();
        let partner = (i + n / 2) % n;
        total += (e(partner) / all).ln();
        for j in (0..n).filter(|j| *j != i && *j != partner) {
            total += (1.0 - (e(j) / all).min(CLAMP)).ln();
        }
    }
    -total / n as f64
}

#[test]
fn spreading_matches_its_definition_and_finite_differences() {
    let v = random(10, 6, 5);
    for tau in [0.1f32, 0.5] {
        let (loss, gradient) = spreading_loss(&v, tau);
        close(loss, slow_spreading(&v, &v, f64::from(tau)), 1e-5);
        for at in 0..v.values.len() {
            let moved = |by: f32| {
                let mut w = v.clone();
                w.values[at] += by;
                slow_spreading(&w, &v, f64::from(tau))
            };
            let h = 1e-3;
            close(f64::from(gradient[at]), (moved(h) - moved(-h)) / (2.0 * f64::from(h)), 3e-3);
        }
    }
}

#[test]
fn spreading_of_one_sample_is_zero_and_of_equal_rows_finite() {
    let (loss, gradient) = spreading_loss(&unit(&[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), 0.1);
    assert_eq!(loss, 0.0);
    assert!(gradient.iter().all(|g| *g == 0.0));
    let (loss, gradient) = spreading_loss(&unit(&[[1.0, 2.0, 3.0]; 8]), 0.1);
    assert!(loss.is_finite() && gradient.iter().all(|g| g.is_finite()));
    // A near-copy of row 0 as its negative: P is clamped, not infinite.
    let (loss, gradient) = spreading_loss(&unit(&[[1., 0., 0.], [1., 0., 0.], [-1., 0., 0.], [0., 1., 0.]]), 0.01);
    assert!(loss.is_finite() && gradient.iter().all(|g| g.is_finite()));
    let (loss, gradient) = spreading_loss(&Matrix::new(3, vec![]), 0.1);
    assert!(loss == 0.0 && gradient.is_empty());
}

/// MoCo's logits by the definition: [q.k+, q.queue] / tau, the first is right.
fn slow_key_loss(q: &Matrix, keys: &Matrix, queue: &Matrix, tau: f64) -> f64 {
    let product = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum() };
    let each = (0..q.rows).map(|r| {
        let mut logits = vec![product(q.row(r), keys.row(r)) / tau];
        logits.extend((0..queue.rows).map(|j| product(q.row(r), queue.row(j)) / tau));
        logits.iter().map(|l| l.exp()).sum::<f64>().ln() - logits[0]
    });
    each.sum::<f64>() / q.rows as f64
}

#[test]
fn key_loss_matches_its_definition_and_finite_differences() {
    let (q, keys, queue) = (random(3, 5, 1), random(3, 5, 2), random(700, 5, 3));
    let fast = key_loss(&q, &keys, &queue, 0.07, Precision::F32);
    close(fast.each.iter().sum::<f64>() / 3.0, slow_key_loss(&q, &keys, &queue, 0.07), 1e-5);
    let slow = |q: &Matrix| slow_key_loss(q, &keys, &queue, 0.07);
    finite_differences(&q, &fast.gradient, &slow);
}

fn finite_differences(v: &Matrix, gradient: &[f32], loss: &dyn Fn(&Matrix) -> f64) {
    let h = 1e-3;
    for at in 0..v.values.len() {
        let moved = |by: f32| {
            let mut w = v.clone();
            w.values[at] += by;
            loss(&w)
        };
        close(f64::from(gradient[at]), (moved(h) - moved(-h)) / (2.0 * f64::from(h)), 2e-3);
    }
}

/// LA's sets and loss by their definitions.
fn slow_local_loss(v: &Matrix, samples: &[usize], bank: &Matrix, clusterings: &[Vec<u32>], b: usize) -> f64 {
    let tau = 0.07;
    let each = samples.iter().enumerate().map(|(r, &own)| {
        let logit = |j: usize| -> f64 {
            bank.row(j).iter().zip(v.row(r)).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>() / tau
        };
        let mut others: Vec<usize> = (0..bank.rows).filter(|j| *j != own).collect();
        others.sort_by(|x, y| logit(*y).total_cmp(&logit(*x)));
        let background: Vec<usize> = std::iter::once(own).chain(others.into_iter().take(b - 1)).collect();
        let close = |j: &&usize| **j == own || clusterings.iter().any(|c| c[**j] == c[own]);
        let sum = |set: Vec<&usize>| set.iter().map(|j| logit(**j).exp()).sum::<f64>();
        let (within, all) = (sum(background.iter().filter(close).collect()), sum(background.iter().collect()));
        -(within / all).ln()
    });
    each.sum::<f64>() / samples.len() as f64
}

#[test]
fn local_loss_matches_its_definition_and_finite_differences() {
    let bank = random(60, 6, 4);
    let samples: Vec<usize> = (0..11).map(|i| i * 5).collect();
    let v = random(samples.len(), 6, 5);
    let clusterings: Vec<Vec<u32>> = (1..4u32).map(|h| (0..60).map(|i| (i * 7 + h) % (3 + h)).collect()).collect();
    for background in [60, 20, 1000] {
        let slow = |v: &Matrix| slow_local_loss(v, &samples, &bank, &clusterings, background);
        let fast = local_loss(&v, &samples, &bank_of(&bank), &clusterings, background, 0.07, &Alone);
        close(fast.each.iter().sum::<f64>() / 11.0, slow(&v), 1e-5);
        if background >= 60 {
            finite_differences(&v, &fast.gradient, &slow); // a smaller background jumps when a neighbour enters
        }
    }
}

/// A background of one row is the sample itself, whose probability is 1.
#[test]
fn local_loss_of_the_sample_alone_is_zero() {
    let bank = random(9, 4, 6);
    let found = local_loss(&random(1, 4, 7), &[3], &bank_of(&bank), &[vec![0; 9]], 1, 0.07, &Alone);
    close(found.each[0], 0.0, 1e-9);
    assert!(found.gradient.iter().all(|g| g.abs() < 1e-9));
}

/// The gradient of `loss` at `v` against central differences of its value.
fn check_gradient(v: &Matrix, loss: impl Fn(&Matrix) -> (f64, Vec<f32>)) {
    let (_, gradient) = loss(v);
    for at in 0..v.values.len() {
        let moved = |by: f32| {
            let mut w = v.clone();
            w.values[at] += by;
            loss(&w).0
        };
        let h = 1e-2;
        close(f64::from(gradient[at]), (moved(h) - moved(-h)) / f64::from(2.0 * h), 2e-3);
    }
}

/// By its definition: the softmax over all other views.
#[test]
fn contrast_loss_matches_its_definition_and_finite_differences() {
    let (v, tau) = (random(6, 4, 5), 0.5);
    let slow = |v: &Matrix| -> f64 {
        let p = |i: usize, j: usize| (f64::from(dot(v.row(i), v.row(j))) / f64::from(tau)).exp();
        let own = |i: usize| p(i, (i + 3) % 6) / (0..6).filter(|k| *k != i).map(|k| p(i, k)).sum::<f64>();
        -(0..6).map(|i| own(i).ln()).sum::<f64>() / 6.0
    };
    close(contrast_loss(&v, tau).0, slow(&v), 1e-6);
    check_gradient(&v, |v| contrast_loss(v, tau));
    // Two views of one image: each finds the other.
    close(contrast_loss(&random(2, 4, 6), tau).0, 0.0, 1e-9);
}

/// Two images, two views each: `det(I + a X X^T) = (1 + a)^2 - (a c)^2` with the cosine c of the images in a view.
#[test]
fn coding_rate_loss_matches_its_definition_and_finite_differences() {
    let (v, views, spread, precision) = (random(4, 3, 7), 2, 0.1, 0.2);
    let a: f64 = 3.0 / (2.0 * precision);
    let cosine = |i: usize, j: usize| f64::from(dot(v.row(i), v.row(j)));
    let rate = |c: f64| 0.5 * ((1.0 + a).powi(2) - (a * c).powi(2)).ln();
    // The mean of two unit vectors at cosine c has the length sqrt((1 + c) / 2).
    let agreement = (((1.0 + cosine(0, 2)) / 2.0).sqrt() + ((1.0 + cosine(1, 3)) / 2.0).sqrt()) / 2.0;
    let expected = -agreement - spread * (rate(cosine(0, 1)) + rate(cosine(2, 3))) / 2.0;
    let loss = |v: &Matrix| coding_rate_loss(v, views, spread, precision).unwrap();
    close(loss(&v).0, expected, 1e-6);
    check_gradient(&v, loss);
    check_gradient(&random(15, 4, 8), |v| coding_rate_loss(v, 3, 0.02, precision).unwrap());
    // Equal images and equal views: nothing is singular.
    let same = Matrix::new(2, [0.6, 0.8].repeat(6));
    let (value, gradient) = coding_rate_loss(&same, 2, spread, precision).unwrap();
    assert!(value.is_finite() && gradient.iter().all(|g| g.is_finite()));
    // No number among the embeddings is an error.
    assert!(coding_rate_loss(&Matrix::new(2, vec![f32::NAN; 8]), 2, spread, precision).is_err());
}
