//! Scatter plots of points, coloured by group, with a legend, as SVG and as PNG.

mod boxes;
mod canvas;
mod glyphs;

pub use boxes::{Boxed, boxed};

use canvas::Canvas;
use pcp_core::error::{Error, Result};
use std::fmt::Write;

/// Side of the plot, the margin around it, and the height of a line of the legend, in pixels.
const FIELD: f64 = 840.0;
const MARGIN: f64 = 30.0;
const LINE: f64 = 22.0;
/// Font size in the SVG.
const LETTERS: f64 = 14.0;
/// The most columns of the legend, and the most letters of a name in it.
const COLUMNS: usize = 3;
const NAME: usize = 22;
/// Opacity of a dot.
const OPACITY: f32 = 0.8;
/// The colour of points without groups.
const PLAIN: [u8; 3] = [60, 90, 160];

/// Points in groups.
pub struct Scatter<'a> {
    /// Two coordinates each.
    pub points: &'a [[f32; 2]],
    /// The group of every point, and the groups' names; `None` draws all points in one colour, without a legend.
    pub groups: Option<(&'a [u32], &'a [String])>,
}

/// A dot or a line of the legend, in pixels.
struct Dot {
    x: f64,
    y: f64,
    colour: [u8; 3],
}

/// Positions of all parts of the plot.
struct ScatterLayout {
    width: f64,
    dots: Vec<Dot>,
    radius: f64,
    legend: Vec<(Dot, String)>,
}

impl Scatter<'_> {
    /// As an SVG file.
    pub fn svg(&self) -> String {
        let layout = self.layout();
        let (width, height) = (layout.width, FIELD + 2.0 * MARGIN);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        let mut put = |text: String| out.push_str(&text);
        put(format!("<g fill-opacity=\"{OPACITY}\">\n"));
        for Dot { x, y, colour } in &layout.dots {
            put(format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"{}\"/>\n",
                layout.radius,
                hex(*colour)
            ));
        }
        put(format!("</g>\n<g font-family=\"sans-serif\" font-size=\"{LETTERS}\" fill=\"#222222\">\n"));
        for (Dot { x, y, colour }, name) in &layout.legend {
            put(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{}\"/>", hex(*colour)));
            put(format!("<text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n", x + 12.0, y + 5.0, escaped(name)));
        }
        put("</g>\n</svg>\n".to_string());
        out
    }

    /// As a PNG file. Its letters are those of ASCII; others become question marks.
    pub fn png(&self) -> Result<Vec<u8>> {
        let layout = self.layout();
        let mut canvas = Canvas::new(layout.width as usize, (FIELD + 2.0 * MARGIN) as usize);
        for Dot { x, y, colour } in &layout.dots {
            canvas.dot(*x as f32, *y as f32, layout.radius as f32, *colour, OPACITY);
        }
        for (Dot { x, y, colour }, name) in &layout.legend {
            canvas.dot(*x as f32, *y as f32, 5.0, *colour, 1.0);
            canvas.text(*x as usize + 12, *y as usize - 7, name, [34; 3]);
        }
        canvas.png().map_err(|e| Error::file(format!("the picture: {e}"), "please report this"))
    }

    fn layout(&self) -> ScatterLayout {
        let (groups, names) = self.groups.unwrap_or((&[], &[]));
        // One scale for both axes, so that distances are shown truly.
        let bounds = |c: usize| {
            let values = self.points.iter().map(|p| f64::from(p[c])).filter(|v| v.is_finite());
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
        };
        let (x, y) = (bounds(0), bounds(1));
        let extent = (x.1 - x.0).max(y.1 - y.0);
        let scale = if extent > 0.0 && extent.is_finite() { FIELD / extent } else { 0.0 };
        let place = |v: f32, (low, high): (f64, f64)| {
            let from_middle = (f64::from(v) - (low + high) / 2.0) * scale;
            MARGIN + FIELD / 2.0 + if from_middle.is_finite() { from_middle } else { 0.0 }
        };
        let colour = |group: usize| if names.is_empty() { PLAIN } else { colour(group, names.len()) };
        let dot = |(i, p): (usize, &[f32; 2])| {
            let group = groups.get(i).map_or(0, |g| *g as usize);
            // y grows upwards.
            Dot { x: place(p[0], x), y: place(-p[1], (-y.1, -y.0)), colour: colour(group) }
        };
        let dots = self.points.iter().enumerate().map(dot).collect();

        let lines = (FIELD / LINE) as usize;
        let shown = if names.len() > COLUMNS * lines { COLUMNS * lines - 1 } else { names.len() };
        let mut texts: Vec<(usize, String)> = names[..shown].iter().map(|n| shortened(n)).enumerate().collect();
        if shown < names.len() {
            texts.push((shown, format!("and {} more", names.len() - shown)));
        }
        let longest = texts.iter().map(|(_, t)| t.chars().count()).max().unwrap_or(0);
        let column = 28.0 + (longest * canvas::ADVANCE) as f64;
        let legend_x = FIELD + 2.0 * MARGIN;
        let entry = |(i, text): (usize, String)| {
            let (x, y) = (legend_x + (i / lines) as f64 * column, MARGIN + LINE * ((i % lines) as f64 + 0.5));
            (Dot { x, y, colour: colour(i) }, text)
        };
        let columns = texts.len().div_ceil(lines);
        ScatterLayout {
            width: (legend_x + columns as f64 * column).ceil(),
            dots,
            radius: (110.0 / (self.points.len().max(1) as f64).sqrt()).clamp(1.5, 5.0),
            legend: texts.into_iter().map(entry).collect(),
        }
    }
}

