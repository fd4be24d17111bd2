//! Check values, a plain implementation and properties.

use super::*;
use proptest::prelude::*;

const ALPHA: f64 = 0.8;
const PLAIN: Rules = Rules { gamma: Some(0.5), ..Rules::WHOLE };
const VOTES: Votes = Votes { alpha: ALPHA, lower: 0.0, upper: 3.0 };

/// A history of 15 clusterings of two samples that agree at the given steps h = 1..15 only.
fn agreeing(at: impl Fn(usize) -> bool) -> History {
    History::from_newest((1..=15).map(|h| vec![0, u32::from(!at(h))]))
}

/// Eq. 2 computed by hand.
#[test]
fn vote_check_values() {
    let vote = |at: &dyn Fn(usize) -> bool| agreeing(at).vote(1, 0, ALPHA);
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} is not {b}");
    close(vote(&|_| true), 4.859263);
    close(vote(&|h| h != 1), 3.259263);
    close(vote(&|h| h != 2 && h != 3), 2.555263);
    close(vote(&|h| h == 1 || h == 2), 0.020737);
    close(vote(&|h| h == 1 || h == 3), -0.235263);
    close(vote(&|_| false), -2.859263);
}

#[test]
fn reliable_counts() {
    assert_eq!(reliable(10, 0.9), 1);
    assert_eq!(reliable(10, 0.5), 5);
    assert_eq!(reliable(7, 0.5), 3);
    assert_eq!(reliable(100, 0.99), 1);
    assert_eq!(reliable(3, 0.0), 3);
    assert_eq!(reliable(3, 1.0), 0);
    assert_eq!(reliable(10, 0.7), 3);
}

/// Points on a line: clusters {0, 1, 2, 10} and {100, 101}.
fn line() -> (Matrix, Vec<u32>) {
    (Matrix::new(1, vec![0.0, 1.0, 2.0, 10.0, 100.0, 101.0]), vec![0, 0, 0, 0, 1, 1])
}

#[test]
fn the_nearest_half_is_kept() {
    let (features, assignment) = line();
    let p = purify(&features, &assignment, 2, &PLAIN, &History::default());
    // Cluster 0 has its centre at 3.25: nearest are samples 2 and 1. Cluster 1 keeps one of two: an instance.
    assert_eq!(p.positives.of(1), Some(&[1, 2][..]));
    assert_eq!(p.positives.of(2), Some(&[1, 2][..]));
    use Status::*;
    assert_eq!(p.status, [Filtered, Kept, Kept, Filtered, Instance, Filtered]);
    assert_eq!(p.distance[3], 6.75);
    assert!(p.vote.iter().all(|v| v.is_nan()));
    assert_eq!(p.positives.covered(), 2);
}

#[test]
fn small_clusters_are_kept_whole_early() {
    let (features, assignment) = line();
    let p = purify(&features, &assignment, 2, &Rules { whole_up_to: 5, ..PLAIN }, &History::default());
    assert_eq!(p.positives.of(0), Some(&[0, 1, 2, 3][..]));
    assert_eq!(p.positives.of(5), Some(&[4, 5][..]));
}

#[test]
fn votes_drop_and_pull_back() {
    let (features, assignment) = line();
    let rules = Rules { votes: Some(VOTES), ..PLAIN };
    // Anchor of cluster 0 is sample 2. Sample 1 (kept) was never with it, sample 3 (filtered) always, sample 0 never.
    let history = History::from_newest((0..15).map(|_| vec![5, 6, 7, 7, 1, 1]));
    let p = purify(&features, &assignment, 2, &rules, &history);
    use Status::*;
    // Cluster 1 keeps one (the anchor, sample 4) and pulls the other back.
    assert_eq!(p.status, [Filtered, Dropped, Kept, PulledBack, Kept, PulledBack]);
    assert_eq!(p.positives.of(3), Some(&[2, 3][..]));
    assert!(p.vote[2].is_nan() && (p.vote[3] - 4.859263).abs() < 1e-5);
}

#[test]
fn the_anchor_is_kept_when_anything_is() {
    let (features, assignment) = line();
    let rules = Rules { gamma: Some(1.0), votes: Some(VOTES), ..PLAIN };
    let history = History::from_newest((0..15).map(|_| vec![0, 0, 0, 0, 1, 2]));
    let p = purify(&features, &assignment, 2, &rules, &history);
    assert_eq!(p.positives.of(2), Some(&[0, 1, 2, 3][..]));
    assert_eq!(p.status[2], Status::Kept);
    assert_eq!(p.positives.of(4), None);
}

#[test]
fn a_set_that_shrinks_to_its_anchor_is_an_instance() {
    let (features, assignment) = line();
    let rules = Rules { votes: Some(VOTES), ..PLAIN };
    let history = History::from_newest((0..15).map(|_| vec![0, 1, 2, 3, 4, 5]));
    let p = purify(&features, &assignment, 2, &rules, &history);
    assert_eq!(p.positives.covered(), 0);
    assert_eq!(p.status[2], Status::Instance);
    assert_eq!(p.status[1], Status::Dropped);
}

#[test]
fn the_release_stops_at_the_first_single() {
    let features = Matrix::new(1, vec![0.0, 0.1, 5.0, 9.0, 9.1]);
    let rules = Rules { whole_up_to: 5, stop_at_first_single: true, ..PLAIN };
    let p = purify(&features, &[0, 0, 1, 2, 2], 3, &rules, &History::default());
    assert_eq!(p.positives.of(0), Some(&[0, 1][..]));
    assert_eq!(p.positives.of(3), None);
    assert_eq!(p.status[3], Status::Instance);
}

