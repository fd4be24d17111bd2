//! The readout: a linear map from features to better ones, learned from views of unlabelled images.
//!
//! Features are standardised. Views of the same images (crops, other light) split the covariance T of all features into what
//! differs between images, B, and what differs between the views of one image, W = T - B. The directions solve
//! `B g = w (T + ridge) g`: they are white, and ordered by the share `w` of their variance that tells images apart. Each is
//! scaled by `w^power`. It is a linear discriminant analysis in which every image is a class of its own. With one view there
//! is no W: the directions are principal components with a variance `v` scaled to `(v / (v + ridge))^power`.
//!
//! Of many columns, the directions of least variance are left out first: the eigenproblem is solved in a subspace.

use crate::eigen::generalised;
use crate::eigen::subspace::{gram, subspace, times};
use crate::error::{Error, Result};
use crate::matmul::matmul;
use crate::matrix::{Matrix, MatrixRef};
use crate::scatter::Scatter;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Rows of a unit of parallel work.
const PANEL: usize = 64;
/// Added to the deviation of every feature, so that one that hardly ever differs is not blown up.
const FLAT: f64 = 1e-3;
/// Added to every variance at the least, so that equal images have an answer, too.
const LEAST_RIDGE: f64 = 1e-6;
/// Directions of the subspace in which the eigenproblem is solved, unless more are wanted.
const SUBSPACE: usize = 512;

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
}

impl Default for ReadoutSettings {
    fn default() -> Self {
        ReadoutSettings { components: 256, ridge: 0.01, power: 0.5 }
    }
}

/// Means and covariances of views, block by block.
pub struct ReadoutLearner {
    total: Scatter,
    between: Scatter,
}

impl ReadoutLearner {
    /// For features of `dim` numbers.
    pub fn new(dim: usize) -> ReadoutLearner {
        ReadoutLearner { total: Scatter::new(dim), between: Scatter::new(dim) }
    }

    /// Adds some images: the features of their views, row by row the same images.
    pub fn add(&mut self, views: &[Matrix]) {
        let Some(first) = views.first().filter(|first| first.rows > 0) else { return };
        let mut mean = first.clone();
        for other in &views[1..] {
            mean.values.iter_mut().zip(&other.values).for_each(|(m, x)| *m += x);
        }
        let share = 1.0 / views.len() as f32;
        mean.values.iter_mut().for_each(|m| *m *= share);
        let all = views.iter().flat_map(|view| &view.values).copied().collect();
        self.total.add(Matrix::new(first.dim, all));
        self.between.add(mean);
    }

    /// The readout of everything added.
    pub fn finish(self, settings: &ReadoutSettings) -> Result<Readout> {
        let d = self.total.dim();
        if self.total.is_empty() {
            return Err(Error::data("there are no images to learn a readout from", "give a folder with images"));
        }
        if settings.components == 0 {
            return Err(Error::usage("readout.components is 0", "give readout.components a number above 0"));
        }
        let mean = self.total.mean();
        let (mut t, mut b) = (self.total.covariance(), self.between.covariance());
        // Standardised, so that the ridge means the same to every feature.
        let scale: Vec<f64> = (0..d).map(|i| 1.0 / (t[i * d + i].max(0.0).sqrt() + FLAT)).collect();
        for matrix in [&mut t, &mut b] {
            matrix.par_chunks_mut(d).enumerate().for_each(|(i, row)| {
                row.iter_mut().zip(&scale).for_each(|(x, s)| *x *= s * scale[i]);
            });
        }
        let ridge = settings.ridge * (0..d).map(|i| t[i * d + i]).sum::<f64>() / d as f64 + LEAST_RIDGE;
        (0..d).for_each(|i| t[i * d + i] += ridge);
        let columns = SUBSPACE.max(settings.components).min(d);
        let basis = subspace(&t, d, columns)?;
        let within = |matrix: &[f64]| {
            let narrow: Vec<f32> = matrix.iter().map(|x| *x as f32).collect();
            gram(&basis, &times(&basis, &narrow, d), d)
        };
        let found = generalised(within(&b), within(&t), columns)?;
        let components = settings.components.min(columns);
        let mut map = vec![0.0f32; components * d];
        map.par_chunks_mut(d).enumerate().for_each(|(c, out)| {
            let weight = found.values[c].max(0.0).powf(settings.power);
            let mut direction = vec![0.0f64; d];
            for (g, q) in found.vectors[c * columns..][..columns].iter().zip(basis.chunks_exact(d)) {
                direction.iter_mut().zip(q).for_each(|(x, q)| *x += g * q);
            }
            out.iter_mut().zip(direction).zip(&scale).for_each(|((o, x), s)| *o = (x * s * weight) as f32);
        });
        Ok(Readout { mean: mean.iter().map(|m| *m as f32).collect(), map: Matrix::new(d, map) })
    }
}

