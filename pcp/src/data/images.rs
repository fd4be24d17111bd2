//! Images with their names: in memory, or read again from their files whenever they are needed.

use std::borrow::Cow;

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::memory_budget::MemoryBudget;
use super::origin::Origin;
use super::{Image, update_text};
use pcp_core::error::{Error, Result};
use pcp_core::peers::Team;

/// One training image and its stable id.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    /// Index in the full listing of the data set, training images first, unreadable files included: it never changes.
    pub id: u64,
    /// The picture.
    pub image: Cow<'a, Image>,
}

/// Images with their names, in the order of the data set. Row `r` is the `r`-th readable image.
#[derive(Clone, Debug, Default)]
pub struct Images {
    pub(super) store: Store,
    pub(super) ids: Vec<u64>,
    pub(super) names: Vec<String>,
    /// Where the rows of every process end, one after the other, where several processes have read the images.
    ends: Vec<usize>,
}

/// How the pixels are stored.
#[derive(Clone, Debug)]
pub(super) enum Store {
    /// In memory.
    InMemory(Vec<Image>),
    /// In their files.
    OnDisk(Files),
    /// Those from this row on in memory, the others, which other processes have, in their files.
    Shared(usize, Vec<Image>, Files),
}

/// Images in their files; digests and sums were computed when they were first read.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    pub origins: Vec<Origin>,
    side: Option<usize>,
    digests: Vec<[u8; 32]>,
    sums: PixelSums,
}

impl Default for Store {
    fn default() -> Self {
        Store::InMemory(Vec::new())
    }
}

/// Pixels, and per channel their sum and the sum of their squares: integers, hence exact in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PixelSums {
    pub pixels: u64,
    pub sum: [u64; 3],
    pub squares: [u64; 3],
}

impl PixelSums {
    fn of(image: &Image) -> Self {
        let mut sums = PixelSums { pixels: image.pixels.len() as u64 / 3, ..PixelSums::default() };
        for pixel in image.pixels.as_chunks::<3>().0 {
            for c in 0..3 {
                sums.sum[c] += u64::from(pixel[c]);
                sums.squares[c] += u64::from(pixel[c]) * u64::from(pixel[c]);
            }
        }
        sums
    }

    fn and(self, other: PixelSums) -> PixelSums {
        let add = |a: [u64; 3], b: [u64; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
        PixelSums {
            pixels: self.pixels + other.pixels,
            sum: add(self.sum, other.sum),
            squares: add(self.squares, other.squares),
        }
    }
}

/// A readable image of the listing: its id, name, origin, and its pixels or sums.
pub(super) struct ReadRow {
    pub id: u64,
    pub name: String,
    pub origin: Origin,
    pub seen: ReadImage,
}

/// A decoded image: its pixels if the memory budget allows it, else its digest and sums.
pub(super) struct ReadImage {
    /// The image, if it fitted into the memory budget.
    image: Option<Image>,
    /// Digest and sums; not computed if the budget has no limit and there are no other processes.
    noted: Option<Noted>,
    /// The process that has read it.
    reader: usize,
}

/// What is known of the pixels of an image: their digest and sums.
pub(super) type Noted = ([u8; 32], PixelSums);

impl ReadImage {
    /// Keeps the image if it fits into `budget`; otherwise only its digest and sums.
    pub fn new(id: u64, name: &str, image: Image, budget: &MemoryBudget) -> Self {
        let noted = (!budget.unlimited()).then(|| (digest(id, name, &image), PixelSums::of(&image)));
        let image = budget.take(image.pixels.len()).then_some(image);
        ReadImage { image, noted, reader: 0 }
    }

    /// An image that process `reader` has; this one keeps its pixels only if it is that process.
    pub fn shared(id: u64, name: &str, image: Image, budget: &MemoryBudget, reader: usize, team: &Team) -> Self {
        if !team.several() {
            return Self::new(id, name, image, budget);
        }
        let noted = Some((digest(id, name, &image), PixelSums::of(&image)));
        let image = (reader == team.rank() && budget.take(image.pixels.len())).then_some(image);
        ReadImage { image, noted, reader }
    }

    /// An image that another process has read.
    pub fn of_other(noted: Noted, reader: usize) -> Self {
        ReadImage { image: None, noted: Some(noted), reader }
    }

