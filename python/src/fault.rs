//! Errors of the library as Python exceptions with the same words: the classes in `pcp/errors.py`.

use pcp_core::error::{Error, Kind};
use pyo3::prelude::*;

/// The exception for an error.
pub fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error.kind {
        Kind::Usage => "UsageError",
        Kind::Data => "DataError",
        Kind::File => "FileError",
        Kind::Training => "TrainingError",
        Kind::Stopped => return pyo3::exceptions::PyKeyboardInterrupt::new_err(error.message.clone()),
    };
    let made = py
        .import("pcp.errors")
        .and_then(|errors| errors.getattr(class))
        .and_then(|class| class.call1((error.message.as_str(), error.hint.as_str())));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(e) => e,
    }
}
