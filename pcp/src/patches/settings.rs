//! Settings of a patch model, and which fit a set of images.

use crate::config::{AugmentSettings, usual_stored_side};
use crate::data::augment::Augmenter;
use crate::data::{CleanView, Images};
use pcp_core::error::{Error, Result};
use pcp_core::patches::{PatchSettings, SecondSettings};
use pcp_core::readout::ReadoutSettings;
use serde::{Deserialize, Serialize};

/// Images that are looked at to tell small images from photographs.
const LOOKED_AT: usize = 33;
/// Images with a short side below this are small: as CIFAR's.
const SMALL: usize = 48;
/// Patches that are learned from an image at the most: more are much the same.
const PER_IMAGE: usize = 1000;
/// Images for every number of a feature at the least: with as many numbers as images, white features make all images equally unlike.
const PER_COMPONENT: usize = 3;
/// Levels: a patch sees a tenth of the image's side at the first, twice as much at the second.
const LEVELS: usize = 2;
/// Centroids of the second layer where one readout is learned, and where a committee of readouts is. Fewer images than these have none: a readout learns too
/// little about each of so many numbers.
const SECOND_OF_MANY: usize = 400;
const SECOND_OF_FEW: usize = 200;
const LEAST_FOR_SECOND: usize = 768;
const LEAST_COMPONENTS: usize = 8;
/// Readouts of a committee at the most, and the images that they share: more images need fewer readouts.
const MOST_MEMBERS: usize = 4;
const COMMITTEE_IMAGES: usize = 4000;
/// The readout of more images than a committee is made for: they tell more directions apart, and the weak ones are trusted less.
const READOUT_OF_MANY: ReadoutSettings = ReadoutSettings { components: 512, ridge: 0.03, power: 1.0 };
/// The most that views of photographs turn the hue: colour tells more of them apart than of small images.
const PHOTOGRAPHS_HUE: f64 = 0.03;

/// How a patch model is learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchModelSettings {
    /// Side of the squares that images are resized to: all of their area, whatever their aspect.
    pub side: usize,
    /// Short side to which larger photographs are shrunk first; 0 keeps them.
    pub stored: usize,
    /// The patches.
    pub patches: PatchSettings,
    /// The readout.
    pub readout: ReadoutSettings,
    /// Readouts of the committee; each is learned from other views.
    #[serde(default = "one")]
    pub members: usize,
    /// Random views of every image that a readout is learned from, besides the image as it is.
    pub views: usize,
    /// The random views.
    pub augment: AugmentSettings,
    /// Images that a readout is learned from at the most.
    pub images: usize,
}

/// The readouts of models that do not say it.
fn one() -> usize {
    1
}

impl Default for PatchModelSettings {
    fn default() -> Self {
        PatchModelSettings::of_side(64, 2)
    }
}

impl PatchModelSettings {
    /// Numbers of a feature at the most, unless a setting says otherwise.
    pub const MOST_COMPONENTS: usize = READOUT_OF_MANY.components;

    /// For images of `side` pixels, with a patch every `stride` pixels.
    fn of_side(side: usize, stride: usize) -> Self {
        let second = SecondSettings { centroids: SECOND_OF_FEW, ..SecondSettings::default() };
        let patches = PatchSettings { stride, levels: LEVELS, second, ..PatchSettings::default() };
        PatchModelSettings {
            side,
            stored: usual_stored_side(side),
            patches,
            readout: ReadoutSettings::default(),
            members: 1,
            views: 2,
            // Codes of mirror images are equal: a flip would change nothing.
            augment: AugmentSettings {
                scale: [0.4, 1.0],
                jitter_probability: 1.0,
                brightness: 0.4,
                contrast: 0.4,
                saturation: 0.4,
                hue: 0.1,
                grey: 0.0,
                blur: 0.0,
                flip: 0.0,
                ..AugmentSettings::default()
            },
            images: 10_000,
        }
    }

    /// For so many images of `side` pixels: small ones with a patch at every pixel, larger ones at every other.
    pub fn of_size(side: usize, images: usize, seed: u64) -> Self {
        let mut settings = Self::of_side(side, if side < SMALL { 1 } else { 2 });
        settings.patches.samples = settings.patches.samples.min(images.max(1) * PER_IMAGE);
        // So few images have fewer directions than a committee would look for.
        let few = images < PER_COMPONENT * LEAST_COMPONENTS;
        settings.members = if few { 1 } else { (COMMITTEE_IMAGES / images).clamp(1, MOST_MEMBERS) };
        if settings.members == 1 && !few {
            settings.readout = READOUT_OF_MANY;
            settings.patches.second.centroids = SECOND_OF_MANY;
        } else if images < LEAST_FOR_SECOND {
            settings.patches.second.centroids = 0;
        }
        settings.readout.components = settings.readout.components.min((images / PER_COMPONENT).max(LEAST_COMPONENTS));
        if side >= SMALL {
            settings.augment.hue = PHOTOGRAPHS_HUE;
        }
        settings.patches.seed = seed;
        settings
    }

    /// The settings for `images`: 32 pixels for small ones, 64 for photographs.
    pub fn fitting(images: &Images, seed: u64) -> Result<Self> {
        let n = images.len();
        let looked_at = n.min(LOOKED_AT);
        let mut sides = Vec::with_capacity(looked_at);
        for i in 0..looked_at {
            let image = images.sample(i * n / looked_at)?.image;
            sides.push(image.width.min(image.height));
        }
        sides.sort_unstable();
        let small = sides.get(sides.len() / 2).is_some_and(|side| *side < SMALL);
        Ok(Self::of_size(if small { 32 } else { 64 }, n, seed))
    }

    /// Numbers of a feature: of a committee twice as many as of a member, unless that is more than the usual number.
    pub fn components(&self) -> usize {
        let one = self.readout.components;
        if self.members == 1 { one } else { (2 * one).min(ReadoutSettings::default().components).max(one) }
    }

    /// How images are brought to the size: all of their area, values from 0 to 1.
    pub(crate) fn view(&self) -> CleanView {
        let (size, recipe) = (self.side, self.augment.clone());
        let augmenter = Augmenter { size, margin: 0.0, mean: [0.0; 3], std: [1.0; 3], recipe };
        CleanView { augmenter, stored: self.stored, squares: None }
    }

    /// An error for settings that cannot work.
    pub fn check(&self) -> Result<()> {
        if !(8..=1024).contains(&self.side) {
            let message = format!("patch models of {} pixels cannot be made", self.side);
            return Err(Error::usage(message, "give a side between 8 and 1024"));
        }
        if !(1..=64).contains(&self.members) {
            let message = format!("a committee of {} readouts cannot be made", self.members);
            return Err(Error::usage(message, "give members a number between 1 and 64"));
        }
        if self.images == 0 {
            return Err(Error::usage("a readout cannot be learned from 0 images", "give it at least one"));
        }
        self.patches.check(self.side)?;
        self.augment.check()
    }
}
