//! The losses, as pure functions of embeddings and bank, each with its gradient by the embeddings.
//!
//! P(j|v) = exp(m_j . v / tau) / sum_k exp(m_k . v / tau) over all N rows of the bank (Eq. 3). Gradients flow into the
//! embeddings v alone: the bank is a constant, and so is the key side of the instance-spreading loss.

use crate::config::LossForm;
use crate::method::bank::{Bank, BankSample};
use kernels::{BankSoftmax, Precision, bank_softmax};
use pcp_core::eigen::solve;
use pcp_core::error::Result;
use pcp_core::matmul::matmul;
use pcp_core::matrix::{Matrix, MatrixRef, dot};
use pcp_core::neighbours::sort_key;
use pcp_core::peers::{Alone, Peers};
use pcp_core::purify::Positives;
use rayon::prelude::*;

/// Upper bound of P in log(1 - P).
const CLAMP: f64 = 1.0 - 1e-6;

/// The bank loss of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BankLoss {
    /// Loss of every row of the batch (Eq. 4 or 5).
    pub each: Vec<f64>,
    /// Gradient of the mean loss (Eq. 6) by the embeddings, `[b, d]`.
    pub gradient: Vec<f32>,
}

/// How losses over a bank are computed: the precision of products with the whole bank, the processes that divide the bank's rows, and the rows
/// that stand for all others.
#[derive(Clone, Copy, Debug)]
pub struct BankWork<'a> {
    /// The precision.
    pub precision: Precision,
    /// The processes. All of them have the whole batch, each has its rows of the bank, and all get the whole loss.
    pub peers: &'a dyn Peers,
    /// Which rows [`bank_loss`] compares with besides the positives; `None` for all.
    pub sample: Option<BankSample>,
}

/// The work of a process alone.
impl From<Precision> for BankWork<'_> {
    fn from(precision: Precision) -> Self {
        BankWork { precision, peers: &Alone, sample: None }
    }
}

/// The losses of the rows of `v`, of which every process computes a share: `of` gets rows and the number of the first, and gives the loss and the
/// gradient of each.
fn by_rows(peers: &dyn Peers, v: &Matrix, of: impl Fn(&[f32], usize) -> Vec<(f64, Vec<f32>)>) -> BankLoss {
    let own = peers.own(v.rows);
    let found = of(&v.values[own.start * v.dim..own.end * v.dim], own.start);
    let (each, gradient): (Vec<f64>, Vec<Vec<f32>>) = found.into_iter().unzip();
    let of_rows = peers.shares(v.rows);
    let of_values: Vec<usize> = of_rows.iter().map(|rows| rows * v.dim).collect();
    BankLoss {
        each: peers.all_gather_values(&each, &of_rows),
        gradient: peers.all_gather_values(&gradient.concat(), &of_values),
    }
}

/// Two sums of every row of a batch over the rows of the bank, from what they are over the rows of every process, in the processes' order.
fn over_bank(peers: &dyn Peers, here: &[[f64; 2]], sums: [fn(&[f64]) -> f64; 2]) -> Vec<[f64; 2]> {
    let all = peers.all_gather_values(here, &vec![here.len(); peers.count()]);
    let of = |row: usize, which: usize| -> Vec<f64> {
        all.iter().skip(row).step_by(here.len()).map(|parts| parts[which]).collect()
    };
    (0..here.len()).map(|row| [0, 1].map(|which| sums[which](&of(row, which)))).collect()
}

/// The softmax of the rows of `v` over some rows of the bank; without any, it has no weight.
fn softmax_over(v: &Matrix, rows: &Matrix, tau: f32, precision: Precision) -> BankSoftmax {
    if rows.rows == 0 {
        return BankSoftmax { log_sum_exp: vec![f64::NEG_INFINITY; v.rows], expectation: vec![0.0; v.values.len()] };
    }
    bank_softmax(&v.values, &rows.values, v.dim, tau, precision)
}

