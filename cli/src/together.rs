//! Several processes that train one network: who started them, and how they end.
//!
//! `mpirun` and `srun` tell their processes by variables how many there are. A program with the feature `mpi` makes a [`Team`] of them; one
//! without it refuses, instead of training the same network several times.

#[cfg(feature = "mpi")]
mod mpi;

use super::terminal::say;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Kind, Result};
use pcp_core::peers::Team;
use std::sync::OnceLock;
use std::time::Duration;

/// The variables that tell the number of processes: of Open MPI, of MPICH and its relatives, of `srun`.
const COUNTS: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"];

/// How long a process with an error waits for the one that leads: where all have the same one, that one tells it.
const LEADER_FIRST: Duration = Duration::from_secs(3);

/// The number of this process and of all, once they are known.
static PLACE: OnceLock<(usize, usize)> = OnceLock::new();

/// Says that processes which were started together have nothing to do with each other.
const ALONE: &str = "PCP_ALONE";

/// The cores of this machine, whether this process may use them or not, where the system says it: ranges such as `0-3,8`.
pub(super) fn cores_of_machine() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?)
    };
    text.trim().split(',').map(range).sum()
}

/// How many processes were started together.
pub(super) fn started() -> usize {
    if std::env::var_os(ALONE).is_some_and(|value| !value.is_empty()) {
        return 1;
    }
    let count = |name: &str| std::env::var(name).ok()?.trim().parse::<usize>().ok();
    COUNTS.iter().filter_map(|name| count(name)).max().unwrap_or(1)
}

/// Whether this process prints messages: of several, one does.
pub(super) fn speaks() -> bool {
    PLACE.get().is_none_or(|(rank, _)| *rank == 0)
}

/// An error where several processes were started for `what`, which one process does.
pub(super) fn require_one(what: &str) -> Result<()> {
    match started() {
        0 | 1 => Ok(()),
        n => Err(Error::usage(
            format!("{n} processes were started, and {what} is done by one"),
            "start one process, or set PCP_ALONE=1 where they have nothing to do with each other",
        )),
    }
}

/// The processes that were started together; `stop` is requested where this one is to stop.
pub(super) fn team(stop: &Cancel) -> Result<Team> {
    let team = match started() {
        0 | 1 => Team::default(),
        n => connected(n, stop)?,
    };
    let _ = PLACE.set((team.rank(), team.count()));
    Ok(team)
}

#[cfg(feature = "mpi")]
fn connected(n: usize, stop: &Cancel) -> Result<Team> {
    let peers = mpi::World::connect().ok_or_else(|| {
        Error::usage(
            format!("{n} processes were started, and MPI did not connect them"),
            "start them with the mpirun of the MPI library that the program was built with",
        )
    })?;
    Ok(Team::new(std::sync::Arc::new(peers), stop.clone()))
}

#[cfg(not(feature = "mpi"))]
fn connected(n: usize, _stop: &Cancel) -> Result<Team> {
    Err(Error::usage(
        format!("{n} processes were started, and this program was built without MPI: each would train alone"),
        "build it with `cargo build --release -p pcp-cli --features mpi` (docs/scale.md); or set PCP_ALONE=1 where each is to train alone",
    ))
}

/// Tells the error of one of several processes, and ends all of them with its exit code. A stop that all agreed on is no error, and whoever
/// is alone goes on.
pub(super) fn fail(e: &Error) {
    let Some(&(rank, count)) = PLACE.get().filter(|(_, count)| *count > 1) else { return };
    if e.kind == Kind::Stopped {
        return;
    }
    if rank > 0 {
        std::thread::sleep(LEADER_FIRST);
        say(&format!("process {rank} of {count}:"));
    }
    super::tell(e);
    #[cfg(feature = "mpi")]
    mpi::abort(e.exit_code());
}

/// Ends the connection with the other processes.
pub(super) fn end() {
    #[cfg(feature = "mpi")]
    mpi::end();
}
