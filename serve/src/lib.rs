//! A page on this machine about runs: watch them live, explore their images, decide what belongs.
//!
//! ```text
//! request: what is asked    access: who may ask      server: connections, limits      routes, reply: what is answered
//! catalogue: the runs      subject: one run, read when it is asked for, and again when it changes
//! pictures, layout, search, findings, decide, live: what a run is asked
//! ```
//!
//! The page itself is plain HTML, CSS and JavaScript in `assets/`, compiled in; it shares its drawing code with the report. Everything that a
//! run folder holds is treated as a stranger's: images are found by their number in the run, never by a path that a file or a request
//! names, and nothing is written but `decisions.jsonl`, `map.npz` and exports in the run folder.

mod access;
mod catalogue;
mod decide;
mod findings;
mod layout;
mod live;
mod pictures;
mod reply;
mod request;
mod routes;
mod search;
mod server;
mod subject;
#[cfg(test)]
mod tests;

pub use catalogue::Catalogue;
pub use live::Watch;
pub use server::{Listen, Server};
pub use subject::MatrixOptions;
