//! What `pcp purify` writes and says.

use super::{Labelled, Outcome, Summary};
use crate::cluster::{missing, title, write_curve, write_json};
use crate::input::{Input, written};
use crate::table;
use pcp::jobs::pictures::Gallery;
use pcp::report::{Collection, Limits, Suspect, look_at, page};
use pcp_core::error::Result;
use pcp_core::io::atomic::{write_atomic, write_bytes};
use pcp_core::io::csv;
use pcp_core::labels::complete;
use pcp_core::purify::Grouping;
use pcp_core::purify::Status;
use std::io::Write;
use std::path::Path;

/// Counts what became of the rows.
pub fn count(summary: &mut Summary, found: &Outcome) {
    let of = |status: Status| found.purified.status.iter().filter(|s| **s == status).count();
    summary.kept = of(Status::Kept);
    summary.filtered = of(Status::Filtered);
    summary.dropped = of(Status::Dropped);
    summary.pulled_back = of(Status::PulledBack);
    summary.instances = of(Status::Instance);
    summary.label_errors = found.labelled.as_ref().map(|l| l.ranked.len());
}

/// Writes everything into the new folder `out`.
pub fn write(
    out: &Path,
    input: &Input,
    found: &Outcome,
    gallery: Option<&Gallery>,
    no_sheet: bool,
    summary: &mut Summary,
) -> Result<()> {
    write_tables(out, input, found)?;
    if let Some(labelled) = &found.labelled {
        write_labels(out, input, found, labelled)?;
    }
    if let Some((chosen, tried)) = &found.tried {
        write_curve(out, *chosen, tried)?;
    }
    input.write_unusable(out)?;
    if let (Some(gallery), Some(names), false) = (gallery, &input.names, no_sheet) {
        write_sheet(out, input, names, found, gallery, summary)?;
        summary.sheet = true;
    }
    write_json(out, summary)
}

/// A vote for a CSV file: empty where none was counted.
fn shown(vote: f32) -> String {
    if vote.is_nan() { String::new() } else { vote.to_string() }
}

