//! Features from clusters of patches, without a network: seconds where training takes minutes.
//!
//! After Coates, Lee and Ng, "An analysis of single-layer networks in unsupervised feature learning" (2011):
//!
//! 1. patches `p` of all images, with their contrast normalised: `(p - mean(p)) / sqrt(var(p) + 10 / 255^2)`;
//! 2. ZCA: `x = (p - m) Z`, `Z = V (D + eps)^(-1/2) V^T`, so that neighbouring pixels no longer say the same;
//! 3. spherical k-means, in which a centroid `c` stands for its negative and its mirror image, too;
//! 4. an image is encoded by all its patches: `max(x . c - t, 0)` and `max(-x . c - t, 0)`, averaged over the cells of a grid;
//!    what the mirror image of `c` finds counts for `c` in the mirrored cell, so that an image and its mirror image have the same code;
//! 5. the readout: square root, then the directions in which images differ more than views of one image do ([`crate::readout`]).
//!
//! All of that is done at one or several levels: the image, and the image halved again and again, in which a patch sees more. Codes of the
//! levels are put one after the other. Of few images, a committee of readouts learns more than one does ([`Patches::committee`]).
//!
//! On top of the first level there may be a second layer: patches of codes are clustered in turn ([`SecondSettings`]).
//!
//! Steps 1, 2 and 4 are one matrix product: `Z` and the centroids are folded into filters. Its results are summed while
//! they are in the first cache and never stored, and a filter and its mirror image cost as much as one.

mod centroids;
mod encode;
mod extract;
mod file;
mod second;
mod zca;

pub use crate::readout::{Readout, ReadoutSettings};
pub use extract::FLAT;
pub use file::Shaped;
pub use second::{Second, SecondSettings};

use crate::cancel::Cancel;
use crate::dots::paired::PackedPairs;
use crate::eigen::eigen;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::readout::ReadoutLearner;
use crate::rng::{Key, Purpose};
use crate::scatter::Scatter;
use second::SecondLayer;
use serde::{Deserialize, Serialize};

/// Images that are encoded at a time.
const BLOCK: usize = 256;

/// Square colour images that are opened by their number.
pub trait Images: Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Width and height.
    fn side(&self) -> usize;

    /// Writes image `i` into `out`, `[side, side, 3]`, values from 0 to 1.
    fn read(&self, i: usize, out: &mut [f32]) -> Result<()>;
}

/// Square images in memory.
pub struct SquareBatch<'a> {
    /// Width and height.
    pub side: usize,
    /// `[images, side, side, 3]`, values from 0 to 1.
    pub pixels: &'a [f32],
}

impl Images for SquareBatch<'_> {
    fn len(&self) -> usize {
        self.pixels.len() / (self.side * self.side * 3)
    }

    fn side(&self) -> usize {
        self.side
    }

    fn read(&self, i: usize, out: &mut [f32]) -> Result<()> {
        out.copy_from_slice(&self.pixels[i * out.len()..(i + 1) * out.len()]);
        Ok(())
    }
}

/// How patches are learned and encoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PatchSettings {
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Step between the patches of an image that is encoded.
    pub stride: usize,
    /// Number of centroids; each stands for its negative and its mirror image, too.
    pub centroids: usize,
    /// Patches to learn from.
    pub samples: usize,
    /// Updates of the centroids.
    pub iterations: usize,
    /// Products below this count as 0, t.
    pub threshold: f32,
    /// Added to the variances before whitening, eps.
    pub epsilon: f64,
    /// Cells of the pooling grid along a side.
    pub cells: usize,
    /// Levels: the image, and as many times its halves less one. The step halves, too, down to 1.
    pub levels: usize,
    /// The second layer, on top of the first level.
    pub second: SecondSettings,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Default for PatchSettings {
    fn default() -> Self {
        PatchSettings {
            patch: 6,
            stride: 2,
            centroids: 200,
            samples: 200_000,
            iterations: 10,
            threshold: 0.25,
            epsilon: 0.1,
            cells: 2,
            levels: 1,
            second: SecondSettings::default(),
            seed: 0,
        }
    }
}

