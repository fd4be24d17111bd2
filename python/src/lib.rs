//! The extension module `pcp._pcp`: jobs of the library and functions on matrices, for the Python classes in `pcp/`.

mod array;
mod fault;
mod images;
mod matrices;
mod task;

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the program with these words, of which the first is its name; returns its exit code. To be called once in a process.
#[pyfunction]
fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| pcp_cli::main(words))
}

#[pymodule]
fn _pcp(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", pcp::run::VERSION)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    matrices::add(module)?;
    images::add(module)
}
