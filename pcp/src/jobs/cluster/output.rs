//! Files of a clustering.

use super::{Choice, ChosenBy, ClusterSummary, write_summary};
use crate::jobs::folders::{How, make, numbered};
use crate::jobs::part::JobPart;
use crate::jobs::pictures::Gallery;
use crate::jobs::sheet::{missing, tile, write_sheet};
use crate::jobs::source::Embeddings;
use crate::observe::Observer;
use crate::report::Collection;
use pcp_core::cluster_count::Tried;
use pcp_core::error::Result;
use pcp_core::io::atomic::write_atomic;
use pcp_core::io::csv;
use pcp_core::io::npy::write_npy;
use pcp_core::kmeans::Clusters;
use pcp_core::purify::{Grouping, Status};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Members of a cluster that represent it.
const REPRESENTATIVES: usize = 5;

/// What was found, and in what.
pub(super) struct FoundClusters<'a> {
    pub embeddings: &'a Embeddings,
    pub clusters: &'a Clusters,
    pub tried: &'a Choice,
}

impl FoundClusters<'_> {
    /// Writes everything into the new folder `out`.
    pub(super) fn write(
        &self,
        out: &Path,
        paths: Option<&(How, Vec<PathBuf>)>,
        gallery: Option<Gallery>,
        summary: &mut ClusterSummary,
        observer: &Arc<dyn Observer>,
    ) -> Result<()> {
        self.write_tables(out)?;
        if let Some((chosen, tried)) = self.tried {
            write_curve(out, *chosen, tried)?;
        }
        self.embeddings.write_unusable(out)?;
        if let Some((how, paths)) = paths {
            self.write_folders(out, *how, paths, observer)?;
        }
        if let (Some(gallery), Some(names)) = (gallery, &self.embeddings.names) {
            write_sheet(out, self.page(names, &gallery, summary), gallery, observer)?;
            summary.sheet = true;
        }
        write_summary(out, summary)
    }

    fn write_tables(&self, out: &Path) -> Result<()> {
        let (embeddings, found) = (self.embeddings, self.clusters);
        write_atomic(&out.join("clusters.csv"), |w| {
            writeln!(w, "row,file,cluster,distance")?;
            let mut rows = found.assignment.iter().zip(&found.distances).enumerate();
            rows.try_for_each(|(i, (cluster, distance))| {
                writeln!(w, "{},{cluster},{distance}", embeddings.row_and_file(i))
            })
        })?;
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); found.centroids.rows];
        found.assignment.iter().enumerate().for_each(|(i, c)| members[*c as usize].push(i));
        for of in &mut members {
            of.sort_by(|a, b| found.distances[*a].total_cmp(&found.distances[*b]).then(a.cmp(b)));
        }
        write_atomic(&out.join("sizes.csv"), |w| {
            writeln!(w, "cluster,size,mean_distance,farthest")?;
            members.iter().enumerate().try_for_each(|(cluster, of)| {
                let sum: f64 = of.iter().map(|i| f64::from(found.distances[*i])).sum();
                let farthest = of.last().map_or(0.0, |i| found.distances[*i]);
                writeln!(w, "{cluster},{},{},{farthest}", of.len(), (sum / of.len().max(1) as f64) as f32)
            })
        })?;
        write_atomic(&out.join("representatives.csv"), |w| {
            writeln!(w, "cluster,rank,row,file,distance")?;
            for (cluster, of) in members.iter().enumerate() {
                for (rank, i) in of.iter().take(REPRESENTATIVES).enumerate() {
                    writeln!(w, "{cluster},{},{},{}", rank + 1, embeddings.row_and_file(*i), found.distances[*i])?;
                }
            }
            Ok(())
        })?;
        let centroids = &found.centroids;
        write_npy(&out.join("centroids.npy"), &[centroids.rows, centroids.dim], &centroids.values)
    }

    fn write_folders(&self, out: &Path, how: How, paths: &[PathBuf], observer: &Arc<dyn Observer>) -> Result<()> {
        let part = JobPart::begin("folders", paths.len(), observer);
        let told = |n| part.at(n, paths.len());
        let made = make(
            &out.join("folders"),
            &numbered("cluster", &self.clusters.assignment),
            paths,
            how,
            observer.cancel(),
            &told,
        );
        part.end();
        let made = made?;
        write_atomic(&out.join("folders.csv"), |w| {
            writeln!(w, "row,file,path")?;
            made.iter().enumerate().try_for_each(|(i, path)| {
                let path = Path::new("folders").join(path);
                writeln!(w, "{},{}", self.embeddings.row_and_file(i), csv::field(&path.to_string_lossy()))
            })
        })
    }

    fn page(&self, names: &[String], gallery: &Gallery, summary: &ClusterSummary) -> Collection {
        let rows = self.clusters.assignment.len();
        let filled = summary.k - summary.empty;
        let chosen_by = match summary.chosen_by {
            ChosenBy::Caller => "--k",
            ChosenBy::Silhouette => "the greatest mean silhouette",
        };
        Collection {
            name: self.embeddings.title(),
            sentence: format!("{rows} images in {filled} clusters."),
            tiles: vec![
                tile("Images", rows, &format!("of {} numbers each", summary.dim)),
                tile("Clusters", filled, chosen_by),
                tile("Largest", summary.largest, "images"),
                tile("Median", summary.median, "images"),
                tile("Smallest", summary.smallest, "images"),
            ],
            notes: missing(gallery, rows),
            names: names.to_vec(),
            labels: None,
            grouping: Grouping {
                cluster: self.clusters.assignment.clone(),
                status: vec![Status::Kept; rows],
                distance: self.clusters.distances.clone(),
                vote: vec![f32::NAN; rows],
            },
            plain: true,
            suspicious: Vec::new(),
            suspicious_about: String::new(),
            label_errors: Vec::new(),
            label_errors_about: None,
            tried: self.tried.as_ref().map(|(chosen, tried)| (tried.clone(), *chosen)),
            features: self.embeddings.features.clone(),
        }
    }
}

/// Writes the numbers of clusters that were tried.
pub(crate) fn write_curve(out: &Path, chosen: usize, tried: &[Tried]) -> Result<()> {
    write_atomic(&out.join("k.csv"), |w| {
        writeln!(w, "k,silhouette,mean_squared_distance,chosen")?;
        tried.iter().try_for_each(|t| writeln!(w, "{},{},{},{}", t.k, t.silhouette, t.inertia, u8::from(t.k == chosen)))
    })
}