fn write_tables(out: &Path, input: &Input, found: &Outcome) -> Result<()> {
    let p = &found.purified;
    let rows = 0..found.assignment.len();
    write_atomic(&out.join("clusters.csv"), |w| {
        let more = if found.labelled.is_some() { ",label,suggested,label_doubt" } else { "" };
        writeln!(w, "row,file,cluster,status,distance,vote,doubt{more}")?;
        for i in rows.clone() {
            let (cluster, status) = (found.assignment[i], p.status[i].name());
            let (distance, vote, doubt) = (p.distance[i], shown(p.vote[i]), found.doubts[i]);
            write!(w, "{},{cluster},{status},{distance},{vote},{doubt}", input.row_and_file(i))?;
            if let Some(l) = &found.labelled {
                let name = |class: Option<u32>| class.map(|c| csv::field(&l.classes[c as usize])).unwrap_or_default();
                let doubt = l.verdicts[i].map_or(String::new(), |v| v.doubt.to_string());
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

fn write_labels(out: &Path, input: &Input, found: &Outcome, labelled: &Labelled) -> Result<()> {
    write_atomic(&out.join("label_errors.csv"), |w| {
        writeln!(w, "rank,row,file,label,suggested,label_doubt,cluster,status")?;
        for (rank, suspect) in suspects(labelled).enumerate() {
            let i = suspect.row as usize;
            let [label, suggested] = [&suspect.label, &suspect.suggested].map(|name| csv::field(name));
            let (cluster, status) = (found.assignment[i], found.purified.status[i].name());
            let row = input.row_and_file(i);
            writeln!(w, "{},{row},{label},{suggested},{},{cluster},{status}", rank + 1, suspect.doubt)?;
        }
        Ok(())
    })
}

/// Labels that are probably wrong, the most doubtful first.
fn suspects(labelled: &Labelled) -> impl Iterator<Item = Suspect> + '_ {
    let name = |class: u32| labelled.classes[class as usize].clone();
    labelled.ranked.iter().filter_map(move |&i| {
        let verdict = labelled.verdicts[i]?;
        let label = name(labelled.of[i]?);
        Some(Suspect { row: i as u32, label, suggested: name(verdict.suggested), doubt: verdict.doubt })
    })
}

fn write_sheet(
    out: &Path,
    input: &Input,
    names: &[String],
    found: &Outcome,
    gallery: &Gallery,
    s: &Summary,
) -> Result<()> {
    let p = &found.purified;
    let grouping = Grouping {
        cluster: found.assignment.clone(),
        status: p.status.clone(),
        distance: p.distance.clone(),
        vote: p.vote.clone(),
    };
    let labels = found.labelled.as_ref().and_then(|l| complete(&l.classes, &l.of));
    let errors: Vec<Suspect> = found.labelled.as_ref().map(|l| suspects(l).collect()).unwrap_or_default();
    let clean = s.kept + s.pulled_back;
    let tile = |name: &str, value: usize, note: &str| [name.to_string(), value.to_string(), note.to_string()];
    let mut tiles = vec![
        tile("Images", s.rows, &format!("of {} numbers each", s.dim)),
        tile("Clusters", s.clusters, &format!("from {}", s.clusters_from)),
        tile("Clean", clean, "clean.csv"),
        tile("Suspicious", s.rows - clean, "suspicious.csv"),
        tile("Pulled back", s.pulled_back, &format!("by {} votes", s.votes)),
        tile("Dropped", s.dropped, &format!("votes from {}", s.votes_from)),
    ];
    if let Some(n) = s.label_errors {
        tiles.push(tile("Labels in doubt", n, "label_errors.csv"));
    }
    let doubted = s.label_errors.map_or(String::new(), |n| format!(" {n} labels are probably wrong."));
    let count = errors.len();
    let collection = Collection {
        name: title(&input.path),
        sentence: format!("{clean} of {} images belong to their clusters, {} do not.{doubted}", s.rows, s.rows - clean),
        tiles,
        notes: missing(gallery, s.rows),
        names,
        labels: labels.as_ref(),
        grouping: &grouping,
        plain: false,
        suspicious: &found.suspicious,
        label_errors: (errors, count),
        tried: found.tried.as_ref().map(|(chosen, tried)| (&tried[..], *chosen)),
        features: &input.features,
    };
    let view = look_at(&collection, &|rows| gallery.pictures(rows), Limits::shared(Limits::IMAGES, 1));
    write_bytes(&out.join("sheet.html"), page(&[view])?.as_bytes())
}

/// The summary for people.
pub fn show(s: &Summary) -> String {
    let share = |n: usize| format!("{n}  ({:.1} %)", 100.0 * n as f64 / s.rows.max(1) as f64);
    let votes = match s.votes {
        0 => "none: CP_r alone".to_string(),
        n => format!(
            "{n}, from {}; alpha {}, below {} dropped, from {:.3} pulled back",
            s.votes_from, s.alpha, s.lower, s.upper
        ),
    };
    let mut rows = vec![
        ("rows".to_string(), format!("{} of {} numbers", s.rows, s.dim)),
        ("clusters".into(), format!("{}, from {}", s.clusters, s.clusters_from)),
        ("votes".into(), votes),
        ("clean".into(), share(s.kept + s.pulled_back)),
        ("  of them pulled back".into(), s.pulled_back.to_string()),
        ("suspicious".into(), share(s.filtered + s.dropped + s.instances)),
        ("  filtered, dropped, alone".into(), format!("{}, {}, {}", s.filtered, s.dropped, s.instances)),
    ];
    if let Some(n) = s.label_errors {
        rows.push(("labels that are probably wrong".into(), share(n)));
    }
    rows.extend(written(s.unusable, &s.out, s.sheet));
    table::columns(&rows)
}