/// A name, shortened to fit into the legend.
fn shortened(name: &str) -> String {
    match name.chars().count() > NAME {
        true => name.chars().take(NAME - 3).chain("...".chars()).collect(),
        false => name.to_string(),
    }
}

/// Colour `i` of `n`: hues around the circle, with alternating lightness.
pub fn colour(i: usize, n: usize) -> [u8; 3] {
    let (hue, lightness) = (6.0 * (i % n.max(1)) as f64 / n.max(1) as f64, [0.42, 0.62, 0.32][i % 3]);
    let chroma = (1.0 - (2.0 * lightness - 1.0f64).abs()) * 0.75;
    let second = chroma * (1.0 - (hue % 2.0 - 1.0).abs());
    let [r, g, b] = match hue as usize {
        0 => [chroma, second, 0.0],
        1 => [second, chroma, 0.0],
        2 => [0.0, chroma, second],
        3 => [0.0, second, chroma],
        4 => [second, 0.0, chroma],
        _ => [chroma, 0.0, second],
    };
    [r, g, b].map(|c| ((c + lightness - chroma / 2.0) * 255.0).round() as u8)
}

fn hex(colour: [u8; 3]) -> String {
    colour.iter().fold("#".to_string(), |mut text, c| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{c:02x}");
        text
    })
}

/// `text` escaped for XML; characters that XML does not allow are left out.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(png: &[u8]) -> image::RgbImage {
        image::load_from_memory(png).unwrap().to_rgb8()
    }

    #[test]
    fn dots_lie_where_they_should_in_their_colours() {
        let names = ["a".to_string(), "b".to_string()];
        let points = [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]];
        let scatter = Scatter { points: &points, groups: Some((&[0, 1, 1], &names)) };
        let png = opened(&scatter.png().unwrap());
        let at = |x: f64, y: f64| png.get_pixel(x as u32, y as u32).0;
        let faded = |c: [u8; 3]| c.map(|c| (f32::from(c) * OPACITY + 255.0 * (1.0 - OPACITY)).round() as u8);
        let middle = MARGIN + FIELD / 2.0;
        assert_eq!(at(MARGIN, middle + FIELD / 4.0), faded(colour(0, 2)));
        assert_eq!(at(MARGIN + FIELD, middle + FIELD / 4.0), faded(colour(1, 2)));
        assert_eq!(at(middle, middle - FIELD / 4.0), faded(colour(1, 2)), "upwards is up");
        assert_eq!(at(middle, middle), [255; 3]);
        let svg = scatter.svg();
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(svg.contains("cx=\"30.0\" cy=\"660.0\"") && svg.contains(">b</text>"), "{svg}");
    }

    #[test]
    fn names_are_escaped() {
        let names = ["<script>alert(\"x\")</script>".to_string(), "R&D 'ä' \u{1} Ж".into()];
        let scatter = Scatter { points: &[[0.0, 0.0]; 2], groups: Some((&[0, 1], &names)) };
        let svg = scatter.svg();
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"), "{svg}");
        assert!(svg.contains("R&amp;D &#39;ä&#39;  Ж"), "{svg}");
        scatter.png().unwrap();
    }

    #[test]
    fn no_point_one_point_and_nan() {
        for points in [&[][..], &[[3.0, 4.0]], &[[f32::NAN, 1.0], [0.0, f32::INFINITY]]] {
            let scatter = Scatter { points, groups: None };
            assert_eq!(opened(&scatter.png().unwrap()).height(), 900);
            assert!(!scatter.svg().contains("NaN") && !scatter.svg().contains("inf"));
        }
    }

    #[test]
    fn a_long_legend_is_shortened() {
        let names: Vec<String> = (0..1000).map(|i| format!("class number {i} with a long name")).collect();
        let of: Vec<u32> = (0..1000).collect();
        let scatter = Scatter { points: &vec![[0.0, 1.0]; 1000], groups: Some((&of, &names)) };
        let svg = scatter.svg();
        assert!(svg.contains("and 887 more") && svg.contains("class number 3 with..."), "{svg}");
        assert!(opened(&scatter.png().unwrap()).width() < 2000);
    }

    #[test]
    fn colours_differ() {
        let colours: Vec<_> = (0..20).map(|i| colour(i, 20)).collect();
        assert!((0..20).all(|i| (0..i).all(|j| colours[i] != colours[j])), "{colours:?}");
    }
}
