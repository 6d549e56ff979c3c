use std::process::ExitCode;

fn main() -> ExitCode {
    sqm_autotune::cli::main()
}
