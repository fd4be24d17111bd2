//! Everything the program does, one function per verb.

pub mod folders;
pub mod pictures;
