//! Annotations in PASCAL VOC's XML: the objects of an image and their boxes.

use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::read_bytes;
use roxmltree::{Document, Node};
use std::path::Path;

/// The annotation of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    /// Its objects.
    pub objects: Vec<Object>,
}

/// An object in an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its class.
    pub class: String,
    /// Left, top, right, bottom in pixels, from 0, right and bottom exclusive. (VOC counts from 1, inclusive.)
    pub bounds: [f32; 4],
    /// Whether it is marked as difficult, so that the evaluation of detectors ignores it.
    pub difficult: bool,
    /// The line of the file that it begins at.
    pub line: u32,
}

impl Annotation {
    /// Reads a file of the `Annotations` folder.
    pub fn read(path: &Path) -> Result<Annotation> {
        let text = String::from_utf8_lossy(&read_bytes(path)?).into_owned();
        Self::parse(&text).map_err(|(line, what)| {
            let message = format!("{}, line {line}: {what}", path.display());
            Error::data(message, "correct the file, or leave its image out")
        })
    }

    /// Parses a file's text; an error has its line.
    fn parse(text: &str) -> std::result::Result<Annotation, (u32, String)> {
        let document = Document::parse(text).map_err(|e| (e.pos().row, e.to_string()))?;
        let root = document.root_element();
        if !root.has_tag_name("annotation") {
            return Err((1, format!("<{}> is the root element, not <annotation>", root.tag_name().name())));
        }
        let line = |node: Node| document.text_pos_at(node.range().start).row;
        let object = |node: Node| {
            let child = |node: Node<'_, '_>, name: &str| {
                let found = node.children().find(|c| c.has_tag_name(name));
                let text = found.and_then(|c| c.text()).map(|t| t.trim().to_string());
                text.ok_or_else(|| (line(node), format!("<{}> has no <{name}>", node.tag_name().name())))
            };
            let bounds = node.children().find(|c| c.has_tag_name("bndbox"));
            let bounds = bounds.ok_or_else(|| (line(node), "<object> has no <bndbox>".to_string()))?;
            let number = |name: &str| {
                let text = child(bounds, name)?;
                let value = text.parse::<f32>().ok().filter(|v| v.is_finite());
                value.ok_or_else(|| (line(bounds), format!("<{name}> is {text}, not a number")))
            };
            let [left, top] = [number("xmin")? - 1.0, number("ymin")? - 1.0];
            let [right, bottom] = [number("xmax")?, number("ymax")?];
            if right <= left || bottom <= top {
                return Err((line(bounds), "the box is empty".to_string()));
            }
            let difficult = child(node, "difficult").is_ok_and(|text| text == "1");
            Ok(Object { class: child(node, "name")?, bounds: [left, top, right, bottom], difficult, line: line(node) })
        };
        let objects = root.children().filter(|c| c.has_tag_name("object")).map(object);
        Ok(Annotation { objects: objects.collect::<std::result::Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "<annotation>\n<object>\n<name>dog</name><difficult>1</difficult>\n<bndbox>\n<xmin>1</xmin>\
        <ymin>11</ymin><xmax>20</xmax><ymax>30</ymax></bndbox>\n<part><name>head</name></part></object>\n</annotation>";

    #[test]
    fn an_object_is_read_with_its_box_from_zero() {
        let found = Annotation::parse(ONE).unwrap();
        let dog = Object { class: "dog".into(), bounds: [0.0, 10.0, 20.0, 30.0], difficult: true, line: 2 };
        assert_eq!(found.objects, [dog]);
        assert!(Annotation::parse("<annotation/>").unwrap().objects.is_empty());
    }

    #[test]
    fn errors_name_their_line() {
        let refused = |from: &str, to: &str| Annotation::parse(&ONE.replace(from, to)).unwrap_err();
        assert_eq!(refused("<xmax>20</xmax>", "<xmax>wide</xmax>"), (4, "<xmax> is wide, not a number".into()));
        assert_eq!(refused("<xmax>20</xmax>", ""), (4, "<bndbox> has no <xmax>".into()));
        assert_eq!(refused("<xmax>20</xmax>", "<xmax>0</xmax>"), (4, "the box is empty".into()));
        assert_eq!(refused("<name>dog</name>", "").0, 2);
        assert_eq!(refused("</annotation>", "</annotated>").0, 7);
        assert!(Annotation::parse("<html/>").unwrap_err().1.contains("html"));
        assert!(Annotation::parse("").is_err());
    }
}