/// `unit length of map (x - mean)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Readout {
    /// Mean of the features.
    pub mean: Vec<f32>,
    /// `[components, features]`.
    pub map: Matrix,
}

impl Readout {
    /// What is added to `map x`: `-map mean`.
    pub fn bias(&self) -> Vec<f32> {
        let product = |row: &[f32]| row.iter().zip(&self.mean).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        self.map.values.chunks_exact(self.map.dim).map(|row| -product(row) as f32).collect()
    }

    /// The directions of all `members` one after the other, around the mean of their means.
    pub fn side_by_side(members: &[Readout]) -> Readout {
        let dim = members.first().map_or(0, |first| first.mean.len());
        let share = 1.0 / members.len() as f32;
        let mut mean = vec![0.0f32; dim];
        members.iter().for_each(|member| mean.iter_mut().zip(&member.mean).for_each(|(m, x)| *m += share * x));
        let values = members.iter().flat_map(|member| &member.map.values).copied().collect();
        Readout { mean, map: Matrix::new(dim, values) }
    }

    /// The readout along `directions` of its own features, one a row.
    pub fn along(&self, directions: &Matrix) -> Readout {
        let mut values = vec![0.0f32; directions.rows * self.map.dim];
        matmul(directions.view(), self.map.view(), &mut values, false);
        Readout { mean: self.mean.clone(), map: Matrix { rows: directions.rows, dim: self.map.dim, values } }
    }

    /// The features `rows`, read out: unit length, a row each.
    pub fn apply(&self, rows: &Matrix) -> Matrix {
        self.project(rows).normalised()
    }

