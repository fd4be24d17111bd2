//! Files of a purification.

use super::{CheckedLabels, LabelError, PurifiedRows, PurifySummary};
use crate::jobs::cluster::{write_curve, write_summary};
use crate::jobs::findings::{write_links, write_paths};
use crate::jobs::pictures::Gallery;
use crate::jobs::sheet::{missing, tile, write_sheet};
use crate::jobs::source::Embeddings;
use crate::observe::Observer;
use crate::report::strangers::ABOUT;
use crate::report::{Collection, Suspect};
use pcp_core::error::Result;
use pcp_core::io::atomic::write_atomic;
use pcp_core::io::csv;
use pcp_core::labels::complete;
use pcp_core::purify::{Grouping, Status};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Counts what became of the rows.
pub(super) fn count(summary: &mut PurifySummary, found: &PurifiedRows) {
    let of = |status: Status| found.purified.status.iter().filter(|s| **s == status).count();
    summary.kept = of(Status::Kept);
    summary.filtered = of(Status::Filtered);
    summary.dropped = of(Status::Dropped);
    summary.pulled_back = of(Status::PulledBack);
    summary.instances = of(Status::Instance);
    summary.outliers = found.unlike.len();
    summary.labels = found.labelled.as_ref().map(|l| l.summary);
}

/// Writes everything into the new folder `out`.
pub(super) fn write(
    out: &Path,
    input: &Embeddings,
    found: &PurifiedRows,
    gallery: Option<Gallery>,
    summary: &mut PurifySummary,
    observer: &Arc<dyn Observer>,
) -> Result<()> {
    write_tables(out, input, found)?;
    if let Some(labelled) = &found.labelled {
        write_labels(out, input, found, labelled)?;
    }
    if let Some(choice) = &found.choice {
        write_curve(out, choice)?;
    }
    input.write_unusable(out)?;
    if let (Some(gallery), Some(names)) = (gallery, &input.names) {
        write_atomic(&out.join("outliers.csv"), |w| {
            writeln!(w, "rank,row,file,score")?;
            let mut unlike = found.unlike.iter().enumerate();
            unlike.try_for_each(|(rank, (i, score))| writeln!(w, "{},{},{score:.4}", rank + 1, input.row_and_file(*i)))
        })?;
        write_lists(out, found, &gallery, observer)?;
        write_sheet(out, page(input, names, found, &gallery, summary), gallery, observer)?;
        summary.sheet = true;
    }
    write_summary(out, summary)
}

/// Writes the findings as plain lists of paths and as folders of links, where the pictures are files.
fn write_lists(out: &Path, found: &PurifiedRows, gallery: &Gallery, observer: &Arc<dyn Observer>) -> Result<()> {
    let errors = || found.labelled.iter().flat_map(CheckedLabels::errors).map(|suspect| suspect.row as usize);
    let lists: [(&str, Vec<usize>); 3] = [
        ("outliers", found.unlike.iter().map(|(row, _)| *row).collect()),
        ("label_errors", errors().collect()),
        ("suspicious", found.suspicious.clone()),
    ];
    let mut links = Vec::new();
    for (name, rows) in lists {
        let paths: Vec<_> = rows.iter().map(|row| gallery.path(*row).map(Path::to_path_buf)).collect();
        write_paths(out, name, &paths, observer)?;
        links.extend(paths.into_iter().map(|path| (name.to_string(), path)));
    }
    write_links(out, links, observer)
}

/// Writes `cluster_names.csv`, when clusters have names.
pub(super) fn write_names(out: &Path, names: &BTreeMap<u32, String>) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    write_atomic(&out.join("cluster_names.csv"), |w| {
        writeln!(w, "cluster,name")?;
        names.iter().try_for_each(|(cluster, name)| writeln!(w, "{cluster},{}", csv::field(name)))
    })
}

/// A vote for a CSV file: empty where none was counted.
fn shown(vote: f32) -> String {
    if vote.is_nan() { String::new() } else { vote.to_string() }
}

