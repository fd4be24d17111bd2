//! A table as a page: our figures beside the paper's, and what was done to get them.

use super::cell::{Cell, Measure};
use super::record::CellRecord;
use super::scale::Scale;
use super::tables::Table;
use pcp_core::error::listed;

/// The best epoch is shown where it is so much better than the last.
const WORTH_SHOWING: f64 = 0.1;

/// What is known of a cell.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Its records, one for every seed that was run.
    pub records: Vec<CellRecord>,
    /// Why it could not be run just now.
    pub failed: Option<String>,
}

/// The page of `table`, with the `findings` that somebody wrote about it.
pub fn page(table: &Table, scale: Scale, known: &dyn Fn(&Cell) -> Known, findings: Option<&str>) -> String {
    let mut page = format!("# Table {}: {}\n\n", table.number, table.title);
    let ours = |cell: &Cell| text(cell, &known(cell));
    let line = |words: Vec<String>| format!("| {} |\n", words.join(" | "));
    let heading = |columns: Vec<String>| line(columns.clone()) + &format!("|{}\n", "---|".repeat(columns.len()));
    let corner = table.corner.to_string();
    if let [column] = &table.columns[..] {
        page += &heading(vec![corner, column.clone(), "paper".into()]);
        for (row, cell) in table.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell))) {
            page += &line(vec![row.label.clone(), ours(cell), format!("{:.1}", cell.paper)]);
        }
    } else {
        page += &heading(std::iter::once(corner).chain(table.columns.clone()).collect());
        for row in &table.rows {
            page += &line(std::iter::once(row.label.clone()).chain(row.cells.iter().map(ours)).collect());
            let papers = row.cells.iter().map(|cell| format!("*{:.1}*", cell.paper));
            page += &line(std::iter::once("*paper*".to_string()).chain(papers).collect());
        }
    }
    page += "\n";
    for remark in remarks(table, scale, known) {
        page += &format!("- {remark}\n");
    }
    if let Some(findings) = findings {
        page += &format!("\n{}\n", findings.trim());
    }
    page
}

/// What stands in a cell.
pub fn text(cell: &Cell, known: &Known) -> String {
    let figure = figure(cell, &known.records);
    let failed = known.failed.as_ref().map(|why| format!("failed: {}", why.replace('|', "/").replace('\n', " ")));
    match (figure, failed) {
        (Some(figure), Some(failed)) => format!("{figure}; {failed}"),
        (Some(text), None) | (None, Some(text)) => text,
        (None, None) => "-".into(),
    }
}

/// The figure of some seeds: last epoch, best epoch where it differs, and the classifier where there is one.
fn figure(cell: &Cell, records: &[CellRecord]) -> Option<String> {
    let of = |value: fn(&CellRecord) -> Option<f64>| records.iter().filter_map(value).collect::<Vec<f64>>();
    let (last, best) = match cell.measure {
        Measure::Linear => (of(|r| r.linear_last), of(|r| r.linear_best)),
        Measure::Detection => (of(|r| r.map11), of(|r| r.map11)),
        _ => (of(|r| r.knn_last), of(|r| r.knn_best)),
    };
    let classifier = of(|r| r.classifier);
    let mut words = Vec::new();
    if !last.is_empty() {
        let better = mean(&best) - mean(&last) > WORTH_SHOWING;
        let best = if better { format!(" ({:.1})", mean(&best)) } else { String::new() };
        words.push(format!("{}{best}", spread(&last)));
    }
    let all_points = of(|r| r.map);
    if !all_points.is_empty() {
        words.push(format!("all points {}", spread(&all_points)));
    }
    if !classifier.is_empty() {
        words.push(format!("classifier {}", spread(&classifier)));
    }
    if words.is_empty() && !records.is_empty() {
        words.push("no labels".into());
    }
    (!words.is_empty()).then(|| words.join(", "))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean, with the standard deviation where there are several.
fn spread(values: &[f64]) -> String {
    let mean = mean(values);
    if values.len() < 2 {
        return format!("{mean:.1}");
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    format!("{mean:.1} ± {:.1}", (squares / (values.len() - 1) as f64).sqrt())
}

/// What must be known to read the table.
fn remarks(table: &Table, scale: Scale, known: &dyn Fn(&Cell) -> Known) -> Vec<String> {
    let mut seeds: Vec<u64> = table.cells().flat_map(|c| known(c).records).map(|r| r.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds = match seeds.len() {
        0 => String::new(),
        1 => format!("; seed {}", seeds[0]),
        _ => format!("; mean ± standard deviation over seeds, which are {}", listed(&seeds)),
    };
    let mut remarks = Vec::new();
    if table.cells().any(|cell| cell.measure == Measure::Detection) {
        remarks.push(format!("mAP in percent by eleven points, then by all points{seeds}"));
        remarks.push(format!("scale `{}`: {}", scale.name(), scale.detectors()));
    } else {
        remarks.push(format!(
            "accuracy of the last epoch in percent (kNN unless said), in parentheses that of the best epoch where it is more than \
             {WORTH_SHOWING} above{seeds}"
        ));
        remarks.push(format!("scale `{}`: {}", scale.name(), scale.summary()));
    }
    let scaled = table.cells().filter_map(|cell| {
        let paper = cell.recipe.floor()?;
        let here = scale.clusters(paper, cell.recipe.data);
        (here != paper).then(|| format!("{here} for {paper}"))
    });
    let mut floors: Vec<String> = Vec::new();
    scaled.for_each(|text| push_new(&mut floors, text));
    if !floors.is_empty() {
        remarks.push(format!("N_c is {}", listed(&floors)));
    }
    let dir = if scale == Scale::Tiny { "" } else { " --data-dir DATA" };
    remarks.push(format!("made by `pcp reproduce {} --scale {}{dir} --out results`", table.name(), scale.name()));
    remarks.extend(table.notes.iter().map(|note| note.to_string()));
    table.cells().filter_map(Cell::note).for_each(|note| push_new(&mut remarks, note.to_string()));
    remarks
}

fn push_new(list: &mut Vec<String>, text: String) {
    if !list.contains(&text) {
        list.push(text);
    }
}
