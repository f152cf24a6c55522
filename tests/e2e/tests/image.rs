//! The image of the coordinator: its program runs with nothing but what is in the image.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_plane::parts::Parts;
use control_plane::process::{Server, Spec};
use control_plane::{ClusterApi, ControlPlane, Settings, apply, ports};
use coordinator_api::crds;
use e2e::manifests;
use e2e::replicas::{NAMESPACE, USER};
use flate2::read::GzDecoder;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::Value;
use tar::Archive;

/// What the container runtime would write: nothing else in the root resolves a name.
const HOSTS: &str = "127.0.0.1 localhost\n";
/// What it mounts: a static program reads random bytes from `/dev/urandom`.
const ENTER: &str = r#"mount --rbind /dev "$0/dev" && exec chroot "$0" "$@""#;

fn blob(archive: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
    file(archive, &format!("blobs/{digest}"))
}

fn file(archive: &Path, name: &str) -> Vec<u8> {
    let mut archive = Archive::new(std::fs::File::open(archive).unwrap());
    let mut entries = archive.entries().unwrap().map(Result::unwrap);
    let mut entry = entries.find(|entry| entry.path().unwrap() == Path::new(name)).unwrap();
    let mut content = vec![];
    entry.read_to_end(&mut content).unwrap();
    content
}

/// The configuration of the image, whose layers are unpacked.
fn unpack(archive: &Path, root: &Path) -> Value {
    let index: Value = serde_json::from_slice(&file(archive, "index.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&blob(archive, &index["manifests"][0])).unwrap();
    for layer in manifest["layers"].as_array().unwrap() {
        let layer = blob(archive, layer);
        Archive::new(GzDecoder::new(layer.as_slice())).unpack(root).unwrap();
    }
    serde_json::from_slice(&blob(archive, &manifest["config"])).unwrap()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinator_runs_in_the_root_of_its_image() {
    let archive = PathBuf::from(std::env::var_os("IMAGE").expect("IMAGE names the archive of `make image`"));
    let root = tempfile::tempdir().unwrap();
    let config = unpack(&archive, root.path());
    std::fs::write(root.path().join("etc/hosts"), HOSTS).unwrap();
    std::fs::create_dir_all(root.path().join("dev")).unwrap();

    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let client = management.admin().await.unwrap();
    for crd in crds::all() {
        apply::manifest(&client, &crds::yaml(&crd).unwrap()).await.unwrap();
    }
    for manifest in manifests::rights(&[]) {
        apply::manifest(&client, &manifest).await.unwrap();
    }
    // The coordinator waits for its kinds.
    let _cluster_api = ClusterApi::start(&parts, &management).await.unwrap();
    let kubeconfig = management.kubeconfig_text(USER, "system:serviceaccounts").unwrap();
    let kubeconfig = kubeconfig.replace("https://127.0.0.1", "https://localhost");
    std::fs::write(root.path().join("kubeconfig"), kubeconfig).unwrap();

    let [port, health, diagnostics] = std::array::from_fn(|_| ports::free().unwrap());
    let enter = ["--map-root-user", "--mount", "/bin/sh", "-c", ENTER];
    let mut arguments: Vec<String> = enter.map(str::to_owned).to_vec();
    arguments.push(root.path().display().to_string());
    arguments.extend(texts(&config["config"]["Entrypoint"]));
    arguments.extend([
        "--server-url=https://localhost:8443".to_owned(),
        format!("--own-namespace={NAMESPACE}"),
        format!("--listen=127.0.0.1:{port}"),
        format!("--health-listen=127.0.0.1:{health}"),
        format!("--diagnostics-address=127.0.0.1:{diagnostics}"),
    ]);
    let mut environment = vec![("KUBECONFIG".to_owned(), "/kubeconfig".to_owned())];
    for variable in texts(&config["config"]["Env"]) {
        let (name, value) = variable.split_once('=').unwrap();
        assert!(root.path().join(value.trim_start_matches('/')).is_file(), "{variable}");
        environment.push((name.to_owned(), value.to_owned()));
    }
    let log = management.directory().join("image.log");
    let binary = PathBuf::from("/usr/bin/unshare");
    let server =
        Server::start(Spec { name: "image".to_owned(), binary, arguments, environment, log }).unwrap();
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    // It found the API server by its name, and trusts it.
    let leads = || async {
        let lease = leases.get_opt("baremetal-coordinator").await.map_err(|error| error.to_string())?;
        lease.map(drop).ok_or_else(|| "no Lease".to_owned())
    };
    server.ready(Duration::from_mins(1), leads).await.unwrap();
}
