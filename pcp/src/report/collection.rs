//! A page about a collection that was clustered or purified: what belongs together, what does not, and which labels are
//! probably wrong. It has the parts of a run's page that need no training.

use super::sheets::Clustering;
use super::{Limits, Pool, View, map, rounded, sprites};
use crate::data::{Images, Labels};
use pcp_core::cluster_count::Tried;
use pcp_core::matrix::Matrix;
use pcp_core::purify::Grouping;
use serde_json::{Value, json};
use std::sync::Arc;

/// Images that do not belong, and labels that are wrong, at the most.
const SHOWN: usize = 60;

/// A label that is probably wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The image's row.
    pub row: u32,
    /// Its label.
    pub label: String,
    /// The label of its company.
    pub suggested: String,
    /// How doubtful its label is.
    pub doubt: f32,
}

/// What a page says of a collection.
pub struct Collection {
    /// What it is called.
    pub name: String,
    /// What was found, in a sentence.
    pub sentence: String,
    /// (name, value, note) of the key figures.
    pub tiles: Vec<[String; 3]>,
    /// What the page lacks, and why.
    pub notes: Vec<String>,
    /// Names of the rows.
    pub names: Vec<String>,
    /// Classes, when every row has one.
    pub labels: Option<Labels>,
    /// Clusters, and what became of every row.
    pub grouping: Grouping,
    /// Whether they are clusters alone, without purification.
    pub plain: bool,
    /// The rows that belong least, the least first.
    pub suspicious: Vec<usize>,
    /// Labels that are probably wrong, the most doubtful first, and how many there are in all.
    pub label_errors: (Vec<Suspect>, usize),
    /// The numbers of clusters that were tried, and the one taken.
    pub tried: Option<(Vec<Tried>, usize)>,
    /// The rows themselves.
    pub features: Arc<Matrix>,
}

/// Looks at a collection; `pictures` makes small pictures of the rows it is given. `on_step` is called with the number of
/// [`super::steps`] done.
pub fn look_at(
    collection: &Collection,
    pictures: &dyn Fn(&[u32]) -> Images,
    limits: Limits,
    on_step: &mut dyn FnMut(usize),
) -> View {
    let c = collection;
    let mut pool = Pool::default();
    let label_errors: Vec<Value> = (c.label_errors.0.iter().take(SHOWN))
        .map(|s| json!([pool.add(s.row), s.label, s.suggested, rounded(s.doubt, 3)]))
        .collect();
    let outliers: Vec<u32> = c.suspicious.iter().take(SHOWN).map(|row| pool.add(*row as u32)).collect();
    let clustering = Clustering::new(&c.grouping, c.labels.as_ref(), None);
    let sheets = clustering.sheets(&mut pool);
    // Of directions alone, whatever the clusters went by. Rows that have no place have no map.
    let map = map(&c.features, limits.points, &mut pool, on_step).ok();
    let shown: Vec<u32> = pool.rows[..pool.rows.len().min(limits.images)].to_vec();
    let small = pictures(&shown);
    let thumbnails =
        sprites::thumbnails(&small, &(0..small.len() as u32).collect::<Vec<_>>(), limits.bytes).unwrap_or_default();
    View(json!({
        "name": c.name,
        "sentence": c.sentence,
        "tiles": c.tiles,
        "results": [],
        "lights": [],
        "warnings": [],
        "notes": c.notes,
        "plain": c.plain,
        "classes": c.labels.as_ref().map(|labels| &labels.classes),
        "grouped": "of the collection",
        "clusters": clustering.list(),
        "clusters_in_all": clustering.len(),
        "sheets": sheets,
        "outliers": outliers,
        "outliers_about": "Of the images that purification took out of their clusters, those that belong least: far from \
            their own cluster compared with the next, or seldom in its company. All of them are in suspicious.csv.",
        "label_errors": label_errors,
        "label_errors_in_all": c.label_errors.1,
        "tried": c.tried.as_ref().map(|(tried, chosen)| json!({
            "chosen": chosen,
            "k": tried.iter().map(|t| t.k).collect::<Vec<_>>(),
            "silhouette": tried.iter().map(|t| rounded(t.silhouette as f32, 4)).collect::<Vec<_>>(),
            "inertia": tried.iter().map(|t| rounded(t.inertia as f32, 5)).collect::<Vec<_>>(),
        })),
        "confusion": if c.plain { None } else { clustering.confusion() },
        "map": map,
        "images": pool.columns(&|row| &c.names[row], c.labels.as_ref(), Some(&c.grouping)),
        "thumbnails": thumbnails,
    }))
}
