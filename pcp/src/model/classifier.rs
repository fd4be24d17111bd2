//! A linear classifier over features, with its cross-entropy, its gradients and its own SGD.

use pcp_core::matmul::matmul;
use pcp_core::matrix::{Matrix, MatrixRef};
use pcp_core::rng::{Key, Purpose};
use rayon::prelude::*;

/// Rows of a work unit.
const BLOCK: usize = 32;

/// `x W^T + b`, one output per class.
#[derive(Clone, Debug, PartialEq)]
pub struct Classifier {
    /// W, one row per class.
    pub weight: Matrix,
    /// b.
    pub bias: Vec<f32>,
    /// Momentum of both: W's, then b's.
    pub velocity: Vec<f32>,
}

/// The cross-entropy of a batch and its gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Loss of every row.
    pub each: Vec<f64>,
    /// Gradient of the mean loss by the features.
    pub by_features: Vec<f32>,
    /// Gradient of the mean loss by W, then by b.
    pub by_weights: Vec<f32>,
}

/// Settings of SGD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f32,
    /// Momentum.
    pub momentum: f32,
    /// Weight decay.
    pub decay: f32,
}

impl Classifier {
    /// W drawn from N(0, 0.01), b = 0; a function of (seed, round, epoch) alone.
    pub fn new(classes: usize, dim: usize, seed: u64, (round, epoch): (u32, u32)) -> Self {
        let key = Key { purpose: Purpose::Classifier, seed, round, epoch };
        let mut values = Vec::with_capacity(classes * dim);
        for class in 0..classes {
            let mut stream = key.stream(class as u64, 0);
            values.extend((0..dim).map(|_| 0.01 * stream.normal()));
        }
        let velocity = vec![0.0; classes * dim + classes];
        Classifier { weight: Matrix { rows: classes, dim, values }, bias: vec![0.0; classes], velocity }
    }

    /// How many classes.
    pub fn classes(&self) -> usize {
        self.bias.len()
    }

    /// The outputs for `x`, `[b, classes]`.
    fn logits(&self, x: &Matrix) -> Vec<f32> {
        let mut out = vec![0.0; x.rows * self.classes()];
        let w = self.weight.view();
        product(&x.values, x.dim, w.t(), self.classes(), &mut out);
        for row in out.chunks_mut(self.classes().max(1)) {
            row.iter_mut().zip(&self.bias).for_each(|(o, b)| *o += b);
        }
        out
    }

    /// The class of every row, the first of those with the greatest output.
    pub fn predict(&self, x: &Matrix) -> Vec<u32> {
        let best = |row: &[f32]| (1..row.len()).fold(0, |best, c| if row[c] > row[best] { c } else { best }) as u32;
        self.logits(x).chunks(self.classes().max(1)).map(best).collect()
    }

    /// `-log softmax(x W^T + b)_y`, as a mean over the rows, with its gradients.
    pub fn cross_entropy(&self, x: &Matrix, labels: &[u32]) -> CrossEntropy {
        let (n, k, d) = (x.rows, self.classes(), x.dim);
        let mut p = self.logits(x);
        // Row by row, outputs become (softmax - onehot) / n, the gradient by them.
        let each: Vec<f64> = (p.par_chunks_mut(k.max(1)).zip(labels))
            .map(|(row, &label)| {
                let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let own = f64::from(row[label as usize] - max);
                let total: f64 = row.iter().map(|o| f64::from(o - max).exp()).sum();
                for o in row.iter_mut() {
                    *o = (f64::from(*o - max).exp() / total / n as f64) as f32;
                }
                row[label as usize] -= 1.0 / n as f32;
                total.ln() - own
            })
            .collect();
        let mut by_features = vec![0.0; n * d];
        product(&p, k, MatrixRef::new(&self.weight.values, k, d), d, &mut by_features);
        let mut by_weights = vec![0.0; k * d + k];
        let (by_w, by_b) = by_weights.split_at_mut(k * d);
        matmul(MatrixRef::new(&p, n, k).t(), MatrixRef::new(&x.values, n, d), by_w, false);
        for row in p.chunks(k.max(1)) {
            by_b.iter_mut().zip(row).for_each(|(b, g)| *b += g);
        }
        CrossEntropy { each, by_features, by_weights }
    }

