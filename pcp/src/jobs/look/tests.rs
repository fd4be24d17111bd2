//! Looks at folders that are made up.
