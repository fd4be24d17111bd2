//! The description inside a model file: the network and the preprocessing of its images.

use super::{CombinationCard, Network};
use crate::config::{self, AugmentSettings, DataSettings, Precision, Resolved, usual_stored_side};
use crate::data::CleanView;
use crate::data::augment::Augmenter;
use crate::data::augment::whole_image;
use pcp_core::error::Result;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The description inside a model file: the network, the preprocessing of its images, and when it was saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelCard {
    /// The network.
    pub network: config::NetworkSettings,
    /// The precision that it was trained in.
    #[serde(default)]
    pub precision: Precision,
    /// Side of its images.
    pub size: usize,
    /// The clean view's margin; 0 for the whole image.
    pub margin: f64,
    /// The short side to which photographs are shrunk first; 0 keeps them as they are.
    #[serde(default)]
    pub stored: Option<usize>,
    /// Channel means.
    pub mean: [f64; 3],
    /// Channel standard deviations.
    pub std: [f64; 3],
    /// Round it was saved in.
    pub round: u32,
    /// Epoch it was saved after.
    pub epoch: u32,
    /// The patch features beside the network, where its embedding has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combination: Option<CombinationCard>,
}

impl ModelCard {
    /// The card of a run's weights in this round and epoch.
    pub fn of_run(config: &Resolved, (round, epoch): (u32, u32)) -> ModelCard {
        let DataSettings { size, margin, stored, mean, std, .. } = config.data;
        let (network, precision) = (config.network.clone(), config.train.precision);
        ModelCard { network, precision, size, margin, stored: Some(stored), mean, std, round, epoch, combination: None }
    }

    /// The network without weights. It computes in the precision that it was trained in, or in f32 where the CPU has no other.
    pub fn build(&self) -> Result<Network> {
        Ok(Network::new(&self.network, self.size)?.with_precision(self.precision.or_f32()))
    }

    /// The preprocessing of images in words, but for the normalisation.
    pub fn preprocessing(&self) -> String {
        let side = self.size;
        match self.margin {
            0.0 => whole_image(side),
            margin => {
                let short = (side as f64 * margin.max(1.0)).round();
                format!("short side resized to {short} px, centre of {side} x {side} px")
            }
        }
    }

    /// The preprocessing of images.
    pub fn clean_view(&self) -> CleanView {
        let augmenter = Augmenter {
            size: self.size,
            margin: self.margin as f32,
            mean: self.mean.map(|x| x as f32),
            std: self.std.map(|x| x as f32),
            recipe: AugmentSettings::default(),
        };
        let squares = self.combination.as_ref().map(|combination| Arc::new(combination.squares()));
        CleanView { augmenter, stored: self.stored.unwrap_or(usual_stored_side(self.size)), squares }
    }
}
