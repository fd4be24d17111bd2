//! The program `pcp`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(pcp_cli::main(std::env::args_os()))
}
