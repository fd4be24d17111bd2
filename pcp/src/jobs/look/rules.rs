//! What counts as blurred, dark, tiny and so on, and how sure that is.

use super::{LookKind, LookRow};
use crate::data::facts::PictureFacts;
use crate::jobs::copies::{CopyKind, CopyRow};
use crate::jobs::findings::Surveyed;
use std::collections::BTreeSet;

/// What more than this share of the pictures have is how the collection is: it is counted, not listed.
pub(super) const COMMON: f32 = 0.2;

/// A picture is blurred when its sharper edges are wider than this, in pixels at a short side of 256; and when it is smaller, than this in its own pixels.
const BLURRED: f32 = 2.2;
const BLURRED_SMALL: f32 = 1.5;
/// The short side from which the first limit holds.
const SMALL: usize = 128;
/// A picture is dark when 99 % of it are darker than this, of 255, and bright when 95 % are brighter.
const DARK: f32 = 70.0;
const BRIGHT: f32 = 232.0;
/// A picture is blank when its grey values deviate by less than this.
const BLANK: f32 = 4.0;
/// A picture is grey when 99 % of its pixels have less colour than this.
const GREY: f32 = 6.0;
/// A shape is odd when its sides are this many times as unequal as usual, or as equal; and a size tiny when the short side is this part of the usual one.
const ODD: f32 = 2.0;
const TINY: f32 = 1.0 / 3.0;
/// A short side below which a picture is tiny, whatever is usual.
const TINIEST: usize = 16;

/// Whether a finding depends on what is usual in the collection.
pub(super) fn is_relative(kind: LookKind) -> bool {
    matches!(
        kind,
        LookKind::Blank
            | LookKind::Blurred
            | LookKind::Dark
            | LookKind::Bright
            | LookKind::OddShape
            | LookKind::Tiny
            | LookKind::Grey
    )
}

pub(super) fn about(kind: LookKind) -> &'static str {
    match kind {
        LookKind::Broken => "A fact: the file cannot be read.",
        LookKind::Duplicate => "A fact: the same file, or the same pixels.",
        LookKind::NearDuplicate => "Measured.",
        LookKind::Leak => "Measured.",
        LookKind::TwoLabels => "Measured.",
        LookKind::Blank => "A fact: nearly one colour.",
        LookKind::Blurred => "Measured.",
        LookKind::Dark => "Measured.",
        LookKind::Bright => "Measured.",
        LookKind::OddShape => "A fact.",
        LookKind::Tiny => "A fact.",
        LookKind::Grey => "A fact.",
    }
}

/// What is usual in a collection.
pub(super) struct Usual {
    /// Median of the long side over the short one.
    shape: f32,
    /// Median of the short side.
    short: f32,
}

impl Usual {
    pub(super) fn of(facts: &[PictureFacts]) -> Usual {
        let median = |of: &dyn Fn(&PictureFacts) -> f32| {
            let mut values: Vec<f32> = facts.iter().map(of).collect();
            values.sort_unstable_by(f32::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(1.0)
        };
        Usual { shape: median(&shape), short: median(&|facts| short(facts) as f32) }
    }

    /// What is wrong with a picture: the finding, how far it is beyond the limit, and why.
    pub(super) fn judge(&self, facts: &PictureFacts) -> Vec<(LookKind, f32, String)> {
        let q = &facts.quality;
        let mut found = Vec::new();
        let blank = q.contrast < BLANK;
        if blank {
            found.push((LookKind::Blank, -q.contrast, format!("grey values deviate by {:.1} of 255", q.contrast)));
        }
        let limit = if facts.side < SMALL { BLURRED_SMALL } else { BLURRED * facts.side as f32 / 256.0 };
        if let Some(blur) = q.blur.filter(|blur| !blank && *blur > limit) {
            let why = format!("its sharper edges are {blur:.1} pixels wide at a short side of {}", facts.side);
            found.push((LookKind::Blurred, blur / limit, why));
        }
        if q.high < DARK {
            found.push((LookKind::Dark, -q.high, format!("99 % of it are darker than {:.0} of 255", q.high + 1.0)));
        }
        if q.low > BRIGHT {
            found.push((LookKind::Bright, q.low, format!("95 % of it are brighter than {:.0} of 255", q.low - 1.0)));
        }
        if q.colour < GREY {
            let why = format!("red, green and blue differ by at most {:.0} of 255 in 99 % of it", q.colour);
            found.push((LookKind::Grey, -q.colour, why));
        }
        let shape = shape(facts);
        let unlike = (shape / self.shape).max(self.shape / shape);
        if unlike >= ODD {
            let why = format!("{}: its sides are 1 to {shape:.1}, usual is 1 to {:.1}", facts.size, self.shape);
            found.push((LookKind::OddShape, unlike, why));
        }
        let short = short(facts);
        if (short as f32) < TINY * self.short || short < TINIEST {
            let why = format!("{}: the usual short side is {:.0}", facts.size, self.short);
            found.push((LookKind::Tiny, -(short as f32), why));
        }
        found
    }
}

fn short(facts: &PictureFacts) -> usize {
    facts.size.width.min(facts.size.height)
}

fn shape(facts: &PictureFacts) -> f32 {
    facts.size.width.max(facts.size.height) as f32 / short(facts).max(1) as f32
}

/// Findings about copies: who is there twice, in two splits, with two labels. `places` are the pictures of `copies`.
pub(super) fn of_copies(surveyed: &Surveyed, copies: &[CopyRow], places: &[usize]) -> Vec<LookRow> {
    let mut found = Vec::new();
    let mut start = 0;
    for group in copies.chunk_by(|a, b| a.group == b.group) {
        let places = &places[start..start + group.len()];
        start += group.len();
        let splits: Vec<Option<&'static str>> =
            places.iter().map(|at| surveyed.pictures.split_name(surveyed.rows[*at])).collect();
        let in_splits: BTreeSet<&str> = splits.iter().flatten().copied().collect();
        let labels: BTreeSet<&str> = group.iter().filter_map(|row| row.label.as_deref()).collect();
        for ((row, at), split) in group.iter().zip(places).zip(&splits) {
            let mut add = |finding: LookKind, why: String| {
                let file = row.file.clone();
                found.push(LookRow {
                    finding,
                    group: Some(row.group),
                    file,
                    why,
                    row: *at,
                    beyond: -(row.group as f32),
                });
            };
            let best = &group[0].file;
            match row.copy {
                CopyKind::Best => {}
                copy if copy.is_exact() => add(LookKind::Duplicate, format!("{copy} as {best}")),
                copy => add(LookKind::NearDuplicate, format!("{copy}; likeness {:.2} with {best}", row.likeness)),
            }
            if let (Some(split), true) = (split, in_splits.len() > 1) {
                let others: Vec<&str> = in_splits.iter().copied().filter(|other| other != split).collect();
                add(LookKind::Leak, format!("in {split}; a copy is in {}", others.join(" and ")));
            }
            if let (Some(label), true) = (&row.label, labels.len() > 1) {
                let others: Vec<&str> = labels.iter().copied().filter(|other| other != label).collect();
                add(LookKind::TwoLabels, format!("called {label}; a copy is called {}", others.join(" and ")));
            }
        }
    }
    found
}