impl PatchSettings {
    /// An error for settings that cannot work on images of this side.
    pub fn check(&self, side: usize) -> Result<()> {
        let positive = [
            ("patch", self.patch),
            ("stride", self.stride),
            ("centroids", self.centroids),
            ("samples", self.samples),
            ("cells", self.cells),
            ("levels", self.levels),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Error::usage(format!("patches.{name} is 0"), format!("give patches.{name} a number above 0")));
        }
        // Halved more often, no image has a pixel left.
        let smallest = if self.levels <= usize::BITS as usize { side >> (self.levels - 1) } else { 0 };
        if self.patch > smallest {
            let message = format!("patches of {} pixels do not fit into images of {smallest}", self.patch);
            return Err(Error::usage(
                message,
                format!("give patches.patch at most {smallest}, or fewer patches.levels"),
            ));
        }
        let coarsest = (0..self.levels).map(|level| self.level(side, level).positions).min().unwrap_or(0);
        if self.cells > coarsest {
            let message = format!("a grid of {} cells a side is finer than the patches of an image", self.cells);
            return Err(Error::usage(message, format!("give patches.cells at most {coarsest}")));
        }
        self.second.check(self, self.level(side, 0).positions)
    }

    /// The images of `side` pixels at a level.
    pub fn level(&self, side: usize, level: usize) -> Level {
        let (side, stride) = (side >> level, (self.stride >> level).max(1));
        Level { side, stride, positions: (side - self.patch) / stride + 1 }
    }

    /// Rows and columns of the filters of all levels.
    fn filter_shape(&self) -> (usize, usize) {
        (self.levels * self.centroids, self.dim() + 1)
    }

    /// Numbers of an encoded image.
    pub fn features(&self) -> usize {
        self.levels * self.level_features() + self.cells * self.cells * 2 * self.second.centroids
    }

    /// Numbers of an image that is encoded at one level.
    fn level_features(&self) -> usize {
        self.cells * self.cells * 2 * self.centroids
    }

    /// Numbers of a patch.
    fn dim(&self) -> usize {
        self.patch * self.patch * 3
    }
}

/// Images at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Their side.
    pub side: usize,
    /// The step between patches.
    pub stride: usize,
    /// Patches along a side.
    pub positions: usize,
}

/// Filters learned from patches; they turn an image into [`PatchSettings::features`] numbers that are 0 or more.
#[derive(Clone)]
pub struct Patches {
    settings: PatchSettings,
    side: usize,
    /// `[levels * centroids, dim + 1]`: centroid times ZCA, and what the mean patch gives, negated; level by level.
    filters: Matrix,
    /// The filters of every level.
    packed: Vec<PackedPairs>,
    second: Option<SecondLayer>,
}

impl Patches {
    /// Learns centroids from patches of `images`.
    pub fn learn(images: &dyn Images, settings: &PatchSettings, cancel: &Cancel) -> Result<Patches> {
        let side = images.side();
        settings.check(side)?;
        if images.is_empty() {
            return Err(Error::data("there are no images to take patches from", "give a folder with images"));
        }
        let mut filters = Vec::new();
        for level in 0..settings.levels {
            let mut patches = extract::sampled(images, settings, level, cancel)?;
            let whitening = zca::Zca::learn(&patches, settings.patch, settings.epsilon)?;
            whitening.apply(&mut patches);
            let key = Key { purpose: Purpose::PatchCentroids, seed: settings.seed, round: 0, epoch: level as u32 };
            let wanted = centroids::Wanted { k: settings.centroids, iterations: settings.iterations, key };
            let mirror = |from: &[f32], to: &mut [f32]| extract::mirrored(from, settings.patch, to);
            let centroids = centroids::learn(&patches, &wanted, &mirror, cancel)?;
            filters.extend(whitening.fold(&centroids).values);
        }
        let mut patches = Patches::of_filters(settings.clone(), side, Matrix::new(settings.dim() + 1, filters));
        if settings.second.centroids > 0 {
            patches.second = Some(SecondLayer::learn(&patches, images, cancel)?);
        }
        Ok(patches)
    }

    /// Areas along a side at a level: codes are averaged over areas where there is a second layer on top, and over cells elsewhere.
    pub fn areas(&self, level: usize) -> usize {
        let (settings, second) = (&self.settings, &self.settings.second);
        match second.centroids > 0 && level == 0 {
            true => second.areas_of(settings, settings.level(self.side, 0).positions),
            false => settings.cells,
        }
    }

    /// The first layer.
    fn of_filters(settings: PatchSettings, side: usize, filters: Matrix) -> Patches {
        assert_eq!((filters.rows, filters.dim), settings.filter_shape(), "filters of other settings");
        let of_level = |rows: &[f32]| encode::packed(&Matrix::new(filters.dim, rows.to_vec()), settings.patch);
        let packed = filters.values.chunks_exact(settings.centroids * filters.dim).map(of_level).collect();
        Patches { settings, side, filters, packed, second: None }
    }

