//! Square views of images for patches: the whole image resized, or a random crop with other light.

use super::PatchModelSettings;
use crate::data::resize::shrink;
use crate::data::{CleanView, Image, Images};
use crate::observe::Observer;
use pcp_core::error::Result;
use pcp_core::rng::{Key, Purpose};
use std::borrow::Cow;

/// `image`, shrunk to a short side of `side` where it is larger; 0 keeps it.
fn stored(image: Cow<Image>, side: usize) -> Cow<Image> {
    match side > 0 && image.width.min(image.height) > side {
        true => Cow::Owned(shrink(image.into_owned(), side)),
        false => image,
    }
}

/// One view of every image.
pub(super) struct Squares<'a> {
    images: &'a Images,
    n: usize,
    view: CleanView,
    /// Random views: from which numbers, and which of an image's.
    random: Option<(Key, u32)>,
    observer: Option<&'a dyn Observer>,
}

impl<'a> Squares<'a> {
    /// The images as they are.
    pub(super) fn clean(images: &'a Images, settings: &PatchModelSettings) -> Self {
        Squares { images, n: images.len(), view: settings.view(), random: None, observer: None }
    }

    /// Only the first `n`.
    pub(super) fn first(self, n: usize) -> Self {
        Squares { n: self.n.min(n), ..self }
    }

    /// A random view of every image, the one of that number.
    pub(super) fn random(images: &'a Images, settings: &PatchModelSettings, view: u32) -> Self {
        let key = Key { purpose: Purpose::Patches, seed: settings.patches.seed, round: 2, epoch: 0 };
        Squares { random: Some((key, view)), ..Squares::clean(images, settings) }
    }

    /// `observer` is told of every image that is read.
    pub(super) fn told(self, observer: &'a dyn Observer) -> Self {
        Squares { observer: Some(observer), ..self }
    }
}

impl pcp_core::patches::Images for Squares<'_> {
    fn len(&self) -> usize {
        self.n
    }

    fn side(&self) -> usize {
        self.view.augmenter.size
    }

    fn read(&self, i: usize, out: &mut [f32]) -> Result<()> {
        let sample = self.images.sample(i)?;
        let (image, augmenter) = (stored(sample.image, self.view.stored), &self.view.augmenter);
        match self.random {
            None => augmenter.clean_view(&image, out),
            Some((key, view)) => augmenter.train_view(&image, &mut key.stream(sample.id, view), out),
        }
        if let Some(observer) = self.observer {
            observer.advance(1);
        }
        Ok(())
    }
}