    /// One step down the gradient.
    pub fn step(&mut self, by_weights: &[f32], sgd: Sgd) {
        let weights = self.weight.values.iter_mut().chain(&mut self.bias);
        for ((w, v), g) in weights.zip(&mut self.velocity).zip(by_weights) {
            *v = sgd.momentum * *v + g + sgd.decay * *w;
            *w -= sgd.lr * *v;
        }
    }
}

/// `out = a b` in blocks of rows, with `a` of `inner` columns and `out` of `cols`.
fn product(a: &[f32], inner: usize, b: MatrixRef, cols: usize, out: &mut [f32]) {
    if inner == 0 || cols == 0 {
        return;
    }
    out.par_chunks_mut(BLOCK * cols).zip(a.par_chunks(BLOCK * inner)).for_each(|(out, a)| {
        matmul(MatrixRef::new(a, a.len() / inner, inner), b, out, false);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Classifier, Matrix, Vec<u32>) {
        let mut classifier = Classifier::new(3, 4, 1, (0, 0));
        classifier.weight.values.iter_mut().enumerate().for_each(|(i, w)| *w = (i as f32 * 0.7).sin());
        classifier.bias = vec![0.1, -0.2, 0.3];
        let x = Matrix::new(4, (0..8).map(|i| (i as f32 * 1.3).cos()).collect());
        (classifier, x, vec![2, 0])
    }

    fn mean(c: &Classifier, x: &Matrix, labels: &[u32]) -> f64 {
        c.cross_entropy(x, labels).each.iter().sum::<f64>() / x.rows as f64
    }

    #[test]
    fn equal_outputs_cost_the_logarithm_of_the_classes() {
        let mut c = Classifier::new(5, 2, 0, (0, 0));
        c.weight.values.fill(0.0);
        let x = Matrix::new(2, vec![3.0, -1.0]);
        assert!((mean(&c, &x, &[4]) - 5f64.ln()).abs() < 1e-9);
        assert_eq!(c.predict(&x), [0]);
    }

    #[test]
    fn gradients_match_finite_differences() {
        let (c, x, labels) = example();
        let found = c.cross_entropy(&x, &labels);
        let h = 1e-2f32;
        let slope = |up: f64, down: f64| (up - down) / (2.0 * f64::from(h));
        for i in 0..8 {
            let moved = |by: f32| {
                let mut x = x.clone();
                x.values[i] += by;
                mean(&c, &x, &labels)
            };
            assert!((slope(moved(h), moved(-h)) - f64::from(found.by_features[i])).abs() < 1e-4);
        }
        for i in 0..15 {
            let moved = |by: f32| {
                let mut c = c.clone();
                if i < 12 {
                    c.weight.values[i] += by
                } else {
                    c.bias[i - 12] += by
                }
                mean(&c, &x, &labels)
            };
            assert!((slope(moved(h), moved(-h)) - f64::from(found.by_weights[i])).abs() < 1e-4, "{i}");
        }
    }

    #[test]
    fn it_learns_separable_classes() {
        let x = Matrix::new(2, vec![1.0, 0.0, 0.0, 1.0, -1.0, -1.0]);
        let labels = [0, 1, 2];
        let mut c = Classifier::new(3, 2, 7, (0, 0));
        for _ in 0..200 {
            let gradient = c.cross_entropy(&x, &labels).by_weights;
            c.step(&gradient, Sgd { lr: 0.5, momentum: 0.9, decay: 0.0 });
        }
        assert_eq!(c.predict(&x), labels);
        assert!(mean(&c, &x, &labels) < 0.05);
    }

    /// Recipe: v1 = g + decay w, w1 = w - lr v1; v2 = momentum v1 + g + decay w1.
    #[test]
    fn a_step_is_sgd_with_momentum() {
        let mut c = Classifier::new(1, 1, 0, (0, 0));
        c.weight.values[0] = 1.0;
        let sgd = Sgd { lr: 0.1, momentum: 0.5, decay: 0.2 };
        c.step(&[1.0, 0.0], sgd);
        assert!((c.weight.values[0] - 0.88).abs() < 1e-6);
        c.step(&[1.0, 0.0], sgd);
        assert!((c.weight.values[0] - (0.88 - 0.1 * (0.6 + 1.0 + 0.176))).abs() < 1e-6);
        assert_eq!(c.bias, [0.0]);
    }
}
