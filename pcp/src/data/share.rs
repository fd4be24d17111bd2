//! How processes divide a batch: of every part of it, each computes with a share of the rows.

use pcp_core::matrix::Matrix;
use pcp_core::peers::{Team, share};
use std::ops::Range;

/// The rows of a batch that this process computes with.
#[derive(Clone, Debug)]
pub struct BatchShare {
    /// Equal parts of the batch, one after the other, each with batch-norm statistics of its own.
    pub parts: usize,
    /// The processes and the rows of a part over all of them; `None` where this process has all rows, however many.
    divided: Option<(Team, usize)>,
}

/// A process alone has all rows of all parts.
impl From<usize> for BatchShare {
    fn from(parts: usize) -> Self {
        BatchShare { parts, divided: None }
    }
}

impl BatchShare {
    /// The share of this process in `rows` rows of `parts` equal parts. Parts with fewer rows than there are processes are not
    /// divided: everyone computes the whole batch then.
    pub fn new(rows: usize, parts: usize, team: &Team) -> BatchShare {
        let each = rows / parts.max(1);
        let divided = (team.several() && each >= team.count()).then(|| (team.clone(), each));
        BatchShare { parts, divided }
    }

    /// The processes that have the other rows.
    pub fn team(&self) -> Option<&Team> {
        self.divided.as_ref().map(|(team, _)| team)
    }

    /// Rows of a part over all processes, where this one has `here`.
    pub fn rows_of_part(&self, here: usize) -> usize {
        self.divided.as_ref().map_or(here, |(_, each)| *each)
    }

    /// The share in the first half of the parts.
    pub fn half(&self) -> BatchShare {
        BatchShare { parts: self.parts / 2, divided: self.divided.clone() }
    }

    /// The rows of process `rank` in a batch of `rows`.
    pub fn rows_of(&self, rank: usize, rows: usize) -> Vec<usize> {
        match &self.divided {
            None => (0..rows).collect(),
            Some((team, each)) => {
                let own = share(*each, rank, team.count());
                (0..self.parts).flat_map(|part| own.clone().map(move |row| part * each + row)).collect()
            }
        }
    }

    /// The row of the batch that is row `here` of this process.
    pub fn row(&self, here: usize) -> usize {
        match &self.divided {
            None => here,
            Some((team, each)) => {
                let own = team.own(*each);
                here / own.len() * each + own.start + here % own.len()
            }
        }
    }

    /// The rows of all processes, in the order of the batch, from those of this one.
    pub fn gathered(&self, own: Matrix) -> Matrix {
        let Some((team, each)) = &self.divided else { return own };
        let dim = own.dim;
        let counts: Vec<usize> = team.shares(*each).iter().map(|rows| rows * self.parts * dim).collect();
        let all = team.all_gather_values(&own.values, &counts);
        let mut values = vec![0.0; all.len()];
        let mut from = 0;
        for rank in 0..team.count() {
            let Range { start, end } = share(*each, rank, team.count());
            for part in 0..self.parts {
                let to = (part * each + start) * dim;
                let len = (end - start) * dim;
                values[to..to + len].copy_from_slice(&all[from..from + len]);
                from += len;
            }
        }
        Matrix { rows: self.parts * each, dim, values }
    }

    /// The rows of this process when the batch is put into another order: row i of it is what row `order[i]` was. `own` has `dim` values for each
    /// of its rows before.
    pub fn rearranged(&self, own: Vec<f32>, dim: usize, order: &[usize]) -> Vec<f32> {
        let Some((team, each)) = &self.divided else {
            return order.iter().flat_map(|i| &own[i * dim..(i + 1) * dim]).copied().collect();
        };
        let route = Route::new(order.len(), self, team, |row| team.holder(order[row] % each, *each));
        let here = team.own(*each);
        let place = |row: usize| order[row] / each * here.len() + order[row] % each - here.start;
        let sent = route.sends.iter().flat_map(|row| &own[place(*row) * dim..(place(*row) + 1) * dim]).copied();
        route.moved(team, &sent.collect::<Vec<_>>(), dim)
    }

    /// Of `values`, `dim` for every row of the batch, those of this process.
    pub fn own_values(&self, values: Vec<f32>, dim: usize) -> Vec<f32> {
        match &self.divided {
            None => values,
            Some((team, each)) => {
                let own = team.own(*each);
                let part = |part: usize| &values[(part * each + own.start) * dim..(part * each + own.end) * dim];
                (0..self.parts).flat_map(part).copied().collect()
            }
        }
    }
}

/// Which rows of a batch go where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The rows that this process sends, one receiver after the other, and how many each receiver gets.
    pub sends: Vec<usize>,
    sent: Vec<usize>,
    /// For every row that it receives, one sender after the other, its place; and how many each sender gives.
    places: Vec<usize>,
    received: Vec<usize>,
}

