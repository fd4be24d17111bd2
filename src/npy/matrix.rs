//! A matrix from a NumPy file, whoever wrote it.

use crate::error::{Error, Result};
use crate::features::Features;
use npyz::{NpyFile, Order};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

const WANTED: &str = "give a 2-D array of finite float32 numbers, as numpy.save(file, x.astype('<f4')) writes it";

/// Reads the rows of a 2-D little-endian float32 array in C order.
pub fn read_matrix(path: &Path) -> Result<Features> {
    let wrong = |what: String| Error::data(format!("{}: {what}", path.display()), WANTED);
    let unreadable = |e: std::io::Error| Error::io("read", path, &e);
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    let npy = NpyFile::new(BufReader::new(file)).map_err(|e| wrong(format!("no NumPy array: {e}")))?;
    let kind = npy.dtype().descr();
    if kind != "'<f4'" {
        return Err(wrong(format!("its numbers are {kind}, not '<f4'")));
    }
    let &[rows, dim] = npy.shape() else {
        return Err(wrong(format!("it has {} dimensions, not 2", npy.shape().len())));
    };
    if npy.order() != Order::C {
        return Err(wrong("it is in Fortran order".into()));
    }
    if rows == 0 || dim == 0 {
        return Err(wrong("it is empty".into()));
    }
    // Before memory is set aside for what the header promises.
    if rows.checked_mul(dim).and_then(|n| n.checked_mul(4)).is_none_or(|n| n > bytes) {
        return Err(wrong(format!("{rows} x {dim} numbers are promised, but the file ends before them")));
    }
    let values: Vec<f32> = npy.into_vec().map_err(|e| wrong(format!("the file ends early: {e}")))?;
    if let Some(at) = values.iter().position(|x| !x.is_finite()) {
        return Err(wrong(format!("row {} holds {}", at as u64 / dim, values[at])));
    }
    Ok(Features { rows: rows as usize, dim: dim as usize, values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npy::write_npy;
    use npyz::WriterBuilder;

    fn refused(fill: impl FnOnce(&Path)) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        fill(&path);
        let error = read_matrix(&path).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.message.contains("x.npy"), "{}", error.message);
        error.message
    }

    #[test]
    fn a_matrix_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        write_npy(&path, &[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.5]).unwrap();
        assert_eq!(read_matrix(&path).unwrap(), Features::new(3, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.5]));
    }

    #[test]
    fn anything_else_is_refused_and_named() {
        let says = |message: String, word: &str| assert!(message.contains(word), "{word} is not in {message}");
        says(refused(|p| write_npy(p, &[2, 1], &[1.0f64, 2.0]).unwrap()), "'<f8'");
        says(refused(|p| write_npy(p, &[2, 1], &[1u32, 2]).unwrap()), "'<u4'");
        says(refused(|p| write_npy(p, &[2], &[1.0f32, 2.0]).unwrap()), "1 dimensions");
        says(refused(|p| write_npy(p, &[2, 1, 1], &[1.0f32, 2.0]).unwrap()), "3 dimensions");
        says(refused(|p| write_npy(p, &[0, 4], &[0.0f32; 0]).unwrap()), "empty");
        says(refused(|p| write_npy(p, &[2, 2], &[1.0f32, 2.0, f32::NAN, 0.0]).unwrap()), "row 1 holds NaN");
        says(refused(|p| write_npy(p, &[1, 2], &[1.0f32, f32::INFINITY]).unwrap()), "row 0 holds inf");
        says(refused(|p| std::fs::write(p, b"PK").unwrap()), "no NumPy array");
        says(refused(|_| ()), "cannot read");
        let cut = |keep: usize| {
            refused(|p| {
                write_npy(p, &[300, 10], &[1.0f32; 3000]).unwrap();
                let whole = std::fs::read(p).unwrap();
                std::fs::write(p, &whole[..whole.len() - keep]).unwrap();
            })
        };
        says(cut(4), "ends");
        says(cut(11_000), "ends before");
        let columns = refused(|p| {
            let options = npyz::WriteOptions::new().default_dtype().shape(&[2, 2]).order(Order::Fortran);
            let mut npy = options.writer(File::create(p).unwrap()).begin_nd().unwrap();
            npy.extend([1.0f32; 4]).unwrap();
            npy.finish().unwrap();
        });
        says(columns, "Fortran");
    }
}