    /// Digest and sums, where they were computed.
    pub fn noted(&self) -> Option<&Noted> {
        self.noted.as_ref()
    }
}

impl Images {
    /// The images of `rows`, whose ids must be ascending; images that are read again are shrunk to a short side of `side`.
    pub(super) fn of(rows: Vec<ReadRow>, budget: &MemoryBudget, side: Option<usize>, team: &Team) -> Self {
        let mut out = Images::default();
        let (mut images, mut files) = (Vec::new(), Files { side, ..Files::default() });
        let (held, shared) = (budget.holds_all(), team.several());
        let mut ends = vec![0; team.count()];
        for (r, row) in rows.into_iter().enumerate() {
            debug_assert!(out.ids.last().is_none_or(|last| *last < row.id), "ids must grow");
            out.ids.push(row.id);
            out.names.push(row.name);
            ends[row.seen.reader..].fill(r + 1);
            if held {
                images.extend(row.seen.image);
            }
            if let Some((digest, own)) = row.seen.noted.filter(|_| shared || !held) {
                files.origins.push(row.origin);
                files.digests.push(digest);
                files.sums = files.sums.and(own);
            }
        }
        out.store = match (held, shared) {
            (true, false) => Store::InMemory(images),
            (true, true) => Store::Shared(team.rank().checked_sub(1).map_or(0, |before| ends[before]), images, files),
            (false, _) => Store::OnDisk(files),
        };
        out.ends = if shared { ends } else { Vec::new() };
        out
    }

    /// The process that has read row `r`.
    pub fn reader(&self, r: usize) -> usize {
        self.ends.partition_point(|end| *end <= r)
    }

    /// Adds an image in memory; ids must be ascending.
    pub fn push(&mut self, id: u64, name: String, image: Image) {
        debug_assert!(self.ids.last().is_none_or(|last| *last < id), "ids must grow");
        debug_assert_eq!(image.pixels.len(), image.width * image.height * 3);
        let Store::InMemory(images) = &mut self.store else { unreachable!("only images in memory are added to") };
        images.push(image);
        self.ids.push(id);
        self.names.push(name);
    }

    /// How many images.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The image of row `r` with its id; reads it again if it is not in memory.
    pub fn sample(&self, r: usize) -> Result<Sample<'_>> {
        let image = match &self.store {
            Store::InMemory(images) => Cow::Borrowed(&images[r]),
            Store::Shared(first, images, _) if (*first..first + images.len()).contains(&r) => {
                Cow::Borrowed(&images[r - first])
            }
            Store::OnDisk(files) | Store::Shared(_, _, files) => {
                let changed = |reason: &str| {
                    Error::data(
                        format!("{} could be read when the run began, and now it {reason}", self.names[r]),
                        "restore the file, then continue with --resume; or start another run",
                    )
                };
                let image = files.origins[r].read(files.side).map_err(|reason| changed(&reason))?;
                // Another picture can have the same size and time.
                if digest(self.ids[r], &self.names[r], &image) != files.digests[r] {
                    return Err(changed("has other pixels"));
                }
                Cow::Owned(image)
            }
        };
        Ok(Sample { id: self.ids[r], image })
    }

    /// The first `most` images.
    pub fn first(&self, most: usize) -> Result<Images> {
        let mut first = Images::default();
        for r in 0..self.len().min(most) {
            let Sample { id, image } = self.sample(r)?;
            first.push(id, self.names[r].clone(), image.into_owned());
        }
        Ok(first)
    }

    /// The short side that half of the images reach, by some of them; `None` without images.
    pub fn middle_side(&self) -> Option<usize> {
        const SOME: usize = 101;
        let rows = (0..self.len()).step_by(self.len().div_ceil(SOME).max(1));
        let side = |row: usize| self.sample(row).ok().map(|sample| sample.image.width.min(sample.image.height));
        let mut sides: Vec<usize> = rows.filter_map(side).collect();
        sides.sort_unstable();
        sides.get(sides.len() / 2).copied()
    }

    /// The id of every row.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// File (or record) name of every row.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Bytes of pixels in memory.
    pub fn bytes(&self) -> usize {
        match &self.store {
            Store::InMemory(images) | Store::Shared(_, images, _) => images.iter().map(|i| i.pixels.len()).sum(),
            Store::OnDisk(_) => 0,
        }
    }

    /// Bytes of all decoded pixels, in memory or not.
    pub fn decoded_bytes(&self) -> u64 {
        self.sums().pixels * 3
    }

    /// Whether the pixels are in memory.
    pub fn held(&self) -> bool {
        !matches!(self.store, Store::OnDisk(_))
    }

    /// The sums over all pixels.
    pub(super) fn sums(&self) -> PixelSums {
        match &self.store {
            Store::InMemory(images) => images.par_iter().map(PixelSums::of).reduce(PixelSums::default, PixelSums::and),
            Store::OnDisk(files) | Store::Shared(_, _, files) => files.sums,
        }
    }

    /// A hash of every row: name, id, dimensions and pixels.
    pub(super) fn digests(&self) -> Vec<[u8; 32]> {
        match &self.store {
            Store::InMemory(images) => {
                let one = |r: usize| digest(self.ids[r], &self.names[r], &images[r]);
                (0..self.len()).into_par_iter().map(one).collect()
            }
            Store::OnDisk(files) | Store::Shared(_, _, files) => files.digests.clone(),
        }
    }
}

fn digest(id: u64, name: &str, image: &Image) -> [u8; 32] {
    let mut hash = Sha256::new();
    update_text(&mut hash, name);
    for number in [id, image.width as u64, image.height as u64] {
        hash.update(number.to_le_bytes());
    }
    hash.update(&image.pixels);
    hash.finalize().into()
}
