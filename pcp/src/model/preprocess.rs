//! How images are made for a network of another tool: from a `preprocessor_config.json`, from the metadata of an ONNX file that pcp wrote, or from the
//! caller.

use crate::config::AugmentSettings;
use crate::data::CleanView;
use crate::data::augment::Augmenter;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::read_bytes;
use serde_json::Value;
use std::path::Path;

/// What is known about the images of a network; what is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Preprocess {
    /// Side of the images.
    pub size: Option<usize>,
    /// The short side that images are resized to, before the centre is cut out; otherwise `size`.
    pub resize: Option<usize>,
    /// Whether images are resized to `size` by `size` whatever their shape, and not cut.
    pub squash: Option<bool>,
    /// Channel means, of values from 0 to 1.
    pub mean: Option<[f64; 3]>,
    /// Channel standard deviations.
    pub std: Option<[f64; 3]>,
    /// Whether the network's own tool resizes by bicubic interpolation; here it is bilinear.
    pub bicubic: bool,
}

impl Preprocess {
    /// From a `preprocessor_config.json` of the transformers library.
    pub fn of_config(path: &Path) -> Result<Preprocess> {
        let wrong = |message: String| {
            Error::file(message, "give `size`, `mean` and `std` instead, and move the file away").at(path)
        };
        let config: Value = serde_json::from_slice(&read_bytes(path)?).map_err(|e| wrong(e.to_string()))?;
        let does = |key: &str, usual: bool| config[key].as_bool().unwrap_or(usual);
        if !does("do_rescale", true)
            || config["rescale_factor"].as_f64().is_some_and(|f| (f * 255.0 - 1.0).abs() > 1e-3)
        {
            return Err(wrong("it does not scale pixels to values from 0 to 1".into()));
        }
        let channels = |key: &str| match &config[key] {
            Value::Null => Ok(None),
            one @ Value::Number(_) => Ok(one.as_f64().map(|x| [x; 3])),
            list => serde_json::from_value(list.clone()).map(Some).map_err(|e| wrong(format!("{key}: {e}"))),
        };
        let (mean, std) = match does("do_normalize", true) {
            true => (channels("image_mean")?, channels("image_std")?),
            false => (Some([0.0; 3]), Some([1.0; 3])),
        };
        let crop = Side::of(&config["crop_size"]).filter(|_| does("do_center_crop", true));
        let resized = Side::of(&config["size"]).filter(|_| does("do_resize", true));
        let (size, resize, squash) = match (crop, resized) {
            (Some(Side::Short(size) | Side::Square(size)), resized) => match resized {
                Some(Side::Short(short)) => (Some(size), Some(short), false),
                Some(Side::Square(side)) if side == size => (Some(size), None, true),
                Some(Side::Square(_) | Side::Oblong) => return Err(wrong("it squashes images, then cuts them".into())),
                None => (Some(size), None, false),
            },
            (None, Some(Side::Square(size))) => (Some(size), None, true),
            (None, Some(Side::Short(size))) => (Some(size), None, false),
            (Some(Side::Oblong), _) | (None, Some(Side::Oblong)) => {
                return Err(wrong("its images are not square".into()));
            }
            (None, None) => (None, None, false),
        };
        let bicubic = config["resample"].as_u64() == Some(3);
        Ok(Preprocess { size, resize, squash: Some(squash), mean, std, bicubic })
    }

    /// From the metadata of an ONNX file that pcp wrote: `input`, `mean` and `std`.
    pub fn of_facts(fact: impl Fn(&str) -> Option<String>) -> Preprocess {
        let Some(input) = fact("input").filter(|input| input.starts_with("RGB from 0 to 1")) else {
            return Preprocess::default();
        };
        let number = |after: &str| {
            let rest = input.split_once(after)?.1;
            rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
        };
        let list = |key| {
            let values: Vec<f64> = fact(key)?.split(' ').map(|x| x.parse().ok()).collect::<Option<_>>()?;
            values.try_into().ok()
        };
        let (mean, std) = match input.contains("minus mean") {
            true => (list("mean"), list("std")),
            false => (Some([0.0; 3]), Some([1.0; 3])),
        };
        let squash = input.contains("whole image");
        let (size, resize) = match squash {
            true => (number("resized to "), None),
            false => (number("centre of ").or_else(|| number("centre ")), number("resized to ")),
        };
        Preprocess { size, resize, squash: Some(squash), mean, std, bicubic: false }
    }

    /// What is known here, and from `other` what is not.
    pub fn or(self, other: Preprocess) -> Preprocess {
        Preprocess {
            size: self.size.or(other.size),
            // A size of one's own with another's margin or shape would be a third way.
            resize: self.resize.or(other.resize.filter(|_| self.size.is_none() && self.squash.is_none())),
            squash: self.squash.or(other.squash.filter(|_| self.resize.is_none())),
            mean: self.mean.or(other.mean),
            std: self.std.or(other.std),
            bicubic: self.bicubic || other.bicubic,
        }
    }

