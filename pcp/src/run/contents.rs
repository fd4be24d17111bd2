//! Reading back the tables and matrices of a run folder.

use super::RunFolder;
use crate::data::FileRow;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{entries, read_bytes};
use pcp_core::io::csv;
use pcp_core::io::npy::{read_matrix, read_npz};
use pcp_core::matrix::Matrix;
use pcp_core::purify::{Grouping, Status};
use std::path::Path;
use std::str::FromStr;

const BROKEN: &str = "restore the file, or run it again";

impl RunFolder {
    /// The rows of `files.csv`.
    pub fn read_files(&self) -> Result<Vec<FileRow>> {
        let path = self.whole("files.csv")?;
        let parse = |line: usize, row: &[String]| {
            let [_, id, file, label] = row else { return Err(wrong(&path, line, "four fields are expected")) };
            let label = (!label.is_empty()).then(|| label.clone());
            Ok(FileRow { id: number(&path, line, id)?, file: file.clone(), label })
        };
        lines(&path, parse)
    }

    /// `clusters.csv`, the final clusters.
    pub fn read_final_clusters(&self) -> Result<Grouping> {
        let path = self.whole("clusters.csv")?;
        let parse = |line: usize, row: &[String]| {
            let [_, cluster, status, distance, vote] = row else {
                return Err(wrong(&path, line, "five fields are expected"));
            };
            let named = Status::ALL.into_iter().find(|s| s.name() == status);
            let status = named.ok_or_else(|| wrong(&path, line, &format!("there is no status {status}")))?;
            let vote = if vote.is_empty() { f32::NAN } else { number(&path, line, vote)? };
            Ok((number::<u32>(&path, line, cluster)?, status, number::<f32>(&path, line, distance)?, vote))
        };
        let mut grouping = Grouping::default();
        for (cluster, status, distance, vote) in lines(&path, parse)? {
            grouping.cluster.push(cluster);
            grouping.status.push(status);
            grouping.distance.push(distance);
            grouping.vote.push(vote);
        }
        Ok(grouping)
    }

    /// The (round, epoch) pairs with stored clusters, in order.
    pub fn epochs_with_clusters(&self) -> Result<Vec<(u32, u32)>> {
        let parse = |path: std::path::PathBuf| -> Option<(u32, u32)> {
            let (round, epoch) =
                path.file_name()?.to_str()?.strip_prefix('r')?.strip_suffix(".npz")?.split_once("-e")?;
            Some((round.parse().ok()?, epoch.parse().ok()?))
        };
        let mut found: Vec<_> = entries(&self.file("clusters"))?.into_iter().filter_map(parse).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// `clusters/r<round>-e<epoch>.npz`.
    pub fn read_epoch_clusters(&self, (round, epoch): (u32, u32)) -> Result<Grouping> {
        let path = self.whole(&format!("clusters/r{round}-e{epoch:03}.npz"))?;
        let status = |number: u8| {
            let found = Status::ALL.get(usize::from(number)).copied();
            found.ok_or_else(|| Error::file(format!("{}: there is no status {number}", path.display()), BROKEN))
        };
        let grouping = Grouping {
            cluster: read_npz(&path, "label")?,
            status: read_npz(&path, "status")?.into_iter().map(status).collect::<Result<_>>()?,
            distance: read_npz(&path, "distance")?,
            vote: read_npz(&path, "vote")?,
        };
        let n = grouping.cluster.len();
        if [grouping.status.len(), grouping.distance.len(), grouping.vote.len()] != [n; 3] {
            return Err(Error::file(format!("{}: its vectors differ in length", path.display()), BROKEN));
        }
        Ok(grouping)
    }

    /// `embeddings.npy`.
    pub fn read_embeddings(&self) -> Result<Matrix> {
        read_matrix(&self.whole("embeddings.npy")?)
    }
}

/// The results of `parse` for every line of a CSV file except its heading; `parse` also gets the line's number.
fn lines<T>(path: &Path, parse: impl Fn(usize, &[String]) -> Result<T>) -> Result<Vec<T>> {
    let text = String::from_utf8_lossy(&read_bytes(path)?).into_owned();
    csv::rows(&text).iter().enumerate().skip(1).map(|(i, row)| parse(i + 1, row)).collect()
}

fn number<T: FromStr>(path: &Path, line: usize, text: &str) -> Result<T> {
    text.parse().map_err(|_| wrong(path, line, &format!("{text} is not a number")))
}

fn wrong(path: &Path, line: usize, what: &str) -> Error {
    Error::file(format!("{}, row {line}: {what}", path.display()), BROKEN)
}
