//! Clusters for display: a list, sheets of their members, and the table of clusters and classes.

use super::{Pool, rounded};
use crate::data::Labels;
use pcp_core::purify::Grouping;
use pcp_core::purify::Status;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Clusters with a sheet, for each way of choosing them.
const SHEETS: usize = 6;
/// Members that a sheet shows of every status, in the order of [`Status::ALL`].
const SHOWN: [usize; 5] = [15, 15, 7, 7, 7];
/// Images that the sheets of all clusters together show, about.
const ALL_SHOWN: usize = 3000;
/// The most clusters in the list.
const LISTED: usize = 400;
/// Rows and columns of the table of clusters and classes.
const CONFUSION: (usize, usize) = (30, 20);
/// Smaller clusters can be pure by chance and are not ranked by purity.
const SMALLEST_RANKED: usize = 4;

/// A cluster with its figures.
pub struct Cluster {
    pub id: u32,
    /// Its members, nearest first.
    pub members: Vec<u32>,
    /// Members of every status.
    pub counts: [usize; 5],
    /// The class of most members, and their share of all and of those that are kept.
    pub majority: Option<(u32, f64, Option<f64>)>,
    /// Intersection over union with the most similar cluster of the previous clustering.
    pub same: Option<f64>,
}

/// All clusters, the largest first.
pub struct Clustering<'a> {
    grouping: &'a Grouping,
    labels: Option<&'a Labels>,
    pub clusters: Vec<Cluster>,
}

impl<'a> Clustering<'a> {
    /// The clusters of `grouping`, compared with the classes and with the previous clusters, if known.
    pub fn new(grouping: &'a Grouping, labels: Option<&'a Labels>, before: Option<&Grouping>) -> Self {
        let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (row, cluster) in grouping.cluster.iter().enumerate() {
            members.entry(*cluster).or_default().push(row as u32);
        }
        let mut sizes_before: BTreeMap<u32, usize> = BTreeMap::new();
        for cluster in before.iter().flat_map(|g| &g.cluster) {
            *sizes_before.entry(*cluster).or_default() += 1;
        }
        let mut clusters: Vec<Cluster> = Vec::new();
        for (id, mut members) in members {
            members.sort_by(|a, b| grouping.distance[*a as usize].total_cmp(&grouping.distance[*b as usize]));
            let mut counts = [0; 5];
            members.iter().for_each(|row| counts[grouping.status[*row as usize] as usize] += 1);
            let majority = labels.and_then(|labels| {
                let of = |row: &u32| labels.of[*row as usize];
                let (class, count) = most_common(members.iter().map(of))?;
                let kept: Vec<u32> =
                    members.iter().filter(|r| grouping.status[**r as usize].belongs()).map(of).collect();
                let pure = kept.iter().filter(|c| **c == class).count() as f64 / kept.len() as f64;
                Some((class, count as f64 / members.len() as f64, (!kept.is_empty()).then_some(pure)))
            });
            let same = before.map(|before| {
                let mut shared: BTreeMap<u32, usize> = BTreeMap::new();
                members.iter().for_each(|row| *shared.entry(before.cluster[*row as usize]).or_default() += 1);
                let overlap = |(id, n): (&u32, &usize)| *n as f64 / (members.len() + sizes_before[id] - n) as f64;
                shared.iter().map(overlap).fold(0.0, f64::max)
            });
            clusters.push(Cluster { id, members, counts, majority, same });
        }
        clusters.sort_by_key(|c| (Reverse(c.members.len()), c.id));
        Clustering { grouping, labels, clusters }
    }

    pub fn len(&self) -> usize {
        self.clusters.len()
    }

    /// Share of the images that the largest cluster holds.
    pub fn largest(&self) -> f64 {
        self.clusters.first().map_or(0.0, |c| c.members.len() as f64) / self.grouping.cluster.len().max(1) as f64
    }

    /// Share of the images that have a positive set.
    pub fn kept(&self) -> f64 {
        let status = &self.grouping.status;
        status.iter().filter(|s| s.belongs()).count() as f64 / status.len().max(1) as f64
    }

    /// The figures of the largest clusters.
    pub fn list(&self) -> Vec<Value> {
        let share = |x: f64| rounded(x as f32, 3);
        let row = |c: &Cluster| {
            json!({
                "id": c.id,
                "size": c.members.len(),
                "counts": c.counts,
                "class": c.majority.map(|m| m.0),
                "purity": c.majority.map(|m| share(m.1)),
                "purity_kept": c.majority.and_then(|m| m.2).map(share),
                "same": c.same.map(share),
            })
        };
        self.clusters.iter().take(LISTED).map(row).collect()
    }

