//! `metrics.jsonl`: one line per epoch.

use super::{EpochRecord, RunFolder};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{append, is_there, read_bytes, write_bytes};
use serde::{Deserialize, Serialize};

impl RunFolder {
    /// Adds an epoch to `metrics.jsonl`.
    pub fn append_metrics(&self, record: &impl Serialize) -> Result<()> {
        let path = self.file("metrics.jsonl");
        let line =
            serde_json::to_string(record).map_err(|e| Error::file(format!("metrics: {e}"), "please report this"))?;
        append(&path, format!("{line}\n").as_bytes())
    }

    /// Makes `metrics.jsonl` have a line for each of `records`, and no other. Where it did not have all of them, says so.
    pub fn restore_metrics<R: Serialize>(&self, records: &[R]) -> Result<Option<String>> {
        let path = self.file("metrics.jsonl");
        let mut text = Vec::new();
        for record in records {
            serde_json::to_writer(&mut text, record)
                .map_err(|e| Error::file(format!("metrics: {e}"), "please report this"))?;
            text.push(b'\n');
        }
        let found = if is_there(&path)? { read_bytes(&path)? } else { Vec::new() };
        if found != text {
            write_bytes(&path, &text)?;
        }
        let whole = found.starts_with(&text);
        Ok((!whole).then(|| "metrics.jsonl was missing or damaged: it is restored from the checkpoint".into()))
    }

    /// Truncates `metrics.jsonl` to its first `lines` lines.
    pub fn cut_metrics(&self, lines: usize) -> Result<()> {
        let path = self.file("metrics.jsonl");
        if lines == 0 && !is_there(&path)? {
            return Ok(());
        }
        let bytes = read_bytes(&path)?;
        let end: usize = bytes.split_inclusive(|b| *b == b'\n').take(lines).map(<[u8]>::len).sum();
        let whole = bytes[..end].iter().filter(|b| **b == b'\n').count();
        if whole < lines {
            return Err(Error::file(
                format!("{} has {whole} lines, but the checkpoint is at epoch {lines}", path.display()),
                "restore the file, or start again with --overwrite",
            ));
        }
        if end == bytes.len() { Ok(()) } else { write_bytes(&path, &bytes[..end]) }
    }

    /// All epochs so far.
    pub fn read_metrics(&self) -> Result<Vec<EpochRecord>> {
        self.read_metrics_as()
    }

    /// How many lines it has, whole or not; 0 where there is no file.
    pub fn metrics_lines(&self) -> Result<usize> {
        let path = self.file("metrics.jsonl");
        let bytes = if is_there(&path)? { read_bytes(&path)? } else { Vec::new() };
        Ok(bytes.iter().filter(|b| **b == b'\n').count())
    }

    /// As [`read_metrics`](Self::read_metrics), for any kind of run.
    pub fn read_metrics_as<R: for<'a> Deserialize<'a>>(&self) -> Result<Vec<R>> {
        let path = self.whole("metrics.jsonl")?;
        let text = String::from_utf8_lossy(&read_bytes(&path)?).into_owned();
        let parse = |(i, line): (usize, &str)| {
            serde_json::from_str(line)
                .map_err(|e| Error::file(format!("{}, line {}: {e}", path.display(), i + 1), "remove the broken line"))
        };
        text.lines().enumerate().map(parse).collect()
    }
}
