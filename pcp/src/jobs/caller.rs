//! The program that calls a job.

/// The program that calls a job; the run folder remembers it. A library's user may leave it empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The command that the user gave.
    pub command: String,
    /// Revision of the program.
    pub revision: String,
}