    /// `map (x - mean)` of the features x in `rows`.
    pub fn project(&self, rows: &Matrix) -> Matrix {
        let (d, components) = (rows.dim, self.map.rows);
        let mut values = vec![0.0f32; rows.rows * components];
        values.par_chunks_mut(PANEL * components).zip(rows.values.par_chunks(PANEL * d)).for_each(|(out, rows)| {
            let mut centred = rows.to_vec();
            for row in centred.chunks_exact_mut(d) {
                row.iter_mut().zip(&self.mean).for_each(|(x, m)| *x -= m);
            }
            matmul(MatrixRef::new(&centred, rows.len() / d, d), self.map.view().t(), out, false);
        });
        Matrix { rows: rows.rows, dim: components, values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Key, Purpose, Stream};

    fn random() -> Stream {
        Key { purpose: Purpose::Synthetic, seed: 9, round: 0, epoch: 0 }.stream(0, 0)
    }

    /// Images differ in the first number, views of one image in the second, which varies more.
    fn two_views(images: usize) -> [Matrix; 2] {
        let mut random = random();
        let kinds: Vec<f32> = (0..images).map(|_| random.normal()).collect();
        [0, 1].map(|_| Matrix::new(2, kinds.iter().flat_map(|k| [*k, 5.0 * random.normal() + 0.1]).collect()))
    }

    #[test]
    fn what_tells_images_apart_is_kept() {
        let views = two_views(400);
        let mut learner = ReadoutLearner::new(2);
        learner.add(&views);
        let readout = learner.finish(&ReadoutSettings { components: 2, ..ReadoutSettings::default() }).unwrap();
        let deviation = |c: usize| (readout.map.row(c)[0].abs(), 5.0 * readout.map.row(c)[1].abs());
        assert!(deviation(0).0 > 20.0 * deviation(0).1, "{:?}", readout.map);
        assert!(deviation(0).0 > 1.2 * deviation(1).1, "{:?}", readout.map);
    }

    #[test]
    fn one_view_gives_white_components_and_blocks_do_not_matter() {
        let mut random = random();
        let rows = Matrix::new(3, (0..600).flat_map(|_| [random.normal(), 9.0 * random.normal(), 1.0]).collect());
        let settings = ReadoutSettings { components: 2, ridge: 0.0, power: 0.75 };
        let learned = |blocks: usize| {
            let mut learner = ReadoutLearner::new(3);
            for rows in rows.values.chunks(3 * rows.rows.div_ceil(blocks)) {
                learner.add(&[Matrix::new(3, rows.to_vec())]);
            }
            learner.finish(&settings).unwrap()
        };
        let readout = learned(1);
        let mut read = vec![[0.0f64; 2]; rows.rows];
        for (out, row) in read.iter_mut().zip(rows.values.chunks_exact(3)) {
            for c in 0..2 {
                let map = readout.map.row(c);
                out[c] = (0..3).map(|i| f64::from(map[i]) * f64::from(row[i] - readout.mean[i])).sum();
            }
        }
        for c in 0..2 {
            let variance = read.iter().map(|x| x[c] * x[c]).sum::<f64>() / read.len() as f64;
            assert!((variance - 1.0).abs() < 0.02, "component {c}: {variance}");
        }
        let (a, b) = (readout.apply(&rows), learned(7).apply(&rows));
        for (a, b) in a.values.chunks(2).zip(b.values.chunks(2)) {
            assert!((a[0].abs() - b[0].abs()).abs() < 1e-3 && (a[1].abs() - b[1].abs()).abs() < 1e-3, "{a:?} {b:?}");
        }
    }

    /// Rotations change no distance: along all principal directions, features are as far from each other as side by side.
    #[test]
    fn members_side_by_side_and_along_directions() {
        let mut random = random();
        let mut matrix = |rows: usize, dim: usize| Matrix::new(dim, (0..rows * dim).map(|_| random.normal()).collect());
        let rows = matrix(9, 5);
        let members = [3, 2].map(|of| Readout { mean: matrix(1, 5).values, map: matrix(of, 5) });
        let both = Readout::side_by_side(&members);
        assert_eq!((both.map.rows, both.map.dim), (5, 5));
        for c in 0..5 {
            assert!((both.mean[c] - 0.5 * (members[0].mean[c] + members[1].mean[c])).abs() < 1e-6);
        }
        let same_mean = |member: &Readout| Readout { mean: both.mean.clone(), ..member.clone() };
        let parts = members.each_ref().map(|member| same_mean(member).project(&rows));
        let features = both.project(&rows);
        for i in 0..9 {
            assert_eq!(features.row(i), [parts[0].row(i), parts[1].row(i)].concat());
        }
        // A rotation in the plane of the first and fourth number.
        let (sin, cos) = 0.7f32.sin_cos();
        let mut turn = Matrix::new(5, (0..25).map(|at| f32::from(u8::from(at / 5 == at % 5))).collect());
        (turn.values[0], turn.values[3], turn.values[15], turn.values[18]) = (cos, -sin, sin, cos);
        let turned = both.along(&turn).project(&rows);
        let length = |m: &Matrix, i: usize| m.row(i).iter().map(|x| x * x).sum::<f32>();
        for i in 0..9 {
            let (a, b) = (length(&features, i), length(&turned, i));
            assert!((a - b).abs() < 1e-4 * a, "{a} is not {b}");
            let expected = cos * features.row(i)[0] - sin * features.row(i)[3];
            assert!((turned.row(i)[0] - expected).abs() < 1e-4);
        }
    }

    #[test]
    fn nothing_one_image_and_no_components() {
        let e = ReadoutLearner::new(4).finish(&ReadoutSettings::default()).unwrap_err();
        assert!(e.message.contains("no images"), "{e:?}");
        let mut learner = ReadoutLearner::new(4);
        learner.add(&[Matrix::new(4, vec![1.0, 2.0, 3.0, 4.0])]);
        let readout = learner.finish(&ReadoutSettings::default()).unwrap();
        assert_eq!(readout.map.rows, 4);
        assert!(readout.apply(&Matrix::new(4, vec![2.0; 8])).values.iter().all(|x| x.is_finite()));
        let mut learner = ReadoutLearner::new(1);
        learner.add(&[Matrix::new(1, vec![1.0, 2.0])]);
        assert!(learner.finish(&ReadoutSettings { components: 0, ..ReadoutSettings::default() }).is_err());
    }
}
