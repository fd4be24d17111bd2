//! The program `pcp`.

#[path = "../shortage.rs"]
mod shortage;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(pcp_cli::main(std::env::args_os()))
}
