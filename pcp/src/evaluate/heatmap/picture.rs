//! Heat over image files, and how much of it lies inside their boxes.

use super::{Heat, heat};
use crate::data::augment::Augmenter;
use crate::data::decode;
use crate::data::voc::Annotation;
use crate::data::{Batch, Image};
use crate::model::Model;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::is_there;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Side of the pictures that are made.
pub const SHOWN: usize = 224;

/// How much of the heat of one network lies inside boxes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeatInBoxes {
    /// File of the weights.
    pub weights: String,
    /// Mean share of the heat inside the boxes, where there are boxes.
    pub inside: Option<f64>,
    /// Mean share of the area inside the boxes: what an even heat would have.
    pub area: Option<f64>,
    /// Images that have boxes.
    pub images_with_boxes: usize,
}

/// Heat of `pictures` by `model`; `each` is called with every picture and its heat. `augmenter` has the clean view.
pub fn heat_in_boxes(
    model: &Model,
    pictures: &[Picture],
    augmenter: &Augmenter,
    each: &mut dyn FnMut(&Picture, &Heat) -> Result<()>,
) -> Result<HeatInBoxes> {
    let mut shares = Vec::new();
    for picture in pictures {
        let heat = picture.heat(model, augmenter);
        each(picture, &heat)?;
        shares.extend(picture.boxes(augmenter).map(|boxes| heat.upsampled(SHOWN).inside(&boxes)));
    }
    let mean = |of: fn(&(f64, f64)) -> f64| {
        (!shares.is_empty()).then(|| shares.iter().map(of).sum::<f64>() / shares.len() as f64)
    };
    let (inside, area) = (mean(|s| s.0), mean(|s| s.1));
    Ok(HeatInBoxes { weights: model.file_name(), inside, area, images_with_boxes: shares.len() })
}

/// An image file with its boxes.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Name for the pictures made of it.
    pub name: String,
    /// The image.
    pub image: Image,
    /// Its boxes, where they are known.
    pub annotation: Option<Annotation>,
}

impl Picture {
    /// Reads an image file, and its boxes from the VOC folder `voc`, where that has any.
    pub fn read(path: &Path, voc: Option<&Path>) -> Result<Picture> {
        let image = decode::file(path).map_err(|reason| {
            Error::data(format!("{}: {reason}", path.display()), "give images that can be read, or leave this one out")
        })?;
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let annotation = match voc.map(|voc| voc.join("Annotations").join(format!("{name}.xml"))) {
            Some(xml) if is_there(&xml)? => Some(Annotation::read(&xml)?),
            Some(xml) if voc.is_some_and(|voc| !voc.join("Annotations").is_dir()) => {
                let message = format!("there is no folder {}", xml.parent().unwrap_or(&xml).display());
                return Err(Error::data(message, "give `boxes` the VOC folder that holds Annotations"));
            }
            _ => None,
        };
        Ok(Picture { name, image, annotation })
    }

    /// The clean view's square cut out of the image, `side` px wide.
    pub fn square(&self, augmenter: &Augmenter, side: usize) -> Image {
        augmenter.picture(&self.image, side)
    }

    /// The heat over its clean view.
    pub fn heat(&self, model: &Model, augmenter: &Augmenter) -> Heat {
        let mut pixels = vec![0.0; augmenter.size * augmenter.size * 3];
        augmenter.clean_view(&self.image, &mut pixels);
        heat(&model.network, &model.weights, &Batch { rows: 1, pixels }).remove(0)
    }

    /// The boxes in shares of the clean view's square; `None` where none reaches into it.
    fn boxes(&self, augmenter: &Augmenter) -> Option<Vec<[f32; 4]>> {
        let (w, h) = (self.image.width as f32, self.image.height as f32);
        // The square shows this much of the width and the height.
        let (wide, high) = match augmenter.margin {
            0.0 => (w, h),
            margin => (w.min(h) / margin.max(1.0), w.min(h) / margin.max(1.0)),
        };
        let (left, top) = ((w - wide) / 2.0, (h - high) / 2.0);
        let share = |b: &[f32; 4]| {
            let x = |v: f32| ((v - left) / wide).clamp(0.0, 1.0);
            let y = |v: f32| ((v - top) / high).clamp(0.0, 1.0);
            [x(b[0]), y(b[1]), x(b[2]), y(b[3])]
        };
        let boxes: Vec<[f32; 4]> = self.annotation.as_ref()?.objects.iter().map(|o| share(&o.bounds)).collect();
        let reaching: Vec<_> = boxes.into_iter().filter(|b| b[2] > b[0] && b[3] > b[1]).collect();
        (!reaching.is_empty()).then_some(reaching)
    }
}