/// The softmax of the rows of `v` over this process's rows of the bank. Where a sample stands for most of them, its denominator is an unbiased
/// estimate: `sum_{k known} e^{m_k.v/tau} + w sum_{k drawn} e^{m_k.v/tau}`. `known` are the samples of the batch and all their positives, and each of
/// the drawn rows stands for `w` of the others.
fn softmax_here(v: &Matrix, bank: &Bank, known: &[u32], tau: f32, work: BankWork) -> BankSoftmax {
    let known: Vec<usize> = (known.iter())
        .filter_map(|sample| (*sample as usize).checked_sub(bank.first).filter(|row| *row < bank.rows.rows))
        .collect();
    let drawn = work.sample.and_then(|sample| sample.draw(bank.rows.rows, &known, work.peers));
    let Some((drawn, stands_for)) = drawn else { return softmax_over(v, &bank.rows, tau, work.precision) };
    let over = |rows: &[usize]| softmax_over(v, &bank.rows.select_rows(rows), tau, work.precision);
    let (mut sum, drawn) = (over(&known), over(&drawn));
    for (r, all) in sum.log_sum_exp.iter_mut().enumerate() {
        let parts = [*all, drawn.log_sum_exp[r] + stands_for.ln()];
        *all = log_sum_exp(&parts);
        let [of_known, of_drawn] = parts.map(|part| (part - *all).exp() as f32);
        let row = r * v.dim..(r + 1) * v.dim;
        for (e, d) in sum.expectation[row.clone()].iter_mut().zip(&drawn.expectation[row]) {
            *e = of_known * *e + of_drawn * d;
        }
    }
    sum
}

/// Eq. 4 for samples without positives, Eq. 5 in its `form` for the others; `samples[r]` is the sample of row `r` of `v`.
/// Products with the whole bank are of the precision of the `work`, those with the positives always f32. With a sample of the bank's rows, the
/// loss is that of an unbiased estimate of Eq. 3's denominator, and the gradient is this loss's.
pub fn bank_loss<'a>(
    v: &Matrix,
    samples: &[usize],
    bank: &Bank,
    positives: &Positives,
    tau: f32,
    form: LossForm,
    work: impl Into<BankWork<'a>>,
) -> BankLoss {
    let work = work.into();
    let peers = work.peers;
    let scale = 1.0 / (f64::from(tau) * v.rows as f64);
    let own: Vec<u32> = samples.iter().map(|sample| *sample as u32).collect();
    let set = |r: usize| positives.of(samples[r]).unwrap_or(&own[r..r + 1]);
    // The samples of the batch and all their positives, which a sample of the bank's rows leaves out.
    let mut known: Vec<u32> = Vec::new();
    if work.sample.is_some() {
        known.extend_from_slice(&own);
        (0..v.rows).for_each(|r| known.extend_from_slice(set(r)));
        known.sort_unstable();
        known.dedup();
    }
    // Eq. 3: its logarithmic denominator and E[m] = sum_k P(k|v) m_k, in one pass over the bank that stores no B x N values.
    let softmax = softmax_here(v, bank, &known, tau, work);
    let rows = |r: usize| set(r).iter().filter_map(|j| bank.row(*j as usize));
    let logit = |r: usize, m: &[f32]| f64::from(dot(m, v.row(r))) / f64::from(tau);
    let logits: Vec<Vec<f64>> = (0..v.rows).into_par_iter().map(|r| rows(r).map(|m| logit(r, m)).collect()).collect();
    let of_positives: fn(&[f64]) -> f64 = match form {
        LossForm::Logsum => log_sum_exp,
        LossForm::Sumlog | LossForm::Meanlog => |logits| logits.iter().sum(),
    };
    let both = softmax.log_sum_exp.iter().zip(&logits);
    let here: Vec<[f64; 2]> = both.map(|(all, logits)| [*all, of_positives(logits)]).collect();
    let sums = over_bank(peers, &here, [log_sum_exp, of_positives]);
    // The loss is `pull * lse(all) - value`, and its gradient `(pull * E[m] - sum_j weight_j m_j) / tau`.
    let one = |r: usize| {
        let ([all, of_positives], n) = (sums[r], set(r).len() as f64);
        let (pull, value, weight) = match form {
            LossForm::Logsum => (1.0, of_positives, None),
            LossForm::Sumlog => (n, of_positives, Some(1.0)),
            LossForm::Meanlog => (1.0, of_positives / n, Some(1.0 / n)),
        };
        let share = (here[r][0] - all).exp();
        let expectation = &softmax.expectation[r * v.dim..(r + 1) * v.dim];
        let mut gradient: Vec<f64> = expectation.iter().map(|e| pull * share * f64::from(*e)).collect();
        for (m, logit) in rows(r).zip(&logits[r]) {
            let weight = weight.unwrap_or_else(|| (logit - value).exp());
            for (g, m) in gradient.iter_mut().zip(m) {
                *g -= weight * f64::from(*m);
            }
        }
        (pull * all - value, gradient.into_iter().map(|g| (g * scale) as f32).collect())
    };
    let (each, gradient): (Vec<f64>, Vec<Vec<f32>>) = (0..v.rows).into_par_iter().map(one).unzip();
    summed(peers, each, gradient)
}