    /// The view of images that comes of it; an error names what is not known.
    pub fn view(&self, shown: &Path) -> Result<CleanView> {
        let shown = shown.display();
        let Some(size) = self.size.filter(|size| *size > 0) else {
            let message = format!("{shown} does not say how large its images are");
            return Err(Error::usage(message, "give their side in pixels with `size`, for example 224"));
        };
        let (Some(mean), Some(std)) = (self.mean, self.std) else {
            let message = format!("{shown} does not say how its images are normalised");
            return Err(Error::usage(
                message,
                "give `mean` and `std` (ImageNet's are 0.485,0.456,0.406 and 0.229,0.224,0.225), or put its preprocessor_config.json beside it",
            ));
        };
        if std.iter().any(|x| !(x.is_finite() && *x > 0.0)) || mean.iter().any(|x| !x.is_finite()) {
            return Err(Error::usage(
                "`mean` must be numbers and `std` numbers above 0",
                "give three of each, such as 0.5,0.5,0.5",
            ));
        }
        let resize = self.resize.unwrap_or(size);
        if resize < size {
            let message = format!("`resize` {resize} is less than `size` {size}");
            return Err(Error::usage(
                message,
                "images are resized first, then their centre is cut out: give at least `size`",
            ));
        }
        let augmenter = Augmenter {
            size,
            // No margin is the whole image.
            margin: if self.squash == Some(true) { 0.0 } else { (resize as f64 / size as f64) as f32 },
            mean: mean.map(|x| x as f32),
            std: std.map(|x| x as f32),
            recipe: AugmentSettings::default(),
        };
        Ok(CleanView { augmenter, stored: 0, squares: None })
    }
}

/// A size in a `preprocessor_config.json`.
enum Side {
    /// Of the short side.
    Short(usize),
    /// Of both sides.
    Square(usize),
    /// Two that differ.
    Oblong,
}

impl Side {
    fn of(value: &Value) -> Option<Side> {
        let number = |value: &Value| value.as_u64().map(|side| side as usize);
        match (number(&value["height"]), number(&value["width"])) {
            (Some(height), Some(width)) if height == width => Some(Side::Square(height)),
            (Some(_), Some(_)) => Some(Side::Oblong),
            _ => number(value).or_else(|| number(&value["shortest_edge"])).map(Side::Short),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::augment::whole_image;

    fn config(text: &str) -> Result<Preprocess> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("preprocessor_config.json");
        std::fs::write(&path, text).unwrap();
        Preprocess::of_config(&path)
    }

    #[test]
    fn configurations_of_known_encoders() {
        let dino = config(
            r#"{"crop_size": {"height": 224, "width": 224}, "do_center_crop": true, "do_normalize": true, "do_rescale": true, "do_resize": true,
            "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "resample": 3, "rescale_factor": 0.00392156862745098,
            "size": {"shortest_edge": 256}}"#,
        );
        let dino = dino.unwrap();
        assert_eq!((dino.size, dino.resize, dino.squash, dino.bicubic), (Some(224), Some(256), Some(false), true));
        let view = dino.view(Path::new("dino.onnx")).unwrap();
        assert_eq!((view.augmenter.size as f32 * view.augmenter.margin).round(), 256.0);
        let vit = config(
            r#"{"do_resize": true, "image_mean": 0.5, "image_std": [0.5, 0.5, 0.5], "resample": 2, "size": {"height": 224, "width": 224}}"#,
        );
        let vit = vit.unwrap();
        assert_eq!((vit.size, vit.squash, vit.mean), (Some(224), Some(true), Some([0.5; 3])));
        let clip = config(r#"{"crop_size": 224, "size": 224, "image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1]}"#)
            .unwrap();
        assert_eq!((clip.size, clip.resize, clip.mean), (Some(224), Some(224), Some([0.1, 0.2, 0.3])));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (text, word) in [
            ("no json", "preprocessor_config.json"),
            (r#"{"do_rescale": false}"#, "from 0 to 1"),
            (r#"{"rescale_factor": 1.0}"#, "from 0 to 1"),
            (r#"{"size": {"height": 2, "width": 3}}"#, "not square"),
            (r#"{"size": {"height": 9, "width": 9}, "crop_size": 7}"#, "squashes images, then cuts"),
            (r#"{"image_mean": [1, 2]}"#, "image_mean"),
        ] {
            let e = config(text).unwrap_err();
            assert!(e.message.contains(word), "{text}: {e:?}");
        }
        let shown = Path::new("a.onnx");
        let known = Preprocess { size: Some(8), mean: Some([0.0; 3]), std: Some([1.0; 3]), ..Preprocess::default() };
        let message = |p: Preprocess| p.view(shown).unwrap_err().message;
        assert!(message(Preprocess { size: None, ..known }).contains("how large"));
        assert!(message(Preprocess { std: None, ..known }).contains("normalised"));
        assert!(message(Preprocess { std: Some([0.0; 3]), ..known }).contains("above 0"));
        assert!(message(Preprocess { resize: Some(7), ..known }).contains("less than `size` 8"));
    }

    #[test]
    fn own_exports_say_how() {
        let facts = |key: &str| match key {
            "input" => Some(
                "RGB from 0 to 1, minus mean, divided by std; short side resized to 36 px, centre of 32 x 32 px".into(),
            ),
            "mean" => Some("0.1 0.2 0.3".into()),
            "std" => Some("1 2 3".into()),
            _ => None,
        };
        let found = Preprocess::of_facts(facts);
        assert_eq!((found.size, found.resize, found.std), (Some(32), Some(36), Some([1.0, 2.0, 3.0])));
        // Older files.
        let older = Preprocess::of_facts(|_| Some("RGB from 0 to 1; short side resized to 36, centre 32 px".into()));
        assert_eq!((older.size, older.resize, older.mean), (Some(32), Some(36), Some([0.0; 3])));
        let whole = Preprocess::of_facts(|_| Some(format!("RGB from 0 to 1; {}", whole_image(48))));
        assert_eq!((whole.size, whole.squash), (Some(48), Some(true)));
        assert_eq!(whole.view(Path::new("patches.onnx")).unwrap().augmenter.margin, 0.0);
        assert_eq!(Preprocess::of_facts(|_| Some("something else".into())), Preprocess::default());
        // The caller's words win.
        let asked = Preprocess { size: Some(64), ..Preprocess::default() }.or(found);
        assert_eq!((asked.size, asked.resize, asked.mean), (Some(64), None, found.mean));
    }
}
