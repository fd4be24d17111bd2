//! A page of pictures that were found, section by section, group by group: copies, blurred ones, neighbours.
//!
//! Every picture is in the page once, as a JPEG that is shown small and enlarged by a click, and its name links to the file.

use super::page::{STYLE, filled};
use super::sprites::base64;
use crate::data::Image;
use crate::data::resize::resize;
use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;
use pcp_core::error::Result;
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const MORE_STYLE: &str = include_str!("../../assets/findings.css");
const SCRIPT: &str = include_str!("../../assets/findings.js");

/// Pictures on a page at the most.
const MOST: usize = 1500;
/// Pictures of a section at the most, and of a group.
const OF_SECTION: usize = 300;
const OF_GROUP: usize = 40;
/// Long side of the pictures, and their JPEG quality, by how many there are: about 9 MB of base64 in all.
const SIDES: [(usize, u32, u8); 3] = [(250, 384, 78), (700, 256, 74), (MOST, 176, 70)];

/// A picture that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPicture {
    /// Its number in the collection.
    pub row: usize,
    /// What is said about it, in a few words.
    pub caption: String,
    /// Whether it stands out: the best of its group, the one that was asked about.
    pub marked: bool,
}

/// Pictures that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownGroup {
    /// What is said about them; empty for a group that needs no words.
    pub caption: String,
    /// The pictures.
    pub pictures: Vec<ShownPicture>,
}

/// One kind of finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownSection {
    /// Its heading.
    pub title: String,
    /// What it means, and how sure it is.
    pub about: String,
    /// The groups, the most important first.
    pub groups: Vec<ShownGroup>,
}

/// The contents of a page of findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The collection's name.
    pub name: String,
    /// A summary in a sentence.
    pub sentence: String,
    /// (name, value, note) of the key figures.
    pub tiles: Vec<[String; 3]>,
    /// Other things to know.
    pub notes: Vec<String>,
    /// The findings.
    pub sections: Vec<ShownSection>,
}

/// Where the pictures of a page come from.
pub trait PictureSource: Sync {
    /// The name of picture `row`.
    fn name(&self, row: usize) -> String;
    /// Its file, where it has one.
    fn path(&self, row: usize) -> Option<PathBuf>;
    /// The picture, where it can be read.
    fn image(&self, row: usize) -> Option<Image>;
}

/// The page; `tick` gets the number of pictures done and how many there are, its error ends it.
pub fn findings_page(
    findings: &Findings,
    source: &dyn PictureSource,
    tick: &mut dyn FnMut(usize, usize) -> Result<()>,
) -> Result<String> {
    let mut pool = ShownRows::default();
    let sections: Vec<Value> = findings.sections.iter().map(|section| shown(section, &mut pool)).collect();
    let (_, side, quality) = *SIDES.iter().find(|(most, ..)| pool.rows.len() <= *most).unwrap_or(&SIDES[2]);
    let mut images = Vec::new();
    for rows in pool.rows.chunks(64) {
        tick(images.len(), pool.rows.len())?;
        let made: Vec<Value> = (rows.par_iter())
            .map(|row| {
                let picture = source.image(*row).map_or_else(String::new, |image| jpeg(&image, side, quality));
                let link = source.path(*row).map(|path| file_address(&path));
                json!({ "name": source.name(*row), "link": link, "picture": picture })
            })
            .collect();
        images.extend(made);
    }
    let data = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "name": findings.name,
        "sentence": findings.sentence,
        "tiles": findings.tiles,
        "notes": findings.notes,
        "sections": sections,
        "images": images,
    });
    filled(&format!("{STYLE}{MORE_STYLE}"), SCRIPT, &data)
}

/// The pictures of a page, each once.
#[derive(Default)]
struct ShownRows {
    place: HashMap<usize, usize>,
    rows: Vec<usize>,
}

impl ShownRows {
    /// The place of a picture; `None` when the page is full.
    fn add(&mut self, row: usize) -> Option<usize> {
        if let Some(place) = self.place.get(&row) {
            return Some(*place);
        }
        (self.rows.len() < MOST).then(|| {
            self.place.insert(row, self.rows.len());
            self.rows.push(row);
            self.rows.len() - 1
        })
    }
}

