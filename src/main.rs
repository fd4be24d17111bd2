//! The `pcp` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    pcp::cli::main()
}
