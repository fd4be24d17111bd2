//! Tests of the program by its command line, in one binary, so that it is linked once.

#![allow(clippy::unwrap_used)]

#[path = "program/campaign.rs"]
mod campaign;
#[path = "program/cli.rs"]
mod cli;
#[path = "program/common.rs"]
mod common;
#[path = "program/curate.rs"]
mod curate;
#[path = "program/data.rs"]
mod data;
#[path = "program/detect.rs"]
mod detect;
#[path = "program/determinism.rs"]
mod determinism;
#[cfg(target_os = "linux")]
#[path = "program/disk.rs"]
mod disk;
#[path = "program/dry_run.rs"]
mod dry_run;
#[cfg(target_os = "linux")]
#[path = "program/errors.rs"]
mod errors;
#[path = "program/eval.rs"]
mod eval;
#[path = "program/export.rs"]
mod export;
#[path = "program/faults.rs"]
mod faults;
#[path = "program/findings.rs"]
mod findings;
#[path = "program/golden.rs"]
mod golden;
#[path = "program/hostile.rs"]
#[cfg(unix)]
mod hostile;
#[path = "program/layers.rs"]
mod layers;
#[cfg(target_os = "linux")]
#[path = "program/memory.rs"]
mod memory;
#[path = "program/photos.rs"]
mod photos;
#[cfg(target_os = "linux")]
#[path = "program/power.rs"]
mod power;
#[path = "program/precision.rs"]
mod precision;
#[path = "program/probes.rs"]
mod probes;
#[path = "program/report.rs"]
mod report;
#[path = "program/reproduce.rs"]
mod reproduce;
#[path = "program/resume.rs"]
mod resume;
#[path = "program/serve.rs"]
mod serve;
#[path = "program/systems.rs"]
mod systems;
#[cfg(target_os = "linux")]
#[path = "program/terminals.rs"]
mod terminals;
#[path = "program/together.rs"]
mod together;
