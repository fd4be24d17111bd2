//! AND, anchor neighbourhood discovery (Huang et al. 2019): the images with the least ambiguous neighbourhoods learn with their
//! nearest neighbours, more of them in every round.

use super::bank::Bank;
use super::{At, FoundTargets, Memory, Method, Past, Plan};
use pcp_core::error::Result;
use pcp_core::matmul::matmul;
use pcp_core::matrix::{Matrix, MatrixRef};
use pcp_core::neighbours::DividedBank;
use pcp_core::peers::Peers;
use pcp_core::purify::{Positives, Purified, Status};
use rayon::prelude::*;

/// Round 0 is instance recognition. Before round r the int(share r N) samples with the lowest entropy of
/// `p_i = softmax(M m_i / tau)` become anchors; the positives of an anchor are itself and its k nearest bank rows, for the
/// whole round.
pub struct And;

/// Rows whose similarities to the whole bank are in memory at once.
const BLOCK: usize = 16;

impl Method for And {
    fn describe(&self, plan: &Plan) -> String {
        let a = &plan.config.and;
        let several = if a.neighbours == 1 { "" } else { "s" };
        format!("{:.0} % more of the images with {} neighbour{several} in every round", a.share * 100.0, a.neighbours)
    }

    fn find_targets(
        &self,
        plan: &Plan,
        (round, epoch): At,
        _features: &Matrix,
        memory: &Memory,
        past: Past,
        on_iteration: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<FoundTargets> {
        let clusters = plan.samples();
        if round == 0 {
            return Ok(FoundTargets { clusters, ..FoundTargets::default() });
        }
        let positives = match past.positives.filter(|_| epoch > 0) {
            Some(kept) => kept.clone(),
            None => {
                on_iteration(0)?;
                let c = &plan.config;
                let anchors = (c.and.share * f64::from(round) * clusters as f64) as usize;
                let (k, tau, peers) = (c.and.neighbours, c.objective.tau as f32, &*plan.dataset.team);
                neighbourhoods(memory.bank()?, clusters, anchors.min(clusters), k, tau, peers)
            }
        };
        let status = |i: usize| if positives.of(i).is_some() { Status::Kept } else { Status::Instance };
        let purified = Purified {
            status: (0..clusters).map(status).collect(),
            distance: vec![0.0; clusters],
            vote: vec![f32::NAN; clusters],
            positives,
        };
        Ok(FoundTargets { clusters, purified: Some(purified), ..FoundTargets::default() })
    }
}

/// For the `anchors` of all `samples` with the lowest entropy, themselves and their `k` nearest others.
fn neighbourhoods(bank: &Bank, samples: usize, anchors: usize, k: usize, tau: f32, peers: &dyn Peers) -> Positives {
    let k = k.min(samples.saturating_sub(1));
    let divided = DividedBank { peers, held: &bank.rows, counts: &peers.shares(samples) };
    let (mut entropy, mut near) = (Vec::with_capacity(samples), Vec::with_capacity(samples * k));
    peers.in_turn(&bank.rows, samples, |rows, block| {
        entropy.extend(entropies(block, &bank.rows, tau, peers));
        near.extend(divided.nearest(block, k, Some(rows.start)).index);
    });
    let mut order: Vec<usize> = (0..samples).collect();
    order.sort_by(|a, b| entropy[*a].total_cmp(&entropy[*b]).then(a.cmp(b)));
    let mut sets = vec![None; samples];
    for &i in order.iter().take(anchors) {
        let set: Vec<u32> = std::iter::once(i as u32).chain(near[i * k..(i + 1) * k].iter().copied()).collect();
        sets[i] = (set.len() > 1).then_some(set);
    }
    Positives::from_own(sets)
}

/// `H_i = -sum_j p_ij log p_ij` of some rows i, with `p_i = softmax(M m_i / tau)` over all rows, including i. Every process has some of these,
/// `held`.
fn entropies(rows: &Matrix, held: &Matrix, tau: f32, peers: &dyn Peers) -> Vec<f64> {
    let (tau, n) = (f64::from(tau), held.rows);
    // With z_j = (s_j - max) / tau: H = log sum e^z - sum z e^z / sum e^z.
    let sums = |row: &[f32]| {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (mut total, mut weighted) = (0.0f64, 0.0f64);
        for s in row {
            let z = f64::from(s - max) / tau;
            total += z.exp();
            weighted += z * z.exp();
        }
        [f64::from(max), total, weighted]
    };
    let here: Vec<[f64; 3]> = (rows.values.par_chunks(BLOCK * rows.dim))
        .flat_map_iter(|block| {
            let count = block.len() / rows.dim;
            let mut similarity = vec![0.0f32; count * n];
            matmul(MatrixRef::new(block, count, rows.dim), held.view().t(), &mut similarity, false);
            (0..count).map(|r| sums(&similarity[r * n..(r + 1) * n])).collect::<Vec<_>>()
        })
        .collect();
    let all = peers.all_gather_values(&here, &vec![rows.rows; peers.count()]);
    let entropy = |row: usize| {
        // Of processes that hold any rows. Relative to another maximum, every z of a process moves by as much.
        let parts = || all.iter().skip(row).step_by(rows.rows).filter(|[_, total, _]| *total > 0.0);
        let max = parts().map(|[max, ..]| *max).fold(f64::NEG_INFINITY, f64::max);
        let (mut total, mut weighted) = (0.0, 0.0);
        for [its, sum, product] in parts() {
            let z = (its - max) / tau;
            total += z.exp() * sum;
            weighted += z.exp() * (product + z * sum);
        }
        total.ln() - weighted / total
    };
    (0..rows.rows).map(entropy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_core::peers::Alone;
    use pcp_core::peers::parts::together;
    use pcp_core::rng::{Key, Purpose};

    fn held(rows: &Matrix, peers: &dyn Peers) -> Bank {
        Bank::of_whole(rows.clone(), 0.5, peers)
    }

    fn bank() -> Matrix {
        let mut stream = Key { purpose: Purpose::Synthetic, seed: 3, round: 0, epoch: 0 }.stream(0, 0);
        Matrix::new(6, (0..40 * 6).map(|_| stream.normal()).collect()).normalised()
    }

    /// Straight from the definition, in f64.
    fn slow(bank: &Matrix, anchors: usize, k: usize, tau: f64) -> Vec<Option<Vec<u32>>> {
        let n = bank.rows;
        let product = |i: usize, j: usize| -> f64 {
            bank.row(i).iter().zip(bank.row(j)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let entropy: Vec<f64> = (0..n)
            .map(|i| {
                let e: Vec<f64> = (0..n).map(|j| (product(i, j) / tau).exp()).collect();
                let total: f64 = e.iter().sum();
                -e.iter().map(|e| e / total * (e / total).ln()).sum::<f64>()
            })
            .collect();
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| entropy[*a].total_cmp(&entropy[*b]));
        let mut sets = vec![None; n];
        for &i in &order[..anchors] {
            let mut others: Vec<usize> = (0..n).filter(|j| *j != i).collect();
            others.sort_by(|a, b| product(i, *b).total_cmp(&product(i, *a)));
            let mut set: Vec<u32> = others[..k].iter().chain([&i]).map(|j| *j as u32).collect();
            set.sort_unstable();
            sets[i] = Some(set);
        }
        sets
    }

    #[test]
    fn anchors_and_neighbours_match_the_definition() {
        let bank = bank();
        for (anchors, k) in [(10, 1), (20, 5), (40, 10)] {
            let found = neighbourhoods(&held(&bank, &Alone), 40, anchors, k, 0.1, &Alone);
            for (i, expected) in slow(&bank, anchors, k, 0.1).iter().enumerate() {
                assert_eq!(found.of(i), expected.as_deref(), "sample {i}");
            }
            assert_eq!(found.covered(), anchors);
        }
    }

    #[test]
    fn more_neighbours_than_samples_are_all_of_them_and_one_sample_has_none() {
        let two = Matrix::new(2, vec![1.0, 0.0, 0.0, 1.0]);
        assert_eq!(neighbourhoods(&held(&two, &Alone), 2, 2, 9, 0.1, &Alone).of(0), Some(&[0, 1][..]));
        let one = Matrix::new(2, vec![1.0, 0.0]);
        assert_eq!(neighbourhoods(&held(&one, &Alone), 1, 1, 1, 0.1, &Alone).of(0), None);
    }

    /// Also where there are fewer samples than processes.
    #[test]
    fn a_divided_bank_has_the_same_neighbourhoods() {
        let bank = bank();
        for (samples, count, k) in [(40, 2, 5), (40, 3, 1), (2, 3, 9), (1, 2, 1)] {
            let rows = bank.select_rows(&(0..samples).collect::<Vec<_>>());
            let alone = neighbourhoods(&held(&rows, &Alone), samples, samples.div_ceil(2), k, 0.1, &Alone);
            let found = together(count, |peers| {
                let entropy = entropies(&rows, &held(&rows, &*peers).rows, 0.1, &*peers);
                let slow = entropies(&rows, &rows, 0.1, &Alone);
                assert!(entropy.iter().zip(&slow).all(|(a, b)| (a - b).abs() < 1e-5), "{entropy:?} {slow:?}");
                neighbourhoods(&held(&rows, &*peers), samples, samples.div_ceil(2), k, 0.1, &*peers)
            });
            assert!(found.iter().all(|found| *found == alone), "{samples} samples, {count} processes");
        }
    }
}
