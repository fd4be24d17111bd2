//! The losses of both stages as pure functions: numbers in, value and gradient out.

/// Sigma of the proposals' smooth-L1 loss.
pub const SIGMA_PROPOSALS: f32 = 3.0;
/// Sigma of the heads' smooth-L1 loss.
pub const SIGMA_HEADS: f32 = 1.0;

/// Smooth-L1 of `x`: `0.5 (sigma x)^2` within `1 / sigma^2`, `|x| - 0.5 / sigma^2` outside; with its derivative.
pub fn smooth_l1(x: f32, sigma: f32) -> (f32, f32) {
    let bend = 1.0 / (sigma * sigma);
    if x.abs() < bend { (0.5 * x * x / bend, x / bend) } else { (x.abs() - 0.5 * bend, x.signum()) }
}

/// `-log p` where `p = 1 / (1 + exp(-logit))` is the probability of an object, or `-log (1 - p)` where there is none; with the
/// derivative by the logit.
pub fn objectness(logit: f32, object: bool) -> (f32, f32) {
    let softplus = |x: f32| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let chance = 1.0 / (1.0 + (-logit).exp());
    if object { (softplus(-logit), chance - 1.0) } else { (softplus(logit), chance) }
}

/// Softmax: probabilities from logits.
pub fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let parts: Vec<f32> = logits.iter().map(|l| (l - most).exp()).collect();
    let sum: f32 = parts.iter().sum();
    parts.into_iter().map(|p| p / sum).collect()
}

/// `-log softmax(logits)[class]`, with the derivative by the logits.
pub fn cross_entropy(logits: &[f32], class: usize) -> (f32, Vec<f32>) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let log_sum = logits.iter().map(|l| (l - most).exp()).sum::<f32>().ln() + most;
    let mut gradient = softmax(logits);
    gradient[class] -= 1.0;
    (log_sum - logits[class], gradient)
}

#[cfg(test)]
mod tests {
    use super::super::boxes::tests::near;
    use super::*;

    /// torch 2.15: `smooth_l1_loss(x, 0, beta=1/sigma**2, reduction="none")` and its gradient.
    #[test]
    fn smooth_l1_is_torchs() {
        let x = [-2.0, -0.5, -0.1, 0.0, 0.05, 0.111, 0.2, 1.0, 3.0];
        let both = |sigma| x.map(|x| smooth_l1(x, sigma));
        let three = both(SIGMA_PROPOSALS);
        near(
            &three.map(|v| v.0),
            &[1.944444, 0.444444, 0.045, 0.0, 0.01125, 0.055445, 0.144444, 0.944444, 2.944444],
            1e-6,
        );
        near(&three.map(|v| v.1), &[-1.0, -1.0, -0.9, 0.0, 0.45, 0.999, 1.0, 1.0, 1.0], 1e-6);
        let one = both(SIGMA_HEADS);
        near(&one.map(|v| v.0), &[1.5, 0.125, 0.005, 0.0, 0.00125, 0.00616, 0.02, 0.5, 2.5], 1e-6);
        near(&one.map(|v| v.1), &[-1.0, -0.5, -0.1, 0.0, 0.05, 0.111, 0.2, 1.0, 1.0], 1e-6);
    }

    /// torch 2.15: `binary_cross_entropy_with_logits` of (-3, -.2, 0, 1.5) with (0, 1, 1, 0), and `cross_entropy` of
    /// ((.3, -1, 2), (0, 0, 0)) with (2, 0): means, and gradients of the means.
    #[test]
    fn cross_entropies_are_torchs() {
        let found = [(-3.0, false), (-0.2, true), (0.0, true), (1.5, false)].map(|(x, t)| objectness(x, t));
        near(&[found.iter().map(|f| f.0).sum::<f32>() / 4.0], &[0.810_321_7], 1e-6);
        near(&found.map(|f| f.1 / 4.0), &[0.011856, -0.137459, -0.125, 0.204394], 1e-6);
        let found = [cross_entropy(&[0.3, -1.0, 2.0], 2), cross_entropy(&[0.0; 3], 0)];
        near(&[(found[0].0 + found[1].0) / 2.0], &[0.653_816_5], 1e-6);
        let gradient: Vec<f32> = found.iter().flat_map(|f| &f.1).map(|g| g / 2.0).collect();
        near(&gradient, &[0.074113, 0.020198, -0.094311, -0.333333, 0.166667, 0.166667], 1e-6);
    }

    #[test]
    fn gradients_are_differences_and_large_logits_stay_finite() {
        let close = |f: &dyn Fn(f32) -> (f32, f32), x: f32| {
            let difference = (f64::from(f(x + 1e-2).0) - f64::from(f(x - 1e-2).0)) / 2e-2;
            assert!((difference - f64::from(f(x).1)).abs() < 2e-3, "at {x}");
        };
        for x in [-1.7, -0.4, 0.03, 0.6, 2.2] {
            close(&|x| smooth_l1(x, 1.0), x);
            close(&|x| objectness(x, true), x);
            close(&|x| objectness(x, false), x);
            close(&|x| (cross_entropy(&[0.5, x, -1.0], 0).0, cross_entropy(&[0.5, x, -1.0], 0).1[1]), x);
        }
        assert_eq!(objectness(200.0, false), (200.0, 1.0));
        assert_eq!(objectness(-200.0, true), (200.0, -1.0));
        assert_eq!(cross_entropy(&[1000.0, 0.0], 1).0, 1000.0);
    }
}