/// A loss whose gradient is the sum of those over every process's rows of the bank.
fn summed(peers: &dyn Peers, each: Vec<f64>, gradient: Vec<Vec<f32>>) -> BankLoss {
    let mut gradient = gradient.concat();
    peers.all_reduce(&mut gradient);
    BankLoss { each, gradient }
}

/// MoCo's loss: `-log e^{q.k+/tau} / (e^{q.k+/tau} + sum_j e^{q.n_j/tau})` with the keys n_j of the queue.
pub fn key_loss<'a>(q: &Matrix, keys: &Matrix, queue: &Matrix, tau: f32, work: impl Into<BankWork<'a>>) -> BankLoss {
    let BankWork { precision, peers, .. } = work.into();
    let scale = 1.0 / (f64::from(tau) * q.rows as f64);
    by_rows(peers, q, |values, first| {
        let softmax = bank_softmax(values, &queue.values, q.dim, tau, precision);
        let one = |(r, q): (usize, &[f32])| {
            let key = keys.row(first + r);
            let positive = f64::from(dot(q, key)) / f64::from(tau);
            let all = log_sum_exp(&[positive, softmax.log_sum_exp[r]]);
            // P of the positive key, and of the queue as a whole.
            let (own, others) = ((positive - all).exp(), (softmax.log_sum_exp[r] - all).exp());
            let expectation = &softmax.expectation[r * q.len()..(r + 1) * q.len()];
            let by = |(e, k): (&f32, &f32)| (others * f64::from(*e) - (1.0 - own) * f64::from(*k)) * scale;
            (all - positive, expectation.iter().zip(key).map(|pair| by(pair) as f32).collect())
        };
        values.par_chunks_exact(q.dim).enumerate().map(one).collect()
    })
}

/// Rows whose similarities to the whole bank are in memory at once.
const LOCAL_ROWS: usize = 8;

