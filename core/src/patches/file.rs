//! What patches have learned as named arrays, for the files of models.

use super::second::{Second, SecondLayer};
use super::{PatchSettings, Patches};
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// An array's shape and values.
pub type Shaped = (Vec<usize>, Vec<f32>);

const FILTERS: &str = "filters";
const MEAN: &str = "second.mean";
const EVEN: &str = "second.even";
const ODD: &str = "second.odd";
const SECOND_FILTERS: &str = "second.filters";

impl Patches {
    /// The arrays, with `prefix` before their names.
    pub fn arrays(&self, prefix: &str) -> Vec<(String, Shaped)> {
        let matrix = |m: &Matrix| (vec![m.rows, m.dim], m.values.clone());
        let mut all = vec![(FILTERS, matrix(&self.filters))];
        if let Some(second) = self.second() {
            all.push((MEAN, (vec![second.mean.len()], second.mean.clone())));
            all.push((EVEN, matrix(&second.even)));
            all.push((ODD, matrix(&second.odd)));
            all.push((SECOND_FILTERS, matrix(&second.filters)));
        }
        all.into_iter().map(|(name, array)| (format!("{prefix}{name}"), array)).collect()
    }

    /// The reverse of [`arrays`](Self::arrays): `take` gives the array of a name. The settings must have been checked.
    pub fn from_arrays(
        settings: PatchSettings,
        side: usize,
        prefix: &str,
        take: &mut dyn FnMut(&str) -> Result<Shaped>,
    ) -> Result<Patches> {
        let (columns, second) = (2 * settings.centroids, settings.second.clone());
        let numbers = second.numbers_of(&settings);
        let mut matrix = |name: &str, rows: Option<usize>, dim: usize| {
            let name = format!("{prefix}{name}");
            let (shape, values) = take(&name)?;
            match shape[..] {
                [found, columns] if found > 0 && columns == dim && rows.is_none_or(|rows| rows == found) => {
                    Ok(Matrix { rows: found, dim, values })
                }
                _ => Err(other(&name)),
            }
        };
        let (rows, dim) = settings.filter_shape();
        let filters = matrix(FILTERS, Some(rows), dim)?;
        if second.centroids == 0 {
            return Ok(Patches::of_filters(settings, side, filters));
        }
        let even = matrix(EVEN, None, columns)?;
        let odds = numbers.checked_sub(even.rows).ok_or_else(|| other(&format!("{prefix}{EVEN}")))?;
        let odd = matrix(ODD, Some(odds), columns)?;
        let of_second = matrix(SECOND_FILTERS, Some(second.centroids), second.patch * second.patch * numbers)?;
        let name = format!("{prefix}{MEAN}");
        let (shape, mean) = take(&name)?;
        if shape != [columns] {
            return Err(other(&name));
        }
        let mut patches = Patches::of_filters(settings, side, filters);
        patches.second = Some(SecondLayer::new(Second { mean, even, odd, filters: of_second }, second));
        Ok(patches)
    }
}

fn other(name: &str) -> Error {
    Error::file(
        format!("{name} has another shape than the description says"),
        "use the file as it was written, or learn it again",
    )
}