impl Route {
    /// The route of a batch of `rows`; `holder` gives the process that has a row.
    pub fn new(rows: usize, share: &BatchShare, team: &Team, holder: impl Fn(usize) -> usize) -> Route {
        let mut route = Route { sends: Vec::new(), sent: Vec::new(), places: Vec::new(), received: Vec::new() };
        let own = share.rows_of(team.rank(), rows);
        for rank in 0..team.count() {
            let before = (route.sends.len(), route.places.len());
            let theirs = share.rows_of(rank, rows);
            route.sends.extend(theirs.into_iter().filter(|row| holder(*row) == team.rank()));
            let from = own.iter().enumerate().filter(|(_, row)| holder(**row) == rank);
            route.places.extend(from.map(|(place, _)| place));
            route.sent.push(route.sends.len() - before.0);
            route.received.push(route.places.len() - before.1);
        }
        route
    }

    /// How many rows this process receives.
    pub fn received(&self) -> usize {
        self.places.len()
    }

    /// Sends rows of `dim` values, in the order of `sends`, and returns those that came, each at its place.
    pub fn moved(&self, team: &Team, values: &[f32], dim: usize) -> Vec<f32> {
        let scaled = |counts: &[usize]| counts.iter().map(|n| n * dim).collect::<Vec<_>>();
        let from = team.all_to_all_values(values, &scaled(&self.sent), &scaled(&self.received));
        let mut moved = vec![0.0; from.len()];
        for (row, place) in from.chunks_exact(dim.max(1)).zip(&self.places) {
            moved[place * dim..(place + 1) * dim].copy_from_slice(row);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_core::cancel::Cancel;
    use pcp_core::peers::parts::together;

    #[test]
    fn shares_of_all_processes_are_the_batch() {
        for (rows, parts) in [(12, 1), (12, 2), (14, 2), (16, 4), (6, 2), (4, 4)] {
            let all = Matrix::new(3, (0..rows * 3).map(|i| i as f32).collect());
            let found = together(3, |peers| {
                let team = Team::new(peers, Cancel::default());
                let share = BatchShare::new(rows, parts, &team);
                let own = share.own_values(all.values.clone(), 3);
                let places: Vec<usize> = (0..own.len() / 3).map(|here| share.row(here)).collect();
                assert_eq!(places, share.rows_of(team.rank(), rows));
                (places, share.gathered(Matrix::new(3, own)))
            });
            assert!(found.iter().all(|(_, gathered)| *gathered == all), "{rows} {parts}");
            let mut places: Vec<usize> = found.into_iter().flat_map(|(places, _)| places).collect();
            places.sort_unstable();
            if rows / parts < 3 {
                assert_eq!(places.len(), 3 * rows, "everyone has all");
            } else {
                assert_eq!(places, (0..rows).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_process_alone_has_everything() {
        let share = BatchShare::new(8, 2, &Team::default());
        let all = Matrix::new(2, (0..16).map(|i| i as f32).collect());
        assert_eq!(share.own_values(all.values.clone(), 2), all.values);
        assert_eq!((share.gathered(all.clone()), share.row(5), share.rows_of_part(4)), (all, 5, 4));
        assert_eq!((share.half().parts, share.rows_of(0, 3), share.team().is_none()), (1, vec![0, 1, 2], true));
    }

    #[test]
    fn every_row_arrives_once_where_it_is_computed() {
        for (rows, parts) in [(12, 2), (9, 1), (16, 4), (4, 2)] {
            let found = together(3, |peers| {
                let team = Team::new(peers, Cancel::default());
                let share = BatchShare::new(rows, parts, &team);
                let route = Route::new(rows, &share, &team, |row| row * 7 % 3);
                assert!(route.sends.iter().all(|row| row * 7 % 3 == team.rank()), "it sends what it has");
                let sends: Vec<u32> = route.sends.iter().map(|row| *row as u32).collect();
                let came = team.all_to_all_values(&sends, &route.sent, &route.received);
                let mut rows_here = vec![u32::MAX; came.len()];
                came.iter().zip(&route.places).for_each(|(row, place)| rows_here[*place] = *row);
                let own: Vec<u32> = share.rows_of(team.rank(), rows).iter().map(|row| *row as u32).collect();
                (rows_here, own)
            });
            assert!(found.iter().all(|(came, own)| came == own), "{rows} {parts} {found:?}");
        }
    }

    #[test]
    fn another_order_is_that_of_one_process() {
        for (rows, parts) in [(12, 2), (16, 4), (9, 1), (4, 2)] {
            let order: Vec<usize> = (0..rows).map(|i| (i * 5 + 3) % rows).collect();
            let all: Vec<f32> = (0..rows * 2).map(|i| i as f32).collect();
            let alone: Vec<f32> = BatchShare::from(parts).rearranged(all.clone(), 2, &order);
            let found = together(3, |peers| {
                let share = BatchShare::new(rows, parts, &Team::new(peers, Cancel::default()));
                let own = share.rearranged(share.own_values(all.clone(), 2), 2, &order);
                share.gathered(Matrix::new(2, own)).values
            });
            assert!(found.iter().all(|found| *found == alone), "{rows} {parts}");
        }
    }
}
