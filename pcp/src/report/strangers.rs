//! Images that are unlike all others: by their embeddings and, where there are pictures, by their colours and light. A guess, beside which
//! stands what was measured of it.

use crate::data::resize::resize;
use crate::data::{Image, Images};
use pcp_core::appearance;
use pcp_core::copies::{SIDE, Thumbnail};
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;
use pcp_core::outliers;
use rayon::prelude::*;

/// Images that are listed at the most, and one in how many.
const MOST: usize = 200;
const ONE_IN: usize = 20;
/// Images whose colours and light are looked at for a page at the most: of more, embeddings count alone.
const PICTURES: usize = 20_000;

/// What is said beside the list; then comes where more is to be found.
pub(crate) const ABOUT: &str = "A guess: images far from all others, by their embeddings, colours and light. How good such lists are depends on the collection: of 15 strangers put among \
    photographs of fruit 12 came among the first 30, among photographs of birds 1 did, no more than by chance (features of patches).";

/// What is seen of an image: its thumbnail, and its width over its height.
pub(crate) fn seen(image: &Image) -> (Thumbnail, f32) {
    let thumbnail = Thumbnail { pixels: resize(image, SIDE, SIDE).pixels, small: false };
    (thumbnail, image.width as f32 / image.height.max(1) as f32)
}

/// Colours and light of what was seen.
pub(crate) fn described(seen: &[(Thumbnail, f32)]) -> [Matrix; 2] {
    let (thumbnails, shapes): (Vec<&Thumbnail>, Vec<f32>) = seen.iter().map(|(t, shape)| (t, *shape)).unzip();
    appearance::described(&thumbnails, &shapes)
}

/// The rows that are most unlike all others, with their scores, the most unlike first.
pub(crate) fn unlike(features: &Matrix, seen: Option<&[Matrix; 2]>) -> Vec<(usize, f32)> {
    let mut descriptions = vec![features];
    descriptions.extend(seen.into_iter().flatten());
    let mut rows: Vec<(usize, f32)> = outliers::unlike(&descriptions).into_iter().enumerate().collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    rows.truncate((features.rows / ONE_IN).clamp(1, MOST));
    rows
}

/// The same for the embeddings of `images`, as far as these can be read.
pub(super) fn of_images(features: &Matrix, images: Option<&Images>) -> Vec<(usize, f32)> {
    if features.rows == 0 || features.values.iter().any(|x| !x.is_finite()) {
        return Vec::new();
    }
    let images = images.filter(|images| images.len() == features.rows && features.rows <= PICTURES);
    let look = |images: &Images| {
        let all = (0..images.len()).into_par_iter().map(|i| Ok(seen(&images.sample(i)?.image)));
        all.collect::<Result<Vec<_>>>().ok().map(|seen| described(&seen))
    };
    unlike(&features.clone().normalised(), images.and_then(look).as_ref())
}