fn write_tables(out: &Path, input: &Embeddings, found: &PurifiedRows) -> Result<()> {
    let p = &found.purified;
    let rows = 0..found.assignment.len();
    write_atomic(&out.join("clusters.csv"), |w| {
        let more = if found.labelled.is_some() { ",label,suggested,label_doubt,label_wrong" } else { "" };
        writeln!(w, "row,file,cluster,status,distance,vote,doubt{more}")?;
        for i in rows.clone() {
            let (cluster, status) = (found.assignment[i], p.status[i].name());
            let (distance, vote, doubt) = (p.distance[i], shown(p.vote[i]), found.doubts[i]);
            write!(w, "{},{cluster},{status},{distance},{vote},{doubt}", input.row_and_file(i))?;
            if let Some(l) = &found.labelled {
                let name = |class: Option<u32>| class.map(|c| csv::field(&l.classes[c as usize])).unwrap_or_default();
                let doubt = l.verdicts[i].map_or(",".to_string(), |v| format!("{},{}", v.doubt, v.wrong));
                write!(w, ",{},{},{doubt}", name(l.of[i]), name(l.verdicts[i].map(|v| v.suggested)))?;
            }
            writeln!(w)?;
        }
        Ok(())
    })?;
    write_atomic(&out.join("clean.csv"), |w| {
        writeln!(w, "row,file,cluster,distance,vote")?;
        for i in rows.filter(|i| p.status[*i].belongs()) {
            let (cluster, distance) = (found.assignment[i], p.distance[i]);
            writeln!(w, "{},{cluster},{distance},{}", input.row_and_file(i), shown(p.vote[i]))?;
        }
        Ok(())
    })?;
    write_atomic(&out.join("suspicious.csv"), |w| {
        writeln!(w, "rank,row,file,cluster,status,distance,vote,doubt")?;
        for (rank, &i) in found.suspicious.iter().enumerate() {
            let (cluster, status) = (found.assignment[i], p.status[i].name());
            let (distance, vote, doubt) = (p.distance[i], shown(p.vote[i]), found.doubts[i]);
            writeln!(w, "{},{},{cluster},{status},{distance},{vote},{doubt}", rank + 1, input.row_and_file(i))?;
        }
        Ok(())
    })
}

fn write_labels(out: &Path, input: &Embeddings, found: &PurifiedRows, labelled: &CheckedLabels) -> Result<()> {
    let write = |name: &str, suspects: &mut dyn Iterator<Item = Suspect>| {
        write_atomic(&out.join(name), |w| {
            writeln!(w, "rank,row,file,label,suggested,label_doubt,label_wrong,cluster,status")?;
            for (rank, suspect) in suspects.enumerate() {
                let i = suspect.row as usize;
                let [label, suggested] = [&suspect.label, &suspect.suggested].map(|name| csv::field(name));
                let (cluster, status) = (found.assignment[i], found.purified.status[i].name());
                let (row, doubt, wrong) = (input.row_and_file(i), suspect.doubt, suspect.wrong);
                writeln!(w, "{},{row},{label},{suggested},{doubt},{wrong},{cluster},{status}", rank + 1)?;
            }
            Ok(())
        })
    };
    write("label_errors.csv", &mut labelled.errors())?;
    write("doubtful_labels.csv", &mut labelled.doubtful())
}

/// The same with the row's number in the source.
pub(super) fn in_source(suspect: Suspect, input: &Embeddings) -> LabelError {
    let Suspect { row, label, suggested, doubt, wrong } = suspect;
    LabelError { row: input.rows[row as usize], label, suggested, doubt, wrong }
}

fn page(
    input: &Embeddings,
    names: &[String],
    found: &PurifiedRows,
    gallery: &Gallery,
    s: &PurifySummary,
) -> Collection {
    let p = &found.purified;
    let grouping = Grouping {
        cluster: found.assignment.clone(),
        status: p.status.clone(),
        distance: p.distance.clone(),
        vote: p.vote.clone(),
    };
    let errors: Vec<Suspect> = found.labelled.as_ref().map(|l| l.errors().collect()).unwrap_or_default();
    let clean = s.kept + s.pulled_back;
    let mut tiles = vec![
        tile("Images", s.rows, &format!("of {} numbers each", s.dim)),
        tile("Clusters", s.clusters, &format!("from {}", s.clusters_from)),
        tile("Kept", clean, "clean.csv"),
        tile("Taken out", s.rows - clean, "suspicious.csv"),
        tile("Pulled back", s.pulled_back, &format!("by {} votes", s.votes)),
        tile("Dropped", s.dropped, &format!("votes from {}", s.votes_from)),
    ];
    if let Some(labels) = &s.labels {
        tiles.push(tile("Labels probably wrong", labels.errors, &format!("about {:.0} of them are", labels.expected)));
    }
    let doubted = s.labels.map_or(String::new(), |labels| format!(" {}", labels.sentence()));
    let label_errors_about = s.labels.map(|labels| match labels.errors {
        0 => format!("{} No single label is more probably wrong than right.", labels.sentence()),
        n => format!(
            "{} {n} labels are more probably wrong than right, of which about {:.0} are wrong; the most doubtful first. All of them are in \
             label_errors.csv; doubtful_labels.csv has {} others for which another label fits better, though they are probably right.",
            labels.sentence(), labels.expected, labels.doubtful
        ),
    });
    Collection {
        name: input.title(),
        sentence: format!(
            "Purification kept {clean} of {} images together with their clusters and took {} out.{doubted}",
            s.rows,
            s.rows - clean
        ),
        tiles,
        notes: missing(gallery, s.rows),
        names: names.to_vec(),
        labels: found.labelled.as_ref().and_then(|l| complete(&l.classes, &l.of)),
        grouping,
        plain: false,
        suspicious: found.unlike.iter().map(|(row, _)| *row).collect(),
        suspicious_about: format!(
            "{ABOUT} outliers.csv has more of them; pcp look tries strangers among your own pictures."
        ),
        label_errors: errors,
        label_errors_about,
        choice: found.choice.clone(),
        features: input.features.clone(),
    }
}
