//! NumPy's arrays as matrices, and back.
//!
//! Rows are copied once, on the way in: the interpreter lock is released while they are worked on, and another thread may write into the
//! array meanwhile.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods};
use pcp_core::matrix::Matrix;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The rows of a C-contiguous float32 array.
pub fn matrix(array: &PyReadonlyArray2<'_, f32>) -> PyResult<Matrix> {
    let [rows, dim] = [array.shape()[0], array.shape()[1]];
    if dim == 0 {
        return Err(PyValueError::new_err("the matrix has no columns"));
    }
    let values = array.as_slice().map_err(|_| PyValueError::new_err("the array is not C-contiguous"))?.to_vec();
    Ok(Matrix { rows, dim, values })
}

/// A matrix as an array, without a copy.
pub fn array(py: Python<'_>, matrix: Matrix) -> PyResult<Bound<'_, PyArray2<f32>>> {
    PyArray1::from_vec(py, matrix.values).reshape([matrix.rows, matrix.dim])
}

/// Indices as NumPy's usual int32.
pub fn indices(py: Python<'_>, of: impl IntoIterator<Item = u32>) -> Bound<'_, PyArray1<i32>> {
    PyArray1::from_vec(py, of.into_iter().map(|i| i as i32).collect())
}
