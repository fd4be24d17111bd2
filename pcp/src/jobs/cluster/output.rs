//! Files of a clustering.

use super::{ClusterSummary, FoundClusters, UNSORTED_MEANS, write_summary};
use crate::jobs::folders::{How, make, numbered};
use crate::jobs::part::JobPart;
use crate::jobs::pictures::Gallery;
use crate::jobs::sheet::{missing, tile, write_sheet};
use crate::jobs::source::Embeddings;
use crate::observe::Observer;
use crate::report::Collection;
use pcp_core::cluster_count::{Choice, Measure};
use pcp_core::error::Result;
use pcp_core::io::atomic::write_atomic;
use pcp_core::io::csv;
use pcp_core::io::npy::write_npy;
use pcp_core::purify::{Grouping, Status};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Members of a cluster that represent it.
const REPRESENTATIVES: usize = 5;

/// What was found, and in what.
pub(super) struct ClusterFiles<'a> {
    pub embeddings: &'a Embeddings,
    pub found: &'a FoundClusters,
    pub choice: Option<&'a Choice>,
}

impl ClusterFiles<'_> {
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
        if let Some(choice) = self.choice {
            write_curve(out, choice)?;
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
        let (embeddings, found) = (self.embeddings, &self.found.clusters);
        write_atomic(&out.join("clusters.csv"), |w| {
            let agreement = self.found.agreement.as_ref();
            writeln!(w, "row,file,cluster,distance{}", if agreement.is_some() { ",agreement,unsorted" } else { "" })?;
            let mut rows = found.assignment.iter().zip(&found.distances).enumerate();
            rows.try_for_each(|(i, (cluster, distance))| {
                write!(w, "{},{cluster},{distance}", embeddings.row_and_file(i))?;
                match agreement {
                    Some(of) => writeln!(w, ",{},{}", of[i], u8::from(self.found.is_unsorted(i))),
                    None => writeln!(w),
                }
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
        let mut folders = numbered("cluster", &self.found.clusters.assignment);
        let unsorted = |(i, _): &(usize, &mut String)| self.found.is_unsorted(*i);
        folders.iter_mut().enumerate().filter(unsorted).for_each(|(_, folder)| *folder = "unsorted".into());
        let made = make(&out.join("folders"), &folders, paths, how, observer.cancel(), &told);
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
        let clusters = &self.found.clusters;
        let rows = clusters.assignment.len();
        let filled = summary.k - summary.empty;
        let mut tiles = vec![
            tile("Images", rows, &format!("of {} numbers each", summary.dim)),
            tile("Clusters", filled, summary.chosen_by.words()),
            tile("Largest", summary.largest, "images"),
            tile("Median", summary.median, "images"),
            tile("Smallest", summary.smallest, "images"),
        ];
        if let Some(unsorted) = summary.unsorted {
            tiles.push(tile("Unsorted", unsorted, UNSORTED_MEANS));
        }
        let status = |i: usize| if self.found.is_unsorted(i) { Status::Filtered } else { Status::Kept };
        Collection {
            name: self.embeddings.title(),
            sentence: format!("{rows} images in {filled} clusters."),
            tiles,
            notes: missing(gallery, rows),
            names: names.to_vec(),
            labels: None,
            grouping: Grouping {
                cluster: clusters.assignment.clone(),
                status: (0..rows).map(status).collect(),
                distance: clusters.distances.clone(),
                vote: vec![f32::NAN; rows],
            },
            plain: true,
            suspicious: Vec::new(),
            suspicious_about: String::new(),
            label_errors: Vec::new(),
            label_errors_about: None,
            choice: self.choice.cloned(),
            features: self.embeddings.features.clone(),
        }
    }
}

/// Writes the numbers of clusters that were tried.
pub(crate) fn write_curve(out: &Path, choice: &Choice) -> Result<()> {
    let measure = match choice.measure {
        Measure::Silhouette => "silhouette",
        Measure::Modularity => "modularity",
    };
    write_atomic(&out.join("k.csv"), |w| {
        writeln!(w, "k,{measure},mean_squared_distance,chosen")?;
        let chosen = |k| u8::from(k == choice.k);
        choice.tried.iter().try_for_each(|t| writeln!(w, "{},{},{},{}", t.k, t.score, t.inertia, chosen(t.k)))
    })
}