/// LA's loss: `-log sum_{j in C & B} e^{m_j.v/tau} / sum_{j in B} e^{m_j.v/tau}`. B is the `background` bank rows nearest to v,
/// always with the sample's own row, so that the numerator is never empty. C are the samples that share the sample's
/// cluster in any of the `clusterings`.
pub fn local_loss(
    v: &Matrix,
    samples: &[usize],
    bank: &Bank,
    clusterings: &[Vec<u32>],
    background: usize,
    tau: f32,
    peers: &dyn Peers,
) -> BankLoss {
    let scale = 1.0 / (f64::from(tau) * v.rows as f64);
    let mut near = nearest_here(v, samples, bank, background);
    let farthest = farthest_near(&near, background, peers);
    for (near, farthest) in near.iter_mut().zip(farthest) {
        near.retain(|near| near.key <= farthest);
        near.sort_unstable_by_key(Near::sample); // a fixed order of summation
    }
    let logit = |near: &Near| f64::from(near.similarity) / f64::from(tau);
    let close =
        |near: &Near, own: usize| near.sample() == own || clusterings.iter().any(|c| c[near.sample()] == c[own]);
    let here = |r: usize| {
        let logits: Vec<f64> = near[r].iter().map(logit).collect();
        let within: Vec<f64> = near[r].iter().filter(|near| close(near, samples[r])).map(logit).collect();
        [log_sum_exp(&logits), log_sum_exp(&within)]
    };
    let here: Vec<[f64; 2]> = (0..v.rows).into_par_iter().map(here).collect();
    let sums = over_bank(peers, &here, [log_sum_exp; 2]);
    let one = |r: usize| {
        let [all, positive] = sums[r];
        let mut gradient = vec![0.0f64; v.dim];
        for near in &near[r] {
            let l = logit(near);
            let weight = (l - all).exp() - if close(near, samples[r]) { (l - positive).exp() } else { 0.0 };
            let row = bank.rows.row(near.sample() - bank.first);
            gradient.iter_mut().zip(row).for_each(|(g, m)| *g += weight * f64::from(*m));
        }
        (all - positive, gradient.into_iter().map(|g| (g * scale) as f32).collect())
    };
    let (each, gradient): (Vec<f64>, Vec<Vec<f32>>) = (0..v.rows).into_par_iter().map(one).unzip();
    summed(peers, each, gradient)
}

/// A bank row among those nearest to an embedding.
struct Near {
    /// Lower for nearer ones, and of equal ones for lower samples, which are its last 32 bits; lowest of the embedding's own sample.
    key: u64,
    similarity: f32,
}

impl Near {
    fn new(similarity: f32, sample: usize, own: usize) -> Near {
        let nearness = if sample == own { f32::INFINITY } else { similarity };
        Near { key: !sort_key(nearness, sample as u32), similarity }
    }

    fn sample(&self) -> usize {
        self.key as u32 as usize
    }
}

/// For every row of `v`, the `most` of this process's bank rows that are nearest to it.
fn nearest_here(v: &Matrix, samples: &[usize], bank: &Bank, most: usize) -> Vec<Vec<Near>> {
    let n = bank.rows.rows;
    let block = |(v, samples): (&[f32], &[usize])| -> Vec<Vec<Near>> {
        let mut similarity = vec![0.0f32; samples.len() * n];
        matmul(MatrixRef::new(v, samples.len(), bank.rows.dim), bank.rows.view().t(), &mut similarity, false);
        let one = |(r, own): (usize, &usize)| {
            let row = similarity[r * n..(r + 1) * n].iter().enumerate();
            let mut near: Vec<Near> = row.map(|(at, s)| Near::new(*s, bank.first + at, *own)).collect();
            if most < near.len() {
                near.select_nth_unstable_by_key(most - 1, |near| near.key);
                near.truncate(most);
            }
            near
        };
        samples.iter().enumerate().map(one).collect()
    };
    let blocks = v.values.par_chunks(LOCAL_ROWS * v.dim).zip(samples.par_chunks(LOCAL_ROWS));
    blocks.map(block).collect::<Vec<_>>().into_iter().flatten().collect()
}