#[test]
fn empty_single_identical() {
    let none = purify(&Matrix::new(3, vec![]), &[], 4, &PLAIN, &History::default());
    assert_eq!(none.positives.samples(), 0);
    let one = purify(&Matrix::new(1, vec![1.0]), &[0], 1, &PLAIN, &History::default());
    assert_eq!(one.status, [Status::Instance]);
    let same = purify(&Matrix::new(1, vec![1.0; 6]), &[0; 6], 1, &PLAIN, &History::default());
    assert_eq!(same.positives.of(0), Some(&[0, 1, 2][..]), "ties go by index");
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let good = Positives::from_sets(5, [vec![3, 1], vec![0, 4]]);
    let parts = good.parts().map(<[u32]>::to_vec);
    assert_eq!(Positives::from_parts(parts.clone()), Some(good));
    let [set_of, starts, members] = parts;
    assert_eq!(Positives::from_parts([set_of.clone(), vec![], members.clone()]), None);
    assert_eq!(Positives::from_parts([set_of.clone(), vec![0, 9, 4], members.clone()]), None);
    assert_eq!(Positives::from_parts([vec![7; 5], starts.clone(), members]), None);
    assert_eq!(Positives::from_parts([set_of, starts, vec![9; 4]]), None);
}

/// CP_r by its definition: for each sample, count how many of its cluster come before it.
fn slow_kept(features: &Matrix, assignment: &[u32], gamma: f64, i: usize) -> bool {
    let mine: Vec<usize> = (0..assignment.len()).filter(|j| assignment[*j] == assignment[i]).collect();
    let centre: Vec<f64> = (0..features.dim)
        .map(|d| mine.iter().map(|j| f64::from(features.row(*j)[d])).sum::<f64>() / mine.len() as f64)
        .collect();
    let distance = |j: usize| -> f32 {
        let row = features.row(j);
        (0..features.dim).map(|d| (f64::from(row[d]) - centre[d]).powi(2)).sum::<f64>().sqrt() as f32
    };
    let before = mine.iter().filter(|j| (distance(**j), **j) < (distance(i), i)).count();
    let keep = ((1.0 - gamma) * mine.len() as f64 + 1e-6).floor() as usize;
    mine.len() > 1 && keep > 1 && before < keep
}

fn cases() -> impl Strategy<Value = (Matrix, Vec<u32>, Vec<Vec<u32>>)> {
    (1usize..60, 1usize..4).prop_flat_map(|(n, dim)| {
        (
            prop::collection::vec(-1.0f32..1.0, n * dim).prop_map(move |v| Matrix::new(dim, v)),
            prop::collection::vec(0u32..6, n),
            prop::collection::vec(prop::collection::vec(0u32..3, n), 15),
        )
    })
}

proptest! {
    #[test]
    fn matches_the_slow_twin((features, assignment, _) in cases(), tenths in 0u32..=10) {
        let gamma = f64::from(tenths) / 10.0;
        let rules = Rules { gamma: Some(gamma), ..PLAIN };
        let p = purify(&features, &assignment, 6, &rules, &History::default());
        for i in 0..assignment.len() {
            prop_assert_eq!(p.positives.of(i).is_some(), slow_kept(&features, &assignment, gamma, i), "sample {}", i);
        }
    }

    #[test]
    fn sets_stay_within_their_cluster((features, assignment, past) in cases()) {
        let rules = Rules { votes: Some(VOTES), ..PLAIN };
        let p = purify(&features, &assignment, 6, &rules, &History::from_newest(past));
        for i in 0..assignment.len() {
            if let Some(set) = p.positives.of(i) {
                prop_assert!(set.contains(&(i as u32)) && set.len() >= 2);
                prop_assert!(set.iter().all(|j| assignment[*j as usize] == assignment[i]));
            }
            let trusted = matches!(p.status[i], Status::Kept | Status::PulledBack);
            prop_assert_eq!(trusted, p.positives.of(i).is_some());
        }
    }

    #[test]
    fn gamma_zero_keeps_all((features, assignment, _) in cases()) {
        let p = purify(&features, &assignment, 6, &Rules { gamma: Some(0.0), ..PLAIN }, &History::default());
        for i in 0..assignment.len() {
            let size = assignment.iter().filter(|c| **c == assignment[i]).count();
            prop_assert_eq!(p.positives.of(i).map_or(1, <[u32]>::len), size);
        }
    }

    #[test]
    fn sample_order_is_irrelevant((features, assignment, past) in cases(), shift in 0usize..60) {
        let n = assignment.len();
        let at = |i: usize| (i + shift) % n;
        let turned = Matrix::new(features.dim, (0..n).flat_map(|i| features.row(at(i)).to_vec()).collect());
        let turn = |labels: &[u32]| (0..n).map(|i| labels[at(i)]).collect::<Vec<_>>();
        let rules = Rules { votes: Some(VOTES), ..PLAIN };
        let a = purify(&features, &assignment, 6, &rules, &History::from_newest(past.clone()));
        let b = purify(&turned, &turn(&assignment), 6, &rules, &History::from_newest(past.iter().map(|l| turn(l))));
        // Equal distances are ordered by index, and there order matters.
        let mut distances: Vec<f32> = a.distance.clone();
        distances.sort_by(f32::total_cmp);
        prop_assume!(distances.windows(2).all(|w| w[1] - w[0] > 1e-6));
        for i in 0..n {
            prop_assert_eq!(b.status[i], a.status[at(i)]);
        }
    }
}
