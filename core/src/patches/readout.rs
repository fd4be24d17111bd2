//! The readout: a linear map from codes to features, learned without labels.
//!
//! Codes are taken to their square root and standardised. Views of the same images (crops, other light) split the covariance T of
//! all codes into what differs between images, B, and what differs between the views of one image, W = T - B. The directions
//! solve `B g = w (T + ridge) g`: they are white, and ordered by the share `w` of their variance that tells images apart. Each is
//! scaled by `w^power`. It is a linear discriminant analysis in which every image is a class of its own.

use super::scatter::Scatter;
use super::{Images, Patches};
use crate::cancel::Cancel;
use crate::eigen::generalised;
use crate::error::{Error, Result};
use crate::matmul::matmul;
use crate::matrix::{Matrix, MatrixRef};
use crate::rng::{Key, Purpose};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Images that are encoded at a time.
const BLOCK: usize = 256;
/// Rows of a unit of parallel work.
const PANEL: usize = 64;
/// Added to the deviation of every code, so that one that hardly ever differs from 0 is not blown up.
const FLAT: f64 = 1e-3;
/// Added to every variance at the least, so that equal images have an answer, too.
const LEAST_RIDGE: f64 = 1e-6;

/// How a readout is learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadoutSettings {
    /// Numbers of a feature.
    pub components: usize,
    /// Share of the mean variance that is added to all variances.
    pub ridge: f64,
    /// Power of the share of variance that tells images apart.
    pub power: f64,
    /// Images to learn from at the most.
    pub images: usize,
}

impl Default for ReadoutSettings {
    fn default() -> Self {
        ReadoutSettings { components: 256, ridge: 0.01, power: 0.5, images: 10_000 }
    }
}

/// `features = unit length of map (sqrt(code) - mean)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Readout {
    /// Mean of the square roots of the codes.
    pub mean: Vec<f32>,
    /// `[components, codes]`.
    pub map: Matrix,
}

impl Readout {
    /// Learns from views of the same images: `views[0]` are the images as they are.
    pub fn learn(
        patches: &Patches,
        views: &[&dyn Images],
        settings: &ReadoutSettings,
        cancel: &Cancel,
    ) -> Result<Readout> {
        let d = patches.features();
        let n = views.first().map_or(0, |images| images.len());
        if n == 0 {
            return Err(Error::data("there are no images to learn a readout from", "give a folder with images"));
        }
        let key = Key { purpose: Purpose::Patches, seed: patches.settings().seed, round: 1, epoch: 0 };
        let mut chosen: Vec<usize> = match n > settings.images {
            true => key.shuffled(&(0..n as u64).collect::<Vec<_>>()).into_iter().take(settings.images).collect(),
            false => (0..n).collect(),
        };
        chosen.sort_unstable();
        let mut total = Scatter::new(d);
        let mut between = Scatter::new(d);
        for rows in chosen.chunks(BLOCK) {
            let mut sum = Matrix { rows: rows.len(), dim: d, values: vec![0.0; rows.len() * d] };
            for images in views {
                let mut codes = patches.encode_rows(*images, rows, cancel)?;
                codes.values.iter_mut().for_each(|x| *x = x.sqrt());
                sum.values.iter_mut().zip(&codes.values).for_each(|(s, x)| *s += x);
                total.add(&codes);
            }
            let share = 1.0 / views.len() as f32;
            sum.values.iter_mut().for_each(|s| *s *= share);
            between.add(&sum);
        }
        let mean = total.mean();
        let (mut t, mut b) = (total.covariance(), between.covariance());
        // Standardised, so that the ridge means the same to every code.
        let scale: Vec<f64> = (0..d).map(|i| 1.0 / (t[i * d + i].max(0.0).sqrt() + FLAT)).collect();
        for matrix in [&mut t, &mut b] {
            matrix.par_chunks_mut(d).enumerate().for_each(|(i, row)| {
                row.iter_mut().zip(&scale).for_each(|(x, s)| *x *= s * scale[i]);
            });
        }
        let ridge = settings.ridge * (0..d).map(|i| t[i * d + i]).sum::<f64>() / d as f64 + LEAST_RIDGE;
        (0..d).for_each(|i| t[i * d + i] += ridge);
        cancel.check()?;
        let found = generalised(b, t, d)?;
        let components = settings.components.min(d);
        let mut map = Vec::with_capacity(components * d);
        for (w, g) in found.values.iter().zip(found.vectors.chunks_exact(d)).take(components) {
            let weight = w.max(0.0).powf(settings.power);
            map.extend(g.iter().zip(&scale).map(|(g, s)| (g * s * weight) as f32));
        }
        Ok(Readout { mean: mean.iter().map(|m| *m as f32).collect(), map: Matrix::new(d, map) })
    }

    /// Features of codes, a row each, unit length.
    pub fn apply(&self, codes: &Matrix) -> Matrix {
        let (d, components) = (codes.dim, self.map.rows);
        let mut values = vec![0.0f32; codes.rows * components];
        values.par_chunks_mut(PANEL * components).zip(codes.values.par_chunks(PANEL * d)).for_each(|(out, codes)| {
            let mut rows = codes.to_vec();
            for row in rows.chunks_exact_mut(d) {
                row.iter_mut().zip(&self.mean).for_each(|(x, m)| *x = x.sqrt() - m);
            }
            matmul(MatrixRef::new(&rows, codes.len() / d, d), self.map.view().t(), out, false);
        });
        Matrix { rows: codes.rows, dim: components, values }.normalised()
    }
}
