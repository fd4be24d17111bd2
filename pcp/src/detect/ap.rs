//! Average precision as PASCAL VOC counts it, by eleven points (2007) and by all (2010 on).

use super::boxes::{Bounds, iou};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// A detection is right when its IoU with an object of its class is at least this.
const RIGHT: f32 = 0.5;

/// An object that a detector found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// Its class, from 0.
    pub class: usize,
    /// Its score, from 0 to 1.
    pub score: f32,
    /// Its box.
    pub bounds: Bounds,
}

/// An object of a test image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelledObject {
    /// Its class, from 0.
    pub class: usize,
    /// Its box.
    pub bounds: Bounds,
    /// VOC marks it as difficult: neither finding it nor missing it counts.
    pub difficult: bool,
}

/// Average precision of one class, in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassScore {
    /// The class.
    pub class: String,
    /// Objects that count.
    pub objects: usize,
    /// By eleven points; none where there is no object.
    pub ap11: Option<f64>,
    /// By all points.
    pub ap: Option<f64>,
}

/// Average precision of all classes, in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectionScores {
    /// Mean over the classes that have objects, by eleven points (the paper's).
    pub map11: f64,
    /// The same by all points.
    pub map: f64,
    /// Every class.
    pub classes: Vec<ClassScore>,
}

