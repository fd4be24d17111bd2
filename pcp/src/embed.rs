//! Features of any images by any model, and files of them: NumPy's or CSV, and the names of their rows.

mod any;

pub use any::{AnyModel, EMBEDDING};

use crate::data::{BadFile, FileRow, Pictures};
use crate::model::Embedded;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::NewFile;
use pcp_core::io::csv;
use pcp_core::io::npy::NpyRows;
use pcp_core::matrix::Matrix;
use std::io::{self, Write};
use std::path::Path;

/// How embeddings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// NumPy's, float32; names are in a file beside it.
    Npy,
    /// A line per image: its name, then its numbers.
    Csv,
}

/// Embeds all `pictures` into the file `out`, which gets its name when it is published.
pub fn write(
    model: &AnyModel,
    pictures: &Pictures,
    features: &str,
    (out, format): (&Path, Format),
    stop: &Cancel,
    done: &dyn Fn(usize),
) -> Result<(Embedded, usize, NewFile)> {
    let mut outcome = None;
    let written = NewFile::filled(out, |w| {
        let mut sink = Sink::None(Some(w));
        let mut failed: Option<io::Error> = None;
        let mut dim = 0;
        let made = model.for_each_batch(pictures, features, stop, done, &mut |rows, made| {
            dim = made.dim;
            sink.add(format, rows, made).map_err(|e| {
                let shown = Error::io("write", out, &e);
                failed = Some(e);
                shown
            })
        });
        if let Some(e) = failed {
            return Err(e);
        }
        let fine = made.is_ok();
        outcome = Some(made.map(|made| (made, dim)));
        match fine {
            true => sink.finish(),
            false => Err(io::Error::other("not finished")),
        }
    });
    // What went wrong in embedding is worth more than that its file was not finished.
    match outcome {
        Some(made) => made.and_then(|(made, dim)| written.map(|file| (made, dim, file))),
        None => Err(written.err().unwrap_or_else(Error::stopped)),
    }
}

enum Sink<W: Write + io::Seek> {
    None(Option<W>),
    Npy(NpyRows<W>),
    Csv(W),
}

impl<W: Write + io::Seek> Sink<W> {
    fn add(&mut self, format: Format, rows: &[FileRow], features: &Matrix) -> io::Result<()> {
        if let Sink::None(out) = self
            && let Some(mut out) = out.take()
        {
            *self = match format {
                Format::Npy => Sink::Npy(NpyRows::new(out, features.dim)?),
                Format::Csv => {
                    write!(out, "file")?;
                    (0..features.dim).try_for_each(|d| write!(out, ",{d}"))?;
                    writeln!(out)?;
                    Sink::Csv(out)
                }
            };
        }
        match self {
            Sink::Npy(npy) => npy.extend(&features.values),
            Sink::Csv(out) => {
                for (row, values) in rows.iter().zip(features.values.chunks(features.dim)) {
                    write!(out, "{}", csv::field(&row.file))?;
                    values.iter().try_for_each(|x| write!(out, ",{x}"))?;
                    writeln!(out)?;
                }
                Ok(())
            }
            Sink::None(_) => Ok(()),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Sink::Npy(npy) => npy.finish(),
            Sink::Csv(mut out) => out.flush(),
            Sink::None(_) => Ok(()),
        }
    }
}

/// `files.csv` of what was embedded: its first row has the checksum of the matrix that it belongs to.
pub fn files_csv(rows: &[FileRow], matrix: &str) -> String {
    let mut text = "row,id,file,label,matrix\n".to_string();
    for (i, row) in rows.iter().enumerate() {
        let label = row.label.as_deref().map(csv::field).unwrap_or_default();
        let matrix = if i == 0 { matrix } else { "" };
        text += &format!("{i},{},{},{label},{matrix}\n", row.id, csv::field(&row.file));
    }
    text
}

/// `bad_files.csv` of what could not be read.
pub fn bad_files_csv(bad: &[BadFile]) -> String {
    let mut text = "id,file,reason\n".to_string();
    for bad in bad {
        text += &format!("{},{},{}\n", bad.id, csv::field(&bad.name), csv::field(&bad.reason));
    }
    text
}