    /// The clusters that are shown as sheets (largest, purest, most mixed, most changed), and the members shown of each.
    pub fn sheets(&self, pool: &mut Pool) -> Value {
        let telling = || self.clusters.iter().filter(|c| c.members.len() >= SMALLEST_RANKED);
        let by = |key: &dyn Fn(&Cluster) -> Option<f64>| -> Vec<&Cluster> {
            let mut found: Vec<(f64, &Cluster)> = telling().filter_map(|c| Some((key(c)?, c))).collect();
            found.sort_by(|a, b| a.0.total_cmp(&b.0));
            found.into_iter().map(|(_, c)| c).take(SHEETS).collect()
        };
        let kinds = [
            ("Largest", self.clusters.iter().take(SHEETS).collect()),
            ("Purest", by(&|c| Some(-c.majority?.1))),
            ("Most mixed", by(&|c| Some(c.majority?.1))),
            ("Most changed", by(&|c| c.same)),
        ];
        let mut sheets: BTreeMap<u32, Value> = BTreeMap::new();
        let mut named = Vec::new();
        for (name, clusters) in kinds.into_iter().filter(|(_, clusters)| !clusters.is_empty()) {
            named.push(json!({ "name": name, "clusters": clusters.iter().map(|c| c.id).collect::<Vec<_>>() }));
            for cluster in clusters {
                sheets.entry(cluster.id).or_insert_with(|| self.sheet(cluster, SHOWN, pool));
            }
        }
        let sheets: serde_json::Map<String, Value> = sheets.into_iter().map(|(id, s)| (id.to_string(), s)).collect();
        json!({ "kinds": named, "of": sheets })
    }

    /// Adds sheets of the other clusters to those of [`sheets`](Self::sheets), with fewer members where there are many clusters.
    pub fn all_sheets(&self, sheets: &mut Value, pool: &mut Pool) {
        let listed: Vec<&Cluster> = self.clusters.iter().take(LISTED).collect();
        let share = (ALL_SHOWN as f64 / (listed.len().max(1) * SHOWN.iter().sum::<usize>()) as f64).min(1.0);
        let shown = SHOWN.map(|n| ((n as f64 * share) as usize).max(1));
        for cluster in &listed {
            let place = &mut sheets["of"][cluster.id.to_string()];
            if place.is_null() {
                *place = self.sheet(cluster, shown, pool);
            }
        }
        if let (Some(kinds), true) = (sheets["kinds"].as_array_mut(), listed.len() > SHEETS) {
            kinds.push(json!({ "name": "All", "clusters": listed.iter().map(|c| c.id).collect::<Vec<_>>() }));
        }
    }

    /// Members of every status: kept ones from the nearest, others from the farthest.
    fn sheet(&self, cluster: &Cluster, shown: [usize; 5], pool: &mut Pool) -> Value {
        let mut groups = Vec::new();
        for (status, shown) in Status::ALL.into_iter().zip(shown) {
            let mut rows: Vec<u32> =
                cluster.members.iter().copied().filter(|r| self.grouping.status[*r as usize] == status).collect();
            if status != Status::Kept {
                rows.reverse();
            }
            rows.truncate(shown);
            groups.push(rows.into_iter().map(|row| pool.add(row)).collect::<Vec<_>>());
        }
        groups.into()
    }

    /// The contingency table of the largest clusters and classes.
    pub fn confusion(&self) -> Option<Value> {
        let labels = self.labels?;
        let mut sizes: Vec<(usize, u32)> = (0..labels.classes.len() as u32).map(|class| (0, class)).collect();
        labels.of.iter().for_each(|class| sizes[*class as usize].0 += 1);
        sizes.sort_by_key(|(size, class)| (Reverse(*size), *class));
        let mut classes: Vec<u32> = sizes.iter().take(CONFUSION.1).map(|(_, class)| *class).collect();
        classes.sort_unstable();
        let mut clusters: Vec<&Cluster> = self.clusters.iter().take(CONFUSION.0).collect();
        clusters.sort_by(|a, b| {
            let key = |c: &Cluster| c.majority.map_or((u32::MAX, 0.0), |m| (m.0, -m.1));
            key(a).0.cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1))
        });
        let counts = |cluster: &&Cluster| -> Vec<usize> {
            let of = |class: &u32| cluster.members.iter().filter(|r| labels.of[**r as usize] == *class).count();
            classes.iter().map(of).collect()
        };
        Some(json!({
            "classes": classes,
            "clusters": clusters.iter().map(|c| c.id).collect::<Vec<_>>(),
            "sizes": clusters.iter().map(|c| c.members.len()).collect::<Vec<_>>(),
            "counts": clusters.iter().map(counts).collect::<Vec<_>>(),
        }))
    }
}

/// The most frequent value (the smallest of equals) and its count.
fn most_common(values: impl Iterator<Item = u32>) -> Option<(u32, usize)> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    values.for_each(|v| *counts.entry(v).or_default() += 1);
    counts.into_iter().min_by_key(|(value, count)| (Reverse(*count), *value))
}
