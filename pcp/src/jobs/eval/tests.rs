//! Measures of a tiny run.
