//! The systems: what each takes for positives, and what its loss is.

pub mod pcp;
