//! What the agent gives to `elemental`, read by the stand-in, which pulls as the
//! real one does.

use std::path::Path;
use std::process::Output;

use agent::ground::paths::Root;
use agent::host::elemental::registry::RegistryFiles;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control_plane::registry::{Access, PASSWORD, USER};
use coordinator_core::registry_access::read_access;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use tokio::process::Command;

use crate::images::{GZIP, gzip, tar};
use crate::start_registry;

fn secret(address: &str, password: Option<&str>, authority: Option<&str>) -> Secret {
    let login =
        |password| json!({ "auths": { address: { "auth": STANDARD.encode(format!("{USER}:{password}")) } } });
    let data = [
        (".dockerconfigjson", password.map(|password| login(password).to_string())),
        ("ca.crt", authority.map(str::to_owned)),
        // Another proxy than none would be asked for the registry.
        ("httpsProxy", Some("http://127.0.0.1:1".to_owned())),
        ("noProxy", Some("127.0.0.1".to_owned())),
    ];
    let data: serde_json::Map<_, _> = data
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), json!(STANDARD.encode(value?)))))
        .collect();
    serde_json::from_value(json!({ "type": "kubernetes.io/dockerconfigjson", "data": data })).unwrap()
}

/// Without the sleeps between the tries of a pull.
async fn pull(image: &str, access: &RegistryFiles, tree: &Path) -> Output {
    let programs = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/true", programs.path().join("sleep")).unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let stand_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../iso/elemental/elemental");
    let mut command = Command::new("sh");
    command.arg(stand_in).args(["pull-image", image]).arg(tree);
    command.env_clear().env("PATH", path).envs(access.environment()).output().await.unwrap()
}

// Fault: a registry has a private CA or wants a password, and the Secret for it is missing or wrong.
// Shown: condition `ImageResolved` of the machine: `RegistrySecretInvalid`; else the plan fails with the cause of `elemental`.
#[tokio::test(flavor = "multi_thread")]
async fn host_pulls_with_secret_of_its_machine() {
    let registry = start_registry(&Access::Password).await;
    let layer = gzip(&tar(&[("etc/os-release", b"v1")]));
    registry.push_image("os/base", "v1", "amd64", &[(GZIP, &layer)]).await.unwrap();
    let image = format!("oci:{}/os/base:v1", registry.address());
    let host = tempfile::tempdir().unwrap();
    let root = Root::at(host.path());
    let tree = host.path().join("tree");
    for (name, password, authority, want) in [
        ("neither", None, None, Err("x509: certificate signed by unknown authority")),
        ("no password", None, Some(registry.authority()), Err("UNAUTHORIZED")),
        ("wrong password", Some("wrong horse"), Some(registry.authority()), Err("UNAUTHORIZED")),
        ("no CA", Some(PASSWORD), None, Err("x509: certificate signed by unknown authority")),
        ("both", Some(PASSWORD), Some(registry.authority()), Ok("v1")),
    ] {
        let access = read_access(&secret(registry.address(), password, authority), &image).unwrap();
        let files = RegistryFiles::write(&root, &access).unwrap();
        let output = pull(&image, &files, &tree).await;
        drop(files);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match want {
            Ok(content) => {
                assert!(output.status.success(), "{name}: {said}");
                assert_eq!(std::fs::read_to_string(tree.join("etc/os-release")).unwrap(), content);
            }
            Err(cause) => {
                let last = said.lines().last().unwrap_or_default();
                assert!(!output.status.success() && last.contains(cause), "{name}: {said}");
            }
        }
        assert!(!said.contains("horse") && !said.contains("Basic"), "{name}: {said}");
        assert_eq!(std::fs::read_dir(root.runtime()).unwrap().count(), 0, "{name}: nothing is left");
    }
}
