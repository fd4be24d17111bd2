//! The page about a collection of images that was clustered or purified: its clusters, its outliers and the labels that are
//! probably wrong. It has the parts of a run's page that do not come from training.

use super::sheets::Clustering;
use super::{PageLimits, PageSection, Pool, map, rounded, sprites};
use crate::data::{Images, Labels};
use pcp_core::cluster_count::Choice;
use pcp_core::error::{Kind, Result};
use pcp_core::matrix::Matrix;
use pcp_core::purify::Grouping;
use serde_json::{Value, json};
use std::sync::Arc;

/// The most outliers, and the most label errors, that are shown.
const SHOWN: usize = 60;

/// A label that is probably wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The image's row.
    pub row: u32,
    /// Its label.
    pub label: String,
    /// The suggested label.
    pub suggested: String,
    /// How badly its label fits.
    pub doubt: f32,
    /// The probability that it is wrong.
    pub wrong: f32,
}

/// The contents of a page about a collection.
pub struct Collection {
    /// Its name.
    pub name: String,
    /// A summary in one sentence.
    pub sentence: String,
    /// (name, value, note) of the key figures.
    pub tiles: Vec<[String; 3]>,
    /// Notes on what is missing from the page, and why.
    pub notes: Vec<String>,
    /// Names of the rows.
    pub names: Vec<String>,
    /// Classes, when every row has one.
    pub labels: Option<Labels>,
    /// The cluster and status of every row.
    pub grouping: Grouping,
    /// Whether the clusters were not purified.
    pub plain: bool,
    /// The outliers, the highest score first.
    pub suspicious: Vec<usize>,
    /// What they are, and how sure that is.
    pub suspicious_about: String,
    /// Labels that are probably wrong, the most doubtful first.
    pub label_errors: Vec<Suspect>,
    /// What is known about wrong labels, in a few sentences; `None` without labels.
    pub label_errors_about: Option<String>,
    /// The numbers of clusters that were tried, and the one taken.
    pub choice: Option<Choice>,
    /// The embeddings.
    pub features: Arc<Matrix>,
}

/// The section about a collection; `pictures` makes thumbnails of the given rows. `on_step` is called with the number of
/// [`super::steps`] done, and often in between while the map starts; its error ends the report.
pub fn collection_section(
    collection: &Collection,
    pictures: &dyn Fn(&[u32]) -> Images,
    limits: PageLimits,
    on_step: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<PageSection> {
    let c = collection;
    let mut pool = Pool::default();
    let label_errors: Vec<Value> = (c.label_errors.iter().take(SHOWN))
        .map(|s| json!([pool.add(s.row), s.label, s.suggested, rounded(s.wrong, 2)]))
        .collect();
    let outliers: Vec<u32> = c.suspicious.iter().take(SHOWN).map(|row| pool.add(*row as u32)).collect();
    let clustering = Clustering::new(&c.grouping, c.labels.as_ref(), None);
    let mut sheets = clustering.sheets(&mut pool);
    clustering.all_sheets(&mut sheets, &mut pool);
    // The map uses cosine distances, whatever the metric of the clusters. Features that t-SNE refuses have no map.
    let map = match map(&c.features, limits.points, &mut pool, on_step) {
        Err(e) if e.kind == Kind::Stopped => return Err(e),
        made => made.ok(),
    };
    let shown: Vec<u32> = pool.rows[..pool.rows.len().min(limits.images)].to_vec();
    let small = pictures(&shown);
    let shown = sprites::Shown { images: &small, files: None };
    let thumbnails = shown.thumbnails(&(0..small.len() as u32).collect::<Vec<_>>(), limits.bytes).unwrap_or_default();
    Ok(PageSection(json!({
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
        "outliers_about": c.suspicious_about,
        "label_errors": label_errors,
        "label_errors_about": c.label_errors_about,
        "tried": c.choice.as_ref().map(|choice| json!({
            "chosen": choice.k,
            "measure": choice.measure,
            "k": choice.tried.iter().map(|t| t.k).collect::<Vec<_>>(),
            "score": choice.tried.iter().map(|t| rounded(t.score as f32, 4)).collect::<Vec<_>>(),
            "inertia": choice.tried.iter().map(|t| rounded(t.inertia as f32, 5)).collect::<Vec<_>>(),
        })),
        "confusion": if c.plain { None } else { clustering.confusion() },
        "map": map,
        "images": pool.columns(&|row| &c.names[row], c.labels.as_ref(), Some(&c.grouping)),
        "thumbnails": thumbnails,
    })))
}
