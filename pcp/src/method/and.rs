//! AND, anchor neighbourhood discovery (Huang et al. 2019): the images with the least ambiguous neighbourhoods learn with their
//! nearest neighbours, more of them in every round.

use super::{At, FoundTargets, Memory, Method, Past, Plan};
use pcp_core::error::Result;
use pcp_core::matmul::matmul;
use pcp_core::matrix::{Matrix, MatrixRef};
use pcp_core::neighbours::nearest_among;
use pcp_core::peers::Peers;
use pcp_core::purify::{Positives, Purified, Status};
use rayon::prelude::*;
use std::ops::Range;

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
                neighbourhoods(&memory.bank()?.rows, anchors.min(clusters), k, tau, peers)
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

/// For the `anchors` samples of lowest entropy, themselves and their `k` nearest others.
fn neighbourhoods(bank: &Matrix, anchors: usize, k: usize, tau: f32, peers: &dyn Peers) -> Positives {
    let entropy = peers.divided(bank.rows, 1, |rows| entropies(bank, rows, tau));
    let mut order: Vec<usize> = (0..bank.rows).collect();
    order.sort_by(|a, b| entropy[*a].total_cmp(&entropy[*b]).then(a.cmp(b)));
    let found = nearest_among(peers, bank, bank, k, true);
    let mut sets = vec![None; bank.rows];
    for &i in order.iter().take(anchors) {
        let set: Vec<u32> =
            std::iter::once(i as u32).chain(found.index[i * found.k..(i + 1) * found.k].iter().copied()).collect();
        sets[i] = (set.len() > 1).then_some(set);
    }
    Positives::from_own(sets)
}

/// `H_i = -sum_j p_ij log p_ij` of some rows i, with `p_i = softmax(M m_i / tau)` over all rows, including i.
fn entropies(bank: &Matrix, rows: Range<usize>, tau: f32) -> Vec<f64> {
    let m = bank.view();
    let entropy = |row: &[f32]| {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        // With z_j = (s_j - max) / tau: H = log sum e^z - sum z e^z / sum e^z.
        let (mut total, mut weighted) = (0.0f64, 0.0f64);
        for s in row {
            let z = f64::from(s - max) / f64::from(tau);
            total += z.exp();
            weighted += z * z.exp();
        }
        total.ln() - weighted / total
    };
    (bank.values[rows.start * bank.dim..rows.end * bank.dim].par_chunks(BLOCK * bank.dim))
        .flat_map_iter(|block| {
            let rows = block.len() / bank.dim;
            let mut similarity = vec![0.0f32; rows * bank.rows];
            matmul(MatrixRef::new(block, rows, bank.dim), m.t(), &mut similarity, false);
            similarity.chunks(bank.rows).map(entropy).collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_core::peers::Alone;
    use pcp_core::rng::{Key, Purpose};

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
            let found = neighbourhoods(&bank, anchors, k, 0.1, &Alone);
            for (i, expected) in slow(&bank, anchors, k, 0.1).iter().enumerate() {
                assert_eq!(found.of(i), expected.as_deref(), "sample {i}");
            }
            assert_eq!(found.covered(), anchors);
        }
    }

    #[test]
    fn more_neighbours_than_samples_are_all_of_them_and_one_sample_has_none() {
        let two = Matrix::new(2, vec![1.0, 0.0, 0.0, 1.0]);
        assert_eq!(neighbourhoods(&two, 2, 9, 0.1, &Alone).of(0), Some(&[0, 1][..]));
        let one = Matrix::new(2, vec![1.0, 0.0]);
        assert_eq!(neighbourhoods(&one, 1, 1, 0.1, &Alone).of(0), None);
    }
}
