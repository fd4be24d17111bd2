//! BYOL (Grill et al. 2020): from one view of an image, predict what a moving average of the network makes of the other. Nothing repels.

use super::{At, BatchLoss, Change, EpochTargets, Memory, Method, Plan, StepResult, Task, other_memory};
use crate::model::{DropoutKey, FeatureKind, Network, Step, Weights};
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;
use pcp_core::rng::Purpose;

/// Both views are predicted, each from the other one. The last partial batch is skipped, as in all systems that compare views.
pub struct Byol;

impl Method for Byol {
    fn describe(&self, plan: &Plan) -> String {
        format!(
            "two views of every image, each predicts the other; momentum of the average {}",
            plan.config.byol.momentum
        )
    }

    fn memory(&self, _plan: &Plan, _network: &Network, weights: &Weights) -> Memory {
        Memory::Average(weights.clone())
    }

    fn has_key_encoder(&self) -> bool {
        true
    }

    fn whole_batches(&self) -> bool {
        true
    }

    fn views(&self, _plan: &Plan, _at: At) -> usize {
        2
    }

    fn step(&self, plan: &Plan, task: Task, memory: &Memory, _targets: &EpochTargets) -> Result<Step<StepResult>> {
        let Memory::Average(average) = memory else { return Err(other_memory("an average of the network")) };
        let Task { network, weights, batch, share, rows, dropout, at, .. } = task;
        let mut next = average.clone();
        next.ema_update(weights, plan.config.byol.momentum);
        let masks = DropoutKey { key: plan.key(Purpose::KeyDropout, at), ids: dropout.ids.clone() };
        let (targets, moments) = network.encode(&next, batch.clone(), share.clone(), masks);
        next.update_running_stats(&moments);
        Ok(network.step(weights, batch, share, dropout, FeatureKind::Prediction, |p| {
            let (mean, gradient) = prediction_loss(p, &targets);
            (StepResult { loss: BatchLoss::within_batch(mean, rows.len()), change: Change::Average(next) }, gradient)
        }))
    }
}

/// `1/2B sum_i |p_i - z_partner|^2 = 1/2B sum_i (2 - 2 p_i . z_partner)` of unit rows, view 1 then view 2, and its gradient by p.
fn prediction_loss(p: &Matrix, z: &Matrix) -> (f64, Vec<f32>) {
    let n = p.rows;
    let partner = |i: usize| z.row((i + n / 2) % n);
    let product = |i: usize| p.row(i).iter().zip(partner(i)).map(|(p, z)| f64::from(*p) * f64::from(*z)).sum::<f64>();
    let mean = (0..n).map(|i| 2.0 - 2.0 * product(i)).sum::<f64>() / n.max(1) as f64;
    let gradient = (0..n).flat_map(|i| partner(i).iter().map(move |z| -2.0 * z / n as f32)).collect();
    (mean, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: rows at right angles have the distance 2, equal ones 0.
    #[test]
    fn the_loss_is_the_mean_squared_distance_to_the_other_view() {
        let p = Matrix::new(2, vec![1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
        let z = Matrix::new(2, vec![1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.6, 0.8]);
        // Rows 0 and 1 predict rows 2 and 3 of z, rows 2 and 3 its rows 0 and 1: distances 0, 2 - 1.6, 0, 2.
        let (mean, gradient) = prediction_loss(&p, &z);
        assert!((mean - 0.6).abs() < 1e-6, "{mean}");
        assert_eq!(gradient, [-0.5, 0.0, -0.3, -0.4, -0.5, 0.0, -0.5, 0.0]);
        let (h, mut moved) = (1e-3, p.clone());
        for i in 0..p.values.len() {
            moved.values[i] = p.values[i] + h;
            let slope = (prediction_loss(&moved, &z).0 - mean) / f64::from(h);
            assert!((slope - f64::from(gradient[i])).abs() < 1e-3, "{i}: {slope}");
            moved.values[i] = p.values[i];
        }
    }
}
