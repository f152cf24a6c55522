//! The plugin of kubectl as a program.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    kubectl_baremetal::run_program().await
}
