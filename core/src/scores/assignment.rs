//! The linear assignment problem, by the Hungarian method with shortest augmenting paths (Jonker and Volgenant).

/// The greatest sum of `profit(row, column)` when each of `rows` gets a column of its own; `rows <= columns`. O(rows^2 columns).
///
/// Rows join one by one. Potentials `u`, `v` keep all reduced costs `-profit - u - v` at zero or above and those of the chosen
/// pairs at zero, so that the cheapest way to fit a row in is a shortest path over rows that give up their column for another.
pub fn greatest(rows: usize, columns: usize, profit: &dyn Fn(usize, usize) -> i64) -> i64 {
    assert!(rows <= columns, "more rows than columns");
    // Column 0 stands for "none yet"; the others count from 1.
    let (mut u, mut v) = (vec![0i64; rows], vec![0i64; columns + 1]);
    let mut taken: Vec<Option<usize>> = vec![None; columns + 1];
    for row in 0..rows {
        let (mut least, mut before) = (vec![i64::MAX; columns + 1], vec![0; columns + 1]);
        let mut done = vec![false; columns + 1];
        taken[0] = Some(row);
        let mut at = 0;
        while let Some(i) = taken[at] {
            done[at] = true;
            let (mut step, mut next) = (i64::MAX, 0);
            for j in (1..=columns).filter(|j| !done[*j]) {
                let reduced = -profit(i, j - 1) - u[i] - v[j];
                if reduced < least[j] {
                    (least[j], before[j]) = (reduced, at);
                }
                if least[j] < step {
                    (step, next) = (least[j], j);
                }
            }
            for j in 0..=columns {
                match taken[j] {
                    Some(i) if done[j] => {
                        u[i] += step;
                        v[j] -= step;
                    }
                    _ if j > 0 && !done[j] => least[j] -= step,
                    _ => {}
                }
            }
            at = next;
        }
        // Back along the path: each column goes to the row before.
        while at != 0 {
            taken[at] = taken[before[at]];
            at = before[at];
        }
    }
    (1..=columns).filter_map(|j| taken[j].map(|i| profit(i, j - 1))).sum()
}
