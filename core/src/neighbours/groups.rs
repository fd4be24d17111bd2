//! The bank in groups of rows that point the same way.
//!
//! A query that meets the group nearest to it first knows at once about how near its k-th neighbour is, and few rows of the other groups
//! pass. And for a row `x` of a group with the mean `c` and the radius `r`, the greatest distance of its rows from `c`,
//! `q . x = q . c + q . (x - c) <= q . c + |q| r`: where this is below the k-th best, the whole group is passed over.

use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

use crate::dots::{Packed, StoreRows, WIDTH, products};
use crate::kmeans::{KMeans, kmeans};
use crate::matrix::{Matrix, dot};

/// Rows of a group, on average.
const SIZE: usize = 512;
/// Updates of the groups' means: they need not be the best ones.
const UPDATES: usize = 1;
/// The most of the rows' squared lengths that may be left around the means, as a share: rows without groups gain nothing.
const LEFT_OVER: f64 = 0.8;
/// Making groups compares every row with every mean, twice; fewer queries than this part of the bank would not gain as much.
const LEAST_QUERIES: usize = 12;

/// Where every row of the bank is, group by group.
pub struct Groups {
    /// The bank row of every place. A group begins with a panel; places that are left over have [`Groups::NONE`].
    pub places: Vec<u32>,
    /// The panels of every group.
    pub panels: Vec<Range<usize>>,
    means: Option<Means>,
}

/// What a product with any row of a group is bounded by.
struct Means {
    packed: Packed,
    radii: Vec<f32>,
}

impl Groups {
    /// No row.
    pub const NONE: u32 = u32::MAX;

    /// Groups of `rows` for as many `queries`; all rows are one group, in their order, where more would not pay.
    pub fn new(rows: &Matrix, queries: usize) -> Self {
        let pays = rows.rows >= 8 * SIZE && queries * LEAST_QUERIES >= rows.rows;
        let settings = KMeans { iterations: UPDATES, ..KMeans::new(rows.rows / SIZE) };
        let whole = || rows.values.par_chunks(rows.dim).map(|row| f64::from(dot(row, row))).sum::<f64>();
        // Rows with NaN have no clusters.
        match pays.then(|| kmeans(rows, &settings)) {
            Some(Ok(clusters)) if clusters.objective < LEFT_OVER * whole() => {
                Self::of(rows, &clusters.assignment, &clusters.centroids)
            }
            _ => Groups {
                places: (0..rows.rows as u32).collect(),
                panels: std::iter::once(0..rows.rows.div_ceil(WIDTH)).collect(),
                means: None,
            },
        }
    }

    fn of(rows: &Matrix, assignment: &[u32], means: &Matrix) -> Self {
        let mut members = vec![Vec::new(); means.rows];
        for (row, group) in assignment.iter().enumerate() {
            members[*group as usize].push(row as u32);
        }
        let (mut places, mut panels) = (Vec::with_capacity(rows.rows + means.rows * WIDTH), Vec::new());
        for members in &members {
            let first = places.len() / WIDTH;
            places.extend_from_slice(members);
            places.resize(places.len().next_multiple_of(WIDTH), Self::NONE);
            panels.push(first..places.len() / WIDTH);
        }
        // The greatest rounding errors of a product and of a distance.
        let error = 4.0 * rows.dim as f32 * f32::EPSILON;
        let radius = |(group, members): (usize, &Vec<u32>)| {
            let mean = means.row(group);
            let squared =
                |row: &u32| -> f32 { rows.row(*row as usize).iter().zip(mean).map(|(x, c)| (x - c) * (x - c)).sum() };
            let radius = members.iter().map(squared).fold(0.0, f32::max).sqrt();
            radius + error * (radius + dot(mean, mean).sqrt())
        };
        let radii = members.par_iter().enumerate().map(radius).collect();
        Groups { places, panels, means: Some(Means { packed: Packed::new(&means.values, means.dim), radii }) }
    }

    /// The rows of `matrix` by place, zeros where there is none.
    pub fn in_places<'a>(&self, matrix: &'a Matrix) -> Cow<'a, Matrix> {
        if self.means.is_none() {
            return Cow::Borrowed(matrix);
        }
        let mut values = vec![0.0; self.places.len() * matrix.dim];
        values.par_chunks_mut(matrix.dim).zip(&self.places).for_each(|(to, row)| {
            if *row != Self::NONE {
                to.copy_from_slice(matrix.row(*row as usize));
            }
        });
        Cow::Owned(Matrix { rows: self.places.len(), dim: matrix.dim, values })
    }

    /// For every one of the `queries`, rows of `dim`, its nearest group, and for every group what no product with one of its rows exceeds,
    /// `[query][group]`.
    pub fn reaches(&self, queries: &[f32], dim: usize) -> (Vec<usize>, Vec<f32>) {
        let (served, groups) = (queries.len() / dim, self.panels.len());
        let Some(means) = &self.means else { return (vec![0; served], vec![f32::INFINITY; served]) };
        let mut reaches = vec![0.0; served * groups];
        let all: Vec<u32> = (0..served as u32).collect();
        products(
            queries,
            &all,
            &means.packed,
            0..groups.div_ceil(WIDTH),
            &mut StoreRows { out: &mut reaches, columns: groups, stride: groups },
        );
        let nearest = |(reaches, query): (&mut [f32], &[f32])| {
            let nearest = (0..groups).fold(0, |best, g| if reaches[g] > reaches[best] { g } else { best });
            let length = dot(query, query).sqrt();
            reaches.iter_mut().zip(&means.radii).for_each(|(reach, radius)| *reach += length * radius);
            nearest
        };
        (reaches.chunks_exact_mut(groups).zip(queries.chunks_exact(dim)).map(nearest).collect(), reaches)
    }
}
