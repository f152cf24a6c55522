//! Regenerates the code of the contract, without `protoc`.

use std::path::Path;

const FILES: [&str; 7] = ["balancer", "facts", "host", "network", "plan", "registration", "report"];

/// Messages whose derived `Debug` would publish secrets; `wire.rs` implements `Debug` for them.
const SECRET: [&str; 7] = [
    "Seed",
    "Keyfile",
    "WriteCustomFile",
    "RunCustomInstruction",
    "RegistryAccess",
    "CoordinatorSettings",
    "BeginRequest",
];

/// Renders `src/generated/baremetal.v1alpha1.rs` from the `.proto` files below `root` into the
/// directory `out`.
pub fn generate(root: &Path, out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let files = FILES.map(|name| format!("baremetal/v1alpha1/{name}.proto"));
    let descriptors = protox::compile(files, [root])?;
    tonic_prost_build::configure()
        .out_dir(out)
        .codec_path("crate::codec::Codec")
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        // Most steps have none, and it is large.
        .boxed(".baremetal.v1alpha1.StepDone.system")
        .type_attribute(".", "#[derive(serde::Serialize, serde::Deserialize)]")
        // An agent with another version of the contract has to read an older journal.
        .message_attribute(".", "#[serde(default)]")
        .skip_debug(SECRET.map(|message| format!("baremetal.v1alpha1.{message}")))
        .compile_fds(descriptors)?;
    Ok(())
}
