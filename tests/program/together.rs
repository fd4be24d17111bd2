//! Processes that were started together.

use crate::common::*;

/// Without MPI, several processes would train the same network several times.
#[test]
fn processes_that_were_started_together_are_refused_without_mpi() {
    for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"] {
        let refused = |args: &[&str]| {
            let output = pcp(args).env(name, "3").output().unwrap();
            assert_eq!(output.status.code(), Some(2));
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let said = refused(&["train", "--limit", "20"]);
        assert!(said.contains("3 processes were started") && said.contains("--features mpi"), "{said}");
        let alone = pcp(&["train", "--dry-run", "--limit", "20", "--width", "4"])
            .envs([(name, "3"), ("PCP_ALONE", "1")])
            .output();
        assert!(alone.unwrap().status.success(), "they have nothing to do with each other");
        assert!(refused(&["train", "--dry-run"]).contains("is done by one"));
        assert!(pcp(&["--version"]).env(name, "3").output().unwrap().status.success());
        assert!(pcp(&["data", "check", "bundled"]).env(name, "1").output().unwrap().status.success());
    }
}
