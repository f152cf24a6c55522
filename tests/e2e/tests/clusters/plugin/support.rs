//! The bundle for reports holds no value of any Secret.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use tokio::process::Command;

use super::{DONE, Story};

/// What operators write into objects themselves.
const PLANTED: [&str; 4] = [
    "planted-token-of-a-registration",
    "planted-token-of-a-server",
    "planted-password-of-a-host",
    "planted-psk-of-a-network",
];

/// Keys of Secrets whose values are public.
const PUBLIC_KEYS: [&str; 8] = [
    "format",
    "ca.crt",
    "namespace",
    "applied-checksum",
    "failed-checksum",
    "last-apply-time",
    "success-count",
    "failure-count",
];

pub(super) async fn check_bundle(story: &Story<'_>) -> anyhow::Result<()> {
    story.step("kubectl baremetal: a bundle for reports, without secrets");
    let environment = &story.setup.environment;
    environment.management.apply(include_str!("secretive.yaml")).await?;
    let file = environment.directory.path().join("support.tar.gz");
    let line = format!("support -A --file {}", file.display());
    story.plugin.expect(&line, DONE, &["Secrets are not read"]).await?;
    let mode = std::fs::metadata(&file)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "the bundle has mode {mode:o}");
    let text = unpack(&file).await?;
    let parts = [
        "kind: MachineInventory",
        "kind: BaremetalMachine",
        "kind: Event",
        "Provisioned",
        "API server v",
        "NEXT ACTION",
    ];
    for part in parts {
        ensure!(text.contains(part), "the bundle lacks {part:?}");
    }
    for planted in PLANTED {
        ensure!(!text.contains(planted), "the bundle has {planted}:\n{}", around(&text, planted));
    }
    let secrets: Api<Secret> = Api::all(environment.management.admin.clone());
    let mut looked_for = 0;
    for secret in secrets.list(&ListParams::default()).await?.items {
        for (key, value) in secret.data.unwrap_or_default() {
            let Ok(value) = String::from_utf8(value.0) else { continue };
            if PUBLIC_KEYS.contains(&key.as_str()) || value.trim().len() < 8 {
                continue;
            }
            let name = secret.metadata.name.as_deref().unwrap_or_default();
            ensure!(!text.contains(value.trim()), "the bundle has {key} of the Secret {name}");
            looked_for += 1;
        }
    }
    ensure!(looked_for > 4, "only {looked_for} values of Secrets were looked for");
    let token = environment.workload.bootstrap_token();
    ensure!(!text.contains(token), "the bundle has the bootstrap token:\n{}", around(&text, token));
    Ok(())
}

/// Every file of the archive, one after the other.
async fn unpack(file: &Path) -> anyhow::Result<String> {
    let output =
        Command::new("tar").args(["--extract", "--to-stdout", "--gzip", "--file"]).arg(file).output();
    let output = output.await.context("run tar")?;
    ensure!(output.status.success(), "tar: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn around(text: &str, part: &str) -> String {
    text.lines().filter(|line| line.contains(part)).collect::<Vec<_>>().join("\n")
}