    /// The settings.
    pub fn settings(&self) -> &PatchSettings {
        &self.settings
    }

    /// Width and height of the images.
    pub fn side(&self) -> usize {
        self.side
    }

    /// `[levels * centroids, dim + 1]`: the product of a row with a patch whose contrast is normalised, and a 1 behind it, is `x . c`.
    pub fn filters(&self) -> &Matrix {
        &self.filters
    }

    /// The second layer, if there is one.
    pub fn second(&self) -> Option<&Second> {
        self.second.as_ref().map(|layer| &layer.learned)
    }

    /// Numbers of an encoded image.
    pub fn features(&self) -> usize {
        self.settings.features()
    }

    /// The images `range` encoded, a row each: for every level and then the second layer, for every cell of the grid, the positive sides of all centroids, then
    /// the negative.
    pub fn encode(&self, images: &dyn Images, range: std::ops::Range<usize>, cancel: &Cancel) -> Result<Matrix> {
        self.encode_rows(images, &range.collect::<Vec<_>>(), cancel)
    }

    /// The same for images of any numbers.
    pub fn encode_rows(&self, images: &dyn Images, rows: &[usize], cancel: &Cancel) -> Result<Matrix> {
        encode::encode(self, images, rows, cancel)
    }

    /// The square roots of the codes of some images, which are what a readout reads.
    pub fn roots(&self, images: &dyn Images, rows: &[usize], cancel: &Cancel) -> Result<Matrix> {
        let mut codes = self.encode_rows(images, rows, cancel)?;
        codes.values.iter_mut().for_each(|x| *x = x.sqrt());
        Ok(codes)
    }

    /// A readout learned from `views` of the same images, of at most `most` of them: `views[0]` are the images as they are.
    pub fn learn_readout(
        &self,
        views: &[&dyn Images],
        most: usize,
        settings: &ReadoutSettings,
        cancel: &Cancel,
    ) -> Result<Readout> {
        let n = views.first().map_or(0, |images| images.len());
        let mut learner = ReadoutLearner::new(self.features());
        for rows in self.chosen(n, most).chunks(BLOCK) {
            let codes = views.iter().map(|images| self.roots(*images, rows, cancel));
            learner.add(&codes.collect::<Result<Vec<_>>>()?);
        }
        cancel.check()?;
        learner.finish(settings)
    }

    /// The readouts `members`, each learned from other views of the same images, as one. From a few hundred images a readout learns chance, too:
    /// what several agree on is steadier. Their features side by side are reduced to the `components` directions in which at most `most` of the
    /// images differ most.
    pub fn committee(
        &self,
        members: &[Readout],
        images: &dyn Images,
        most: usize,
        components: usize,
        cancel: &Cancel,
    ) -> Result<Readout> {
        let all = Readout::side_by_side(members);
        let columns = all.map.rows;
        let mut scatter = Scatter::new(columns);
        for rows in self.chosen(images.len(), most).chunks(BLOCK) {
            scatter.add(all.project(&self.roots(images, rows, cancel)?));
        }
        let directions = eigen(scatter.covariance(), columns)?.vectors;
        let kept = components.min(columns) * columns;
        Ok(all.along(&Matrix::new(columns, directions[..kept].iter().map(|x| *x as f32).collect())))
    }

    /// At most `most` of `n` images, at random, in order.
    fn chosen(&self, n: usize, most: usize) -> Vec<usize> {
        if n <= most {
            return (0..n).collect();
        }
        let key = Key { purpose: Purpose::Patches, seed: self.settings.seed, round: 1, epoch: 0 };
        let mut chosen: Vec<usize> = key.shuffled(&(0..n as u64).collect::<Vec<_>>()).into_iter().take(most).collect();
        chosen.sort_unstable();
        chosen
    }

    /// Features of all images: their codes, read out block by block.
    pub fn embed(&self, readout: &Readout, images: &dyn Images, cancel: &Cancel) -> Result<Matrix> {
        let mut out = Matrix { rows: 0, dim: readout.map.rows, values: Vec::new() };
        for rows in (0..images.len()).collect::<Vec<_>>().chunks(BLOCK) {
            let features = readout.apply(&self.roots(images, rows, cancel)?);
            out.rows += features.rows;
            out.values.extend_from_slice(&features.values);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