/// For every row of the batch, the greatest key among the `most` nearest of all processes, each of which has its own.
fn farthest_near(near: &[Vec<Near>], most: usize, peers: &dyn Peers) -> Vec<u64> {
    // Every process finds those of its share of the batch.
    let rows = peers.shares(near.len());
    let each = peers.all_gather_values(&[near.first().map_or(0, Vec::len) as u64], &vec![1; peers.count()]);
    let (own, each) = (peers.own(near.len()).len(), each.into_iter().map(|n| n as usize).collect::<Vec<_>>());
    let keys: Vec<u64> = near.iter().flatten().map(|near| near.key).collect();
    let sent: Vec<usize> = rows.iter().map(|rows| rows * each[peers.rank()]).collect();
    let all = peers.all_to_all_values(&keys, &sent, &each.iter().map(|each| own * each).collect::<Vec<_>>());
    let farthest = |r: usize| {
        let (mut keys, mut first) = (Vec::with_capacity(each.iter().sum()), 0);
        for each in &each {
            keys.extend_from_slice(&all[first + r * each..first + (r + 1) * each]);
            first += own * each;
        }
        if most < keys.len() { *keys.select_nth_unstable(most - 1).1 } else { u64::MAX }
    };
    peers.all_gather_values(&(0..own).into_par_iter().map(farthest).collect::<Vec<_>>(), &rows)
}

fn log_sum_exp(logits: &[f64]) -> f64 {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + logits.iter().map(|l| (l - max).exp()).sum::<f64>().ln()
}

/// The instance-spreading loss (IS) of 2B rows, view 1 then view 2, and its gradient.
///
/// `L = -1/2B sum_i [log P_i,partner + sum_{j != i,partner} log(1 - P_ij)]`, with
/// `P_ij = exp(x_i . sg(x_j) / tau) / sum_{k != i} exp(x_i . sg(x_k) / tau)`: the key side has no gradient.
pub fn spreading_loss(v: &Matrix, tau: f32) -> (f64, Vec<f32>) {
    let (n, d) = (v.rows, v.dim);
    assert!(n.is_multiple_of(2), "two views of every sample");
    let all = v.view();
    let mut similarity = vec![0.0f32; n * n];
    matmul(all, all.t(), &mut similarity, false);
    // Row by row, similarities become coefficients c_ij of x_j in the gradient by x_i.
    let losses: Vec<f64> = similarity
        .par_chunks_mut(n.max(1))
        .enumerate()
        .map(|(i, row)| spreading_row(row, i, (i + n / 2) % n, tau))
        .collect();
    let scale = -1.0 / (n as f32 * tau);
    similarity.iter_mut().for_each(|c| *c *= scale);
    let mut gradient = vec![0.0f32; n * d];
    matmul(MatrixRef::new(&similarity, n, n), all, &mut gradient, false);
    (-losses.iter().sum::<f64>() / n.max(1) as f64, gradient)
}

/// SimCLR's loss of 2B rows, view 1 then view 2, and its gradient: `-1/2B sum_i log P_i,partner`, with
/// `P_ij = exp(x_i . x_j / tau) / sum_{k != i} exp(x_i . x_k / tau)` and gradients on both sides.
pub fn contrast_loss(v: &Matrix, tau: f32) -> (f64, Vec<f32>) {
    let (n, d) = (v.rows, v.dim);
    assert!(n.is_multiple_of(2), "two views of every sample");
    let all = v.view();
    let mut similarity = vec![0.0f32; n * n];
    matmul(all, all.t(), &mut similarity, false);
    let scale = 1.0 / (f64::from(tau) * n.max(1) as f64);
    let losses: Vec<f64> = similarity
        .par_chunks_mut(n.max(1))
        .enumerate()
        .map(|(i, row)| {
            let partner = (i + n / 2) % n;
            row[i] = f32::NEG_INFINITY;
            let logits: Vec<f64> = row.iter().map(|s| f64::from(*s) / f64::from(tau)).collect();
            let all = log_sum_exp(&logits);
            for (j, (s, l)) in row.iter_mut().zip(&logits).enumerate() {
                *s = (((l - all).exp() - f64::from(u8::from(j == partner))) * scale) as f32;
            }
            all - logits[partner]
        })
        .collect();
    // x_i stands on both sides of its similarities.
    let coefficients = MatrixRef::new(&similarity, n, n);
    let mut gradient = vec![0.0f32; n * d];
    matmul(coefficients, all, &mut gradient, false);
    matmul(coefficients.t(), all, &mut gradient, true);
    (losses.iter().sum::<f64>() / n.max(1) as f64, gradient)
}