/// Scores the detections of every image against its objects.
pub fn score(found: &[Vec<Detection>], truth: &[Vec<LabelledObject>], classes: &[String]) -> DetectionScores {
    assert_eq!(found.len(), truth.len(), "detections of every image");
    let of_class = |(class, name): (usize, &String)| {
        let objects = truth.iter().flatten().filter(|t| t.class == class && !t.difficult).count();
        let hits = hits(found, truth, class);
        let curve = curve(&hits, objects);
        let counted = objects > 0;
        ClassScore {
            class: name.clone(),
            objects,
            ap11: counted.then(|| 100.0 * eleven_points(&curve)),
            ap: counted.then(|| 100.0 * all_points(&curve)),
        }
    };
    let classes: Vec<ClassScore> = classes.iter().enumerate().map(of_class).collect();
    let mean = |of: fn(&ClassScore) -> Option<f64>| {
        let values: Vec<f64> = classes.iter().filter_map(of).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    DetectionScores { map11: mean(|c| c.ap11), map: mean(|c| c.ap), classes }
}

/// Whether each detection of `class` is right, best first over all images; those of difficult objects are left out. An object
/// is found once: a second box on it is wrong.
fn hits(found: &[Vec<Detection>], truth: &[Vec<LabelledObject>], class: usize) -> Vec<bool> {
    let mut order: Vec<(usize, usize)> = Vec::new();
    for (image, detections) in found.iter().enumerate() {
        order.extend(detections.iter().enumerate().filter(|(_, d)| d.class == class).map(|(i, _)| (image, i)));
    }
    let at = |(image, i): (usize, usize)| found[image][i];
    order.sort_by(|a, b| at(*b).score.partial_cmp(&at(*a).score).unwrap_or(Ordering::Equal).then(a.cmp(b)));
    let mut taken: Vec<Vec<bool>> = truth.iter().map(|objects| vec![false; objects.len()]).collect();
    let mut hits = Vec::new();
    for place in order {
        let (image, detection) = (place.0, at(place));
        let mut best: Option<(usize, f32)> = None;
        for (i, object) in truth[image].iter().enumerate().filter(|(_, t)| t.class == class) {
            let overlap = iou(object.bounds, detection.bounds);
            if best.is_none_or(|(_, most)| overlap > most) {
                best = Some((i, overlap));
            }
        }
        match best.filter(|(_, overlap)| *overlap >= RIGHT) {
            Some((i, _)) if truth[image][i].difficult => {}
            Some((i, _)) => hits.push(!std::mem::replace(&mut taken[image][i], true)),
            None => hits.push(false),
        }
    }
    hits
}

/// Recall and precision after every detection.
fn curve(hits: &[bool], objects: usize) -> Vec<(f64, f64)> {
    let mut right = 0;
    let after = |(i, hit): (usize, &bool)| {
        right += usize::from(*hit);
        (right as f64 / objects.max(1) as f64, right as f64 / (i + 1) as f64)
    };
    hits.iter().enumerate().map(after).collect()
}

/// Mean over the recalls 0, 0.1, ... 1 of the best precision at that recall or a higher one.
fn eleven_points(curve: &[(f64, f64)]) -> f64 {
    let best = |recall: f64| curve.iter().filter(|(r, _)| *r >= recall).map(|(_, p)| *p).fold(0.0, f64::max);
    (0..=10).map(|i| best(f64::from(i) / 10.0)).sum::<f64>() / 11.0
}

/// Area under the curve of the best precision at each recall or a higher one.
fn all_points(curve: &[(f64, f64)]) -> f64 {
    let (mut area, mut best, mut to) = (0.0, 0.0f64, curve.last().map_or(0.0, |(recall, _)| *recall));
    // From the right: the best precision so far holds down to the next lower recall.
    for (i, (_, precision)) in curve.iter().enumerate().rev() {
        best = best.max(*precision);
        let from = if i == 0 { 0.0 } else { curve[i - 1].0 };
        area += (to - from) * best;
        to = from;
    }
    area
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(x: f32) -> Bounds {
        [x, 0.0, x + 10.0, 10.0]
    }

    fn found(class: usize, score: f32, x: f32) -> Detection {
        Detection { class, score, bounds: at(x) }
    }

    fn object(class: usize, x: f32, difficult: bool) -> LabelledObject {
        LabelledObject { class, bounds: at(x), difficult }
    }

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|i| i.to_string()).collect()
    }

    /// By hand: right, wrong (a second box on the same object), right, wrong; three objects. Recall 1/3, 1/3, 2/3, 2/3 with
    /// precision 1, 1/2, 2/3, 1/2. Eleven points: recalls 0 to 0.3 give 1, 0.4 to 0.6 give 2/3, the rest 0: (4 + 2) / 11.
    /// All points: 1/3 * 1 + 1/3 * 2/3.
    #[test]
    fn an_example_by_hand() {
        let detections =
            vec![vec![found(0, 0.9, 0.0), found(0, 0.8, 1.0), found(0, 0.3, 300.0)], vec![found(0, 0.5, 50.0)]];
        let truth = vec![vec![object(0, 0.0, false), object(0, 100.0, false)], vec![object(0, 51.0, false)]];
        let scores = score(&detections, &truth, &names(1));
        assert!((scores.map11 - 100.0 * 6.0 / 11.0).abs() < 1e-9, "{scores:?}");
        assert!((scores.map - 100.0 * 5.0 / 9.0).abs() < 1e-9, "{scores:?}");
    }

    #[test]
    fn difficult_objects_do_not_count_and_classes_without_objects_have_no_score() {
        let detections = vec![vec![found(0, 0.9, 0.0), found(0, 0.8, 50.0), found(1, 0.8, 0.0), found(2, 0.8, 0.0)]];
        let truth = vec![vec![object(0, 0.0, true), object(0, 50.0, false), object(2, 0.0, true)]];
        let scores = score(&detections, &truth, &names(4));
        assert_eq!(scores.classes[0].ap11, Some(100.0), "the detection of the difficult one is left out");
        assert!((scores.map11, scores.map) == (100.0, 100.0), "{scores:?}");
        for class in 1..4 {
            assert_eq!((scores.classes[class].objects, scores.classes[class].ap), (0, None));
        }
        let none = score(&[], &[], &names(2));
        assert_eq!((none.map11, none.map), (0.0, 0.0));
        let missed = score(&[vec![]], &[vec![object(0, 0.0, false)]], &names(1));
        assert_eq!(missed.classes[0].ap, Some(0.0));
    }

    /// As the VOC devkit computes it: sort, mark, cumulate, then the envelope of precision over every recall.
    fn slow(detections: &[Vec<Detection>], truth: &[Vec<LabelledObject>], class: usize) -> Option<(f64, f64)> {
        let objects = truth.iter().flatten().filter(|t| t.class == class && !t.difficult).count();
        if objects == 0 {
            return None;
        }
        let mut all: Vec<(f32, usize, usize)> = Vec::new();
        for (image, d) in detections.iter().enumerate() {
            all.extend(d.iter().enumerate().filter(|(_, d)| d.class == class).map(|(i, d)| (d.score, image, i)));
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let (mut right, mut wrong, mut seen) = (vec![], vec![], std::collections::BTreeSet::new());
        for (_, image, i) in all {
            let overlap = |t: &LabelledObject| iou(t.bounds, detections[image][i].bounds);
            let mut best = (usize::MAX, -1.0);
            for (k, t) in truth[image].iter().enumerate() {
                if t.class == class && overlap(t) > best.1 {
                    best = (k, overlap(t));
                }
            }
            let hit = best.1 >= 0.5;
            if hit && truth[image][best.0].difficult {
                continue;
            }
            let first = hit && seen.insert((image, best.0));
            right.push(f64::from(u8::from(first)));
            wrong.push(f64::from(u8::from(!first)));
        }
        let sum = |v: &[f64], n: usize| v[..=n].iter().sum::<f64>();
        let recall: Vec<f64> = (0..right.len()).map(|n| sum(&right, n) / objects as f64).collect();
        let precision: Vec<f64> =
            (0..right.len()).map(|n| sum(&right, n) / (sum(&right, n) + sum(&wrong, n))).collect();
        let mut eleven = 0.0;
        for i in 0..=10 {
            let t = f64::from(i) / 10.0;
            eleven += (0..recall.len()).filter(|n| recall[*n] >= t).map(|n| precision[n]).fold(0.0, f64::max) / 11.0;
        }
        let (r, mut p) = ([vec![0.0], recall, vec![1.0]].concat(), [vec![0.0], precision, vec![0.0]].concat());
        for i in (0..p.len() - 1).rev() {
            p[i] = p[i].max(p[i + 1]);
        }
        let area: f64 = (1..p.len()).map(|i| (r[i] - r[i - 1]) * p[i]).sum();
        Some((100.0 * eleven, 100.0 * area))
    }

    proptest! {
        #[test]
        fn both_measures_are_their_slow_twins(
            found_at in prop::collection::vec(prop::collection::vec((0usize..3, 0i32..5, 0i32..12), 0..12), 3),
            objects in prop::collection::vec(prop::collection::vec((0usize..3, 0i32..12, any::<bool>()), 0..5), 3),
        ) {
            let detections: Vec<Vec<Detection>> = found_at
                .iter()
                .map(|d| d.iter().map(|(c, s, x)| found(*c, *s as f32, *x as f32 * 3.0)).collect())
                .collect();
            let truth: Vec<Vec<LabelledObject>> = objects
                .iter()
                .map(|t| t.iter().map(|(c, x, difficult)| object(*c, *x as f32 * 3.0, *difficult)).collect())
                .collect();
            let scores = score(&detections, &truth, &names(3));
            for class in 0..3 {
                let ours = scores.classes[class].ap11.zip(scores.classes[class].ap);
                match (ours, slow(&detections, &truth, class)) {
                    (None, None) => {}
                    (Some(a), Some(b)) => {
                        prop_assert!((a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-9, "{:?} {:?}", a, b);
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }
}