/// A section as JSON, with the pictures for which there is room.
fn shown(section: &ShownSection, pool: &mut ShownRows) -> Value {
    let (mut groups, mut pictures, mut left_out) = (Vec::new(), 0, 0);
    for group in &section.groups {
        let room = OF_GROUP.min(OF_SECTION - pictures);
        let shown: Vec<Value> = (group.pictures.iter().take(room))
            .filter_map(|p| Some(json!([pool.add(p.row)?, p.caption, p.marked])))
            .collect();
        pictures += shown.len();
        left_out += group.pictures.len() - shown.len();
        if !shown.is_empty() {
            let more = group.pictures.len() - shown.len();
            groups.push(json!({ "caption": group.caption, "pictures": shown, "more": more }));
        }
    }
    json!({ "title": section.title, "about": section.about, "groups": groups, "left_out": left_out })
}

/// A picture with a long side of at most `side`, as a `data:` URI.
fn jpeg(image: &Image, side: u32, quality: u8) -> String {
    let (width, height, long) = (image.width, image.height, image.width.max(image.height));
    let scaled = |length: usize| if long > side as usize { (length * side as usize / long).max(1) } else { length };
    let small = resize(image, scaled(width), scaled(height));
    let mut bytes = Vec::new();
    let encoder = JpegEncoder::new_with_quality(&mut bytes, quality);
    let (width, height) = (small.width as u32, small.height as u32);
    match image::ImageEncoder::write_image(encoder, &small.pixels, width, height, ExtendedColorType::Rgb8) {
        Ok(()) => format!("data:image/jpeg;base64,{}", base64(&bytes)),
        // Encoding does not fail here: these are small enough for JPEG. If it did, the picture would be missing.
        Err(_) => String::new(),
    }
}

/// The address of a file, for links: what is not a plain character is escaped.
fn file_address(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut address = String::from("file://");
    for byte in whole.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                address.push(char::from(*byte))
            }
            other => address += &format!("%{other:02X}"),
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_core::error::Error;

    struct Made;

    impl PictureSource for Made {
        fn name(&self, row: usize) -> String {
            format!("<b>{row}</b>.png")
        }
        fn path(&self, row: usize) -> Option<PathBuf> {
            (row == 1).then(|| PathBuf::from("/no such/ä?.png"))
        }
        fn image(&self, row: usize) -> Option<Image> {
            (row != 2).then(|| Image { width: 900, height: 300, pixels: vec![row as u8; 900 * 300 * 3] })
        }
    }

    fn section(rows: impl Iterator<Item = usize>) -> ShownSection {
        let picture = |row| ShownPicture { row, caption: "</script>".into(), marked: row == 0 };
        let group = ShownGroup { caption: "alike".into(), pictures: rows.map(picture).collect() };
        ShownSection { title: "Copies".into(), about: String::new(), groups: vec![group] }
    }

    #[test]
    fn names_are_data_and_pictures_are_there_once() {
        let findings = Findings {
            sections: vec![section([0, 1, 2].into_iter()), section([1].into_iter())],
            ..Findings::default()
        };
        let mut told = Vec::new();
        let page = findings_page(&findings, &Made, &mut |done, all| {
            told.push((done, all));
            Ok(())
        })
        .unwrap();
        assert_eq!(told, [(0, 3)]);
        assert!(page.contains("\\u003cb>0") && !page.contains("<b>0") && !page.contains("{{"), "names are escaped");
        assert_eq!(page.matches("data:image/jpeg").count(), 2, "row 2 cannot be read");
        assert!(page.contains("file:///no%20such/%C3%A4%3F.png"));
        let e = findings_page(&findings, &Made, &mut |_, _| Err(Error::stopped())).unwrap_err();
        assert_eq!(e.exit_code(), 130);
        findings_page(&Findings::default(), &Made, &mut |_, _| Ok(())).unwrap();
    }

    #[test]
    fn a_page_has_a_limit() {
        let mut pool = ShownRows::default();
        let many: Vec<ShownGroup> = (0..20).flat_map(|i| section(i * 50..i * 50 + 50).groups).collect();
        let made = shown(&ShownSection { groups: many, ..ShownSection::default() }, &mut pool);
        assert_eq!((pool.rows.len(), &made["left_out"]), (OF_SECTION, &json!(1000 - OF_SECTION)));
        assert_eq!((&made["groups"][0]["more"], made["groups"].as_array().unwrap().len()), (&json!(10), 8));
        for row in 0..2 * MOST {
            pool.add(row);
        }
        assert_eq!((pool.rows.len(), pool.add(MOST * 9), pool.add(0)), (MOST, None, Some(0)));
    }
}
