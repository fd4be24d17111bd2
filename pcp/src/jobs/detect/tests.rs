//! Detectors on made-up shapes.
