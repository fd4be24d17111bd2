//! Writes the bundled images or CIFAR as PNG files in class folders, `train/CLASS/` and `test/CLASS/`, as a user's own photographs would
//! lie: `class_folders bundled DIR`, or `class_folders cifar10 DIR DATA`, where DATA holds the CIFAR files.

#![allow(clippy::print_stdout)]

use pcp::data::{Load, Source, load};
use rayon::prelude::*;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (name, dir, data_dir) = match &arguments[..] {
        [_, name, dir] => (name, dir, None),
        [_, name, dir, data] => (name, dir, Some(data.into())),
        _ => return Err("usage: class_folders bundled|cifar10|cifar100 DIR [DATA]".into()),
    };
    let data = load(&Load { data_dir, ..Load::new(Source::parse(name)?) }, &|_, _| ())?;
    for (split, part) in [("train", Some(&data.train)), ("test", data.test.as_ref())] {
        let Some(part) = part else { continue };
        let Some(labels) = &part.labels else { return Err(format!("{name} has no labels").into()) };
        let folder = |class: u32| Path::new(dir).join(split).join(&labels.classes[class as usize]);
        (0..labels.classes.len() as u32).try_for_each(|class| std::fs::create_dir_all(folder(class)))?;
        let write = |row: usize| -> Result<(), String> {
            let image = part.images.sample(row).map_err(|e| e.message)?.image.into_owned();
            let picture = image::RgbImage::from_raw(image.width as u32, image.height as u32, image.pixels);
            let path = folder(labels.of[row]).join(format!("{row:05}.png"));
            picture.ok_or("an image of the wrong size")?.save(path).map_err(|e| e.to_string())
        };
        (0..part.images.len()).into_par_iter().try_for_each(write)?;
        println!("{dir}/{split}: {} images in {} classes", part.images.len(), labels.classes.len());
    }
    Ok(())
}
