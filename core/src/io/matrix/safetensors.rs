//! A matrix from a safetensors file: its only 2-D array of floats, or the one called `embeddings`.

use crate::error::{Error, Result, listed};
use crate::io::atomic::read_bytes;
use crate::io::npy::Number;
use crate::matrix::Matrix;
use ::safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;

/// The array that is read when there are several.
const NAME: &str = "embeddings";

pub fn read(path: &Path) -> Result<Matrix> {
    let wrong = |what: String| {
        let message = format!("{}: {what}", path.display());
        Error::data(message, format!("give a safetensors file with one 2-D array of floats, or with one called {NAME}"))
    };
    let bytes = read_bytes(path)?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| wrong(format!("not a safetensors file, or truncated: {e}")))?;
    let mut matrices: Vec<(String, TensorView)> =
        file.tensors().into_iter().filter(|(_, t)| t.shape().len() == 2 && number(t.dtype()).is_some()).collect();
    matrices.sort_by(|a, b| a.0.cmp(&b.0));
    let found = match &matrices[..] {
        [one] => Some(one),
        several => several.iter().find(|(name, _)| name == NAME),
    };
    let Some((_, tensor)) = found else {
        let what = match matrices.is_empty() {
            true => "it holds no 2-D array of floats".to_string(),
            false => format!("it holds several matrices: {}", listed(matrices.iter().take(5).map(|(name, _)| name))),
        };
        return Err(wrong(what));
    };
    let (rows, dim) = (tensor.shape()[0], tensor.shape()[1]);
    let (Some(number), false) = (number(tensor.dtype()), rows == 0 || dim == 0) else {
        return Err(wrong(format!("it is empty: {rows} x {dim}")));
    };
    let mut values = Vec::with_capacity(rows * dim);
    number.decode(tensor.data(), false, &mut values);
    Ok(Matrix { rows, dim, values })
}

fn number(kind: Dtype) -> Option<Number> {
    match kind {
        Dtype::F16 => Some(Number::F16),
        Dtype::BF16 => Some(Number::Bf16),
        Dtype::F32 => Some(Number::F32),
        Dtype::F64 => Some(Number::F64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(arrays: &[(&str, Dtype, Vec<usize>, Vec<u8>)]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        let views = arrays
            .iter()
            .map(|(name, kind, shape, data)| (*name, TensorView::new(*kind, shape.clone(), data).unwrap()));
        std::fs::write(&path, ::safetensors::serialize(views, None).unwrap()).unwrap();
        (dir, path)
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn the_only_matrix_or_the_one_called_embeddings() {
        let values = [1.0, -2.0, 0.5, 4.0];
        let expected = Matrix::new(2, values.to_vec());
        let single = ("a", Dtype::F32, vec![2, 2], bytes(&values));
        let (_dir, path) = file(&[single.clone(), ("bias", Dtype::F32, vec![4], bytes(&values))]);
        assert_eq!(read(&path).unwrap(), expected);
        let brain = values.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
        let (_dir, path) = file(&[single.clone(), (NAME, Dtype::BF16, vec![2, 2], brain)]);
        assert_eq!(read(&path).unwrap(), expected);
        let (_dir, path) = file(&[single.clone(), ("b", Dtype::F32, vec![2, 2], bytes(&values))]);
        assert!(read(&path).unwrap_err().message.contains("several matrices: a, b"));
        let (_dir, path) = file(&[("a", Dtype::F32, vec![4], bytes(&values))]);
        assert!(read(&path).unwrap_err().message.contains("no 2-D array"));
        let (_dir, path) = file(&[("a", Dtype::F32, vec![0, 4], vec![])]);
        assert!(read(&path).unwrap_err().message.contains("empty"));
    }

    #[test]
    fn a_truncated_file() {
        let (_dir, path) = file(&[("a", Dtype::F32, vec![2, 2], bytes(&[1.0; 4]))]);
        let whole = std::fs::read(&path).unwrap();
        for keep in [0, 4, 20, whole.len() - 1] {
            std::fs::write(&path, &whole[..keep]).unwrap();
            assert!(read(&path).unwrap_err().message.contains("x.safetensors"), "{keep} bytes");
        }
    }
}