/// EMP-SSL's loss of `views` x B rows, view after view, over its weight of the agreement, and its gradient:
/// `-1/B sum_i |z_i| - spread / views sum_a R(X_a)`. `z_i` is the mean of the views of image i: its length is the mean cosine of
/// the views with it. `R(X) = 1/2 log det(I + d / (B precision) X X^T)` is the coding rate of one view of the batch.
pub fn coding_rate_loss(v: &Matrix, views: usize, spread: f64, precision: f64) -> Result<(f64, Vec<f32>)> {
    let (images, d) = (v.rows / views, v.dim);
    assert_eq!(images * views, v.rows, "as many views of every image");
    let alpha = d as f64 / (images as f64 * precision);
    let of_views: Vec<(f64, Vec<f64>)> = (0..views)
        .map(|a| {
            let x = MatrixRef::new(&v.values[a * images * d..][..images * d], images, d);
            let mut products = vec![0.0f32; images * images];
            matmul(x, x.t(), &mut products, false);
            let one = |i: usize| f64::from(u8::from(i / images == i % images));
            let gram = products.iter().enumerate().map(|(i, p)| one(i) + alpha * f64::from(*p)).collect();
            // dR/dX = alpha (I + alpha X X^T)^-1 X, column by column.
            let column = |c: usize| (0..images).map(move |i| f64::from(v.values[(a * images + i) * d + c]));
            let mut columns: Vec<f64> = (0..d).flat_map(column).collect();
            let log_det = solve(gram, &mut columns, images)?;
            Ok((0.5 * log_det, columns))
        })
        .collect::<Result<_>>()?;
    let rate = of_views.iter().map(|(rate, _)| rate).sum::<f64>() / views as f64;
    let mut gradient = vec![0.0f32; v.values.len()];
    let mut agreement = 0.0;
    for i in 0..images {
        let at = |a: usize| (a * images + i) * d;
        let mean: Vec<f64> =
            (0..d).map(|c| (0..views).map(|a| f64::from(v.values[at(a) + c])).sum::<f64>() / views as f64).collect();
        let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
        agreement += length / images as f64;
        for (a, (_, columns)) in of_views.iter().enumerate() {
            for c in 0..d {
                let towards = mean[c] / (length.max(1e-12) * images as f64);
                let apart = spread * alpha * columns[c * images + i];
                gradient[at(a) + c] = (-(towards + apart) / views as f64) as f32;
            }
        }
    }
    Ok((-agreement - spread * rate, gradient))
}

/// Turns the similarities of row `i` into `d(terms of i) / d s_ij` and returns the terms' sum.
fn spreading_row(row: &mut [f32], i: usize, partner: usize, tau: f32) -> f64 {
    let tau = f64::from(tau);
    let others = |j: &usize| *j != i;
    let max = (0..row.len()).filter(others).map(|j| f64::from(row[j])).fold(f64::NEG_INFINITY, f64::max);
    let p: Vec<f64> =
        (0..row.len()).map(|j| if j == i { 0.0 } else { ((f64::from(row[j]) - max) / tau).exp() }).collect();
    let total: f64 = p.iter().sum();
    let log_total = total.ln();
    let mut terms = (f64::from(row[partner]) - max) / tau - log_total;
    // r_j = P_ij / (1 - P_ij) of the negatives; a clamped P has no gradient.
    let mut pushes = 0.0;
    let push = |q: f64| if q < CLAMP { q / (1.0 - q) } else { 0.0 };
    for j in (0..row.len()).filter(others).filter(|j| *j != partner) {
        let q = p[j] / total;
        terms += (1.0 - q.min(CLAMP)).ln();
        pushes += push(q);
    }
    for j in 0..row.len() {
        let q = p[j] / total;
        let own = if j == i {
            0.0
        } else if j == partner {
            1.0 - q + q * pushes
        } else {
            -q - push(q) + q * pushes
        };
        row[j] = own as f32;
    }
    terms
}

#[cfg(test)]
mod tests;
