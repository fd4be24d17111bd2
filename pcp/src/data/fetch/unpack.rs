//! Safe unpacking: only plain files, only into one folder, with limits on number and size.

use std::io::{Read, Write};
use std::path::Path;

use flate2::read::GzDecoder;
use tar::EntryType;

use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder, write_atomic};

/// The most bytes and entries of an archive.
const MOST_BYTES: u64 = 1 << 30;
const MOST_ENTRIES: usize = 100;

fn refused(what: impl Into<String>) -> Error {
    Error::data(what, "do not trust this archive: remove it, and get it from its official page")
}

/// Writes the files of a `.tar.gz` whose entries are all in `folder` to `out`, each atomically. Returns their number.
pub fn unpack(archive: impl Read, folder: &str, out: &Path, stop: &Cancel) -> Result<usize> {
    walk(archive, folder, stop, &mut |name, size, contents| {
        make_folder(out)?;
        // Errors of the archive are distinguished from errors of the disk.
        let mut broken = None;
        let written = write_atomic(&out.join(name), |w| {
            let (mut copied, mut buffer) = (0, vec![0; 1 << 16]);
            while copied < size {
                match contents.read(&mut buffer) {
                    Ok(0) => broken = Some(format!("the archive ends within {name:?}, at {copied} of {size} bytes")),
                    Ok(n) => {
                        w.write_all(&buffer[..n])?;
                        copied += n as u64;
                    }
                    Err(e) => broken = Some(format!("the archive is damaged within {name:?}: {e}")),
                }
                if broken.is_some() {
                    return Err(std::io::ErrorKind::InvalidData.into());
                }
            }
            Ok(())
        });
        broken.map_or(written, |what| Err(refused(what)))
    })
}

/// Calls `take` with the name, size and contents of every file of a `.tar.gz` whose entries are all in `folder`. Links, paths
/// that lead elsewhere and special files are errors. Returns the number of files.
pub fn walk(
    archive: impl Read,
    folder: &str,
    stop: &Cancel,
    take: &mut dyn FnMut(&str, u64, &mut dyn Read) -> Result<()>,
) -> Result<usize> {
    let damaged = |e: std::io::Error| refused(format!("the archive is damaged: {e}"));
    let mut archive = tar::Archive::new(GzDecoder::new(archive).take(MOST_BYTES));
    let mut files = 0;
    // Raw: names and sizes are those of the plain headers, and no entry changes the meaning of the next.
    for (seen, entry) in archive.entries().map_err(damaged)?.raw(true).enumerate() {
        stop.check()?;
        let mut entry = entry.map_err(damaged)?;
        if seen >= MOST_ENTRIES {
            return Err(refused(format!("the archive has more than {MOST_ENTRIES} entries")));
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let name = name.strip_prefix("./").unwrap_or(&name);
        match entry.header().entry_type() {
            EntryType::Regular => {}
            EntryType::Directory if name.trim_end_matches('/') == folder => continue,
            EntryType::XHeader | EntryType::XGlobalHeader => continue,
            EntryType::Symlink | EntryType::Link => return Err(refused(format!("{name:?} in the archive is a link"))),
            other => return Err(refused(format!("{name:?} in the archive is not a plain file but {other:?}"))),
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let own = name.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        let Some(own) = own.filter(|own| own.chars().all(plain) && !own.is_empty() && !own.starts_with('.')) else {
            return Err(refused(format!("{name:?} in the archive leads out of {folder}")));
        };
        let size = entry.size();
        if size > MOST_BYTES {
            return Err(refused(format!("{name:?} in the archive claims {size} bytes")));
        }
        take(own, size, &mut entry)?;
        files += 1;
    }
    Ok(files)
}
