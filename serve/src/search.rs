//! Images that are most like one of the run, or like one that was dropped onto the page.

use crate::subject::{Subject, View};
use pcp::data::decode;
use pcp_core::error::{Error, Result};
use pcp_core::matrix::{Matrix, dot, normalise};

/// Neighbours at the most.
pub const MOST: usize = 200;

/// The `count` rows with the greatest cosine to `query`, but not `skip`; of equals, the first.
pub fn like(features: &Matrix, query: &[f32], count: usize, skip: Option<usize>) -> Vec<(u32, f32)> {
    let rows = (0..features.rows).filter(|row| Some(*row) != skip);
    let mut all: Vec<(u32, f32)> = rows.map(|row| (row as u32, dot(features.row(row), query))).collect();
    // What is not a number is like nothing.
    let order = |a: &(u32, f32), b: &(u32, f32)| {
        let key = |x: f32| if x.is_nan() { f32::NEG_INFINITY } else { x };
        key(b.1).total_cmp(&key(a.1)).then(a.0.cmp(&b.0))
    };
    let count = count.min(MOST).min(all.len());
    if count > 0 && count < all.len() {
        all.select_nth_unstable_by(count - 1, order);
    }
    all.truncate(count);
    all.sort_by(order);
    all
}

/// The embeddings, or an error that says why there are none.
pub fn features(view: &View) -> Result<&Matrix> {
    view.features.as_deref().ok_or_else(|| {
        Error::usage("the run has no embeddings yet", "wait until it is finished: they are written at the end")
    })
}

/// The rows most like the picture in `bytes`, which the run's network embeds.
pub fn by_picture(subject: &Subject, bytes: &[u8], count: usize) -> Result<Vec<(u32, f32)>> {
    let view = subject.view()?;
    let features = features(&view)?;
    let image = decode::bytes(bytes)
        .map_err(|reason| Error::data(format!("the picture cannot be used: {reason}"), "drop another one"))?;
    let model = subject.model()?;
    let mut query = model.embed([image]).values;
    normalise(&mut query);
    if query.len() != features.dim {
        return Err(Error::data("the network does not fit the embeddings of the run", "train the run again"));
    }
    Ok(like(features, &query, count, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_come_first_as_by_sorting_all() {
        let features = Matrix::new(2, (0..50).flat_map(|i| [(i as f32 * 0.7).sin(), (i as f32 * 0.7).cos()]).collect());
        let query = features.row(7).to_vec();
        let mut slow: Vec<(f32, u32)> =
            (0..50u32).filter(|i| *i != 7).map(|i| (-dot(features.row(i as usize), &query), i)).collect();
        slow.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let rows: Vec<u32> = like(&features, &query, 9, Some(7)).iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, slow.iter().take(9).map(|(_, row)| *row).collect::<Vec<_>>());
        assert_eq!(like(&features, &query, 1000, None).len(), 50);
        assert_eq!(like(&features, &query, 1, None)[0].0, 7);
        assert!(like(&features, &query, 0, None).is_empty());
        assert!(like(&Matrix::new(2, vec![]), &query, 5, None).is_empty());
    }
}
