//! k-means whose assignments are divided among processes. All of them have all rows, and find the same clusters as one alone, to the bit.

use super::{Assign, Clusters, KMeans, Searcher, kmeans_by, kmeans_with};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::peers::Peers;

/// Searches the clusters of some rows, and learns those of the others from their processes.
struct SharedSearch<'a> {
    own: Searcher<'a>,
    rows: usize,
    peers: &'a dyn Peers,
}

impl Assign for SharedSearch<'_> {
    fn assign(&mut self, centroids: &Matrix, repaired: &[(usize, usize)]) -> Result<Vec<u32>> {
        let own = self.own.assign(centroids, repaired)?;
        Ok(self.peers.all_gather_values(&own, &self.peers.shares(self.rows)))
    }
}

/// As [`kmeans_with`]; every one of `peers` searches the nearest centroids of its share of the rows.
pub fn kmeans_among(
    peers: &dyn Peers,
    features: &Matrix,
    settings: &KMeans,
    on_iteration: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Clusters> {
    // Rows fewer than processes are not worth dividing.
    if peers.count() == 1 || features.rows < peers.count() {
        return kmeans_with(features, settings, on_iteration);
    }
    let part = features.select_rows(&peers.own(features.rows).collect::<Vec<_>>());
    let own = Searcher::new(&part, features.rows, settings.k, settings.search);
    kmeans_by(features, settings, &mut SharedSearch { own, rows: features.rows, peers }, on_iteration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kmeans::{Search, kmeans};
    use crate::peers::parts::together;
    use crate::testing::blobs;

    #[test]
    fn any_number_of_processes_finds_the_same_clusters_to_the_bit() {
        let rows = blobs(9, 40, 12, 0.3, 5).normalised();
        for (k, search) in [(1, Search::Exact), (7, Search::Exact), (90, Search::Exact), (120, Search::Cells)] {
            let settings = KMeans { seed: 3, iterations: 6, search, ..KMeans::new(k) };
            let alone = kmeans(&rows, &settings).unwrap();
            for count in [1, 2, 3, 4] {
                let found = together(count, |peers| kmeans_among(&*peers, &rows, &settings, &mut |_| Ok(())).unwrap());
                assert!(found.iter().all(|clusters| *clusters == alone), "{k} clusters, {count} processes");
            }
        }
    }

    #[test]
    fn fewer_rows_than_processes_and_too_many_clusters() {
        let rows = blobs(1, 2, 3, 0.1, 1);
        let found = together(4, |peers| kmeans_among(&*peers, &rows, &KMeans::new(2), &mut |_| Ok(())).unwrap());
        assert!(found.iter().all(|clusters| *clusters == kmeans(&rows, &KMeans::new(2)).unwrap()));
        assert!(together(2, |peers| kmeans_among(&*peers, &rows, &KMeans::new(3), &mut |_| Ok(())).is_err())[1]);
    }
}
