//! What counts as blurred, dark, tiny and so on, and how sure that is.

use super::{LookKind, LookRow};
use crate::data::facts::PictureFacts;
use crate::jobs::copies::{CopyKind, CopyRow};
use crate::jobs::findings::Surveyed;
use std::collections::BTreeSet;

/// What more than this share of the pictures have is how the collection is: it is counted, not listed.
pub(super) const COMMON: f32 = 0.2;
/// So many pictures are never how a collection is.
pub(super) const FEW: f32 = 2.0;

/// A picture is blurred when its sharper edges are wider than this, in pixels at a short side of 256 at the most.
const BLURRED: f32 = 1.3;
/// The shortest side at which blur can be told: the edges of smaller pictures are as wide as their pixels.
const TELLS_BLUR: usize = 96;
/// A picture is dark when 99 % of it are darker than this, of 255, and bright when 95 % are brighter.
const DARK: f32 = 85.0;
const BRIGHT: f32 = 200.0;
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
        LookKind::NearDuplicate => {
            "Measured: resized, saved again, cropped by up to a tenth or mirrored; the best one has a green frame. Of copies put among photographs all were found, and what \
             was found besides were copies that are there, or the same thing photographed twice."
        }
        LookKind::Leak => {
            "Measured: copies of one picture in two splits (train, test, validation); as sure as copies are. A test on them measures memory."
        }
        LookKind::TwoLabels => {
            "Measured: copies of one picture with two labels; as sure as copies are. One of the labels is wrong, or the picture shows both."
        }
        LookKind::Blank => "A fact: grey values that deviate by less than 4 of 255.",
        LookKind::Blurred => {
            "Measured: not even the sharper edges are sharp. Of photographs blurred by 1.2 % of their short side 98 % or more were found, of such as they are less than 1 % were called so. \
             Pictures that were shaken in one direction only are mostly missed, and below 96 pixels it cannot be told."
        }
        LookKind::Dark => {
            "A fact: 99 % of it are darker than 85 of 255. All photographs that were exposed 4 stops too little were found; whether a dark one is a fault is yours to say."
        }
        LookKind::Bright => {
            "A fact: 95 % of it are brighter than 200 of 255. Over-exposed photographs that keep something dark are missed; a white thing before white is found."
        }
        LookKind::OddShape => "A fact: its sides are twice as unequal as usual here, or half as much.",
        LookKind::Tiny => "A fact: its short side is less than a third of the usual one, or less than 16 pixels.",
        LookKind::Grey => "A fact: red, green and blue differ by less than 6 of 255 in 99 % of it.",
        LookKind::Unlike => "A guess: in colours and light farther from its neighbours than the others are.",
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
        if let Some(blur) = q.blur.filter(|blur| !blank && facts.side >= TELLS_BLUR && *blur > BLURRED) {
            let why = format!("its sharper edges are {blur:.1} pixels wide at a short side of {}", facts.side);
            found.push((LookKind::Blurred, blur, why));
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
