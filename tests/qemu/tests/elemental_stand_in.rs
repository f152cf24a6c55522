//! The stand-in of `iso/elemental`, without a host: pulls from a registry on
//! loopback, and the boot assessment.

// All of it is test code, also what stands outside of test functions.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

fn iso() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../iso")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn digest(bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("content");
    fs::write(&file, bytes).unwrap();
    let printed = run(Command::new("sha256sum").arg(&file)).stdout;
    format!("sha256:{}", String::from_utf8(printed).unwrap().split_whitespace().next().unwrap())
}

/// A layer as registries keep it.
fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    run(Command::new("tar").args(["-cz", "-C"]).arg(directory.path()).arg(".")).stdout
}

/// What the registry has, by path, and how it begins.
#[derive(Default)]
struct Registry {
    content: HashMap<String, Vec<u8>>,
    /// Statuses of the next answers about manifests.
    failures: VecDeque<u16>,
    manifests: usize,
}

impl Registry {
    fn add(&mut self, path: &str, bytes: Vec<u8>) -> Value {
        let digest = digest(&bytes);
        let size = bytes.len();
        self.content.insert(format!("/v2/lab/os/{path}/{digest}"), bytes);
        json!({ "digest": digest, "size": size })
    }

    /// An index with a child for another platform first. Its image's digest.
    fn add_image(&mut self, layers: &[Vec<u8>]) -> String {
        let layers: Vec<_> = layers.iter().map(|layer| self.add("blobs", layer.clone())).collect();
        let manifest = serde_json::to_vec(&json!({ "schemaVersion": 2, "layers": layers })).unwrap();
        let mut child = self.add("manifests", manifest);
        let image = child["digest"].as_str().unwrap().to_owned();
        child["platform"] = json!({ "os": "linux", "architecture": "amd64" });
        let other = json!({ "digest": "sha256:0", "platform": { "os": "linux", "architecture": "arm64" } });
        let index = serde_json::to_vec(&json!({ "manifests": [other, child] })).unwrap();
        self.content.insert("/v2/lab/os/manifests/v1".to_owned(), index);
        image
    }

    fn answer(&mut self, path: &str) -> (u16, Vec<u8>) {
        if path == "/v2/" {
            return (200, b"{}".to_vec());
        }
        if path.contains("/manifests/") {
            self.manifests += 1;
            if let Some(status) = self.failures.pop_front() {
                return (status, Vec::new());
            }
        }
        self.content.get(path).map_or((404, Vec::new()), |bytes| (200, bytes.clone()))
    }
}

/// Plain http on loopback; its port.
async fn serve(registry: Arc<Mutex<Registry>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let registry = registry.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        // A TLS handshake: the client goes on with plain http.
                        Err(_) => return,
                    }
                    if request[0] != b'G' {
                        return;
                    }
                }
                let request = String::from_utf8(request).unwrap();
                let path = request.split(' ').nth(1).unwrap();
                let (status, body) = registry.lock().unwrap().answer(path);
                let head = format!(
                    "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                let _ = stream.write_all(&body).await;
            });
        }
    });
    port
}

/// Programs in front of the system's: `sleep` and `grub-editenv` only say how
/// they were called.
fn noted_programs() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["sleep", "grub-editenv"] {
        put_script(
            &directory.path().join(name),
            &format!("echo {name} \"$@\" >>{}/calls", directory.path().display()),
        );
    }
    fs::write(directory.path().join("calls"), "").unwrap();
    directory
}

fn put_script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn calls(programs: &TempDir) -> String {
    fs::read_to_string(programs.path().join("calls")).unwrap()
}

fn script(path: &str, programs: &TempDir) -> Command {
    let mut command = Command::new("sh");
    let system = std::env::var("PATH").unwrap();
    command.arg(iso().join(path)).env("PATH", format!("{}:{system}", programs.path().display()));
    command
}

struct Pulled {
    output: Output,
    tree: TempDir,
    slept: String,
}

impl Pulled {
    fn last_line(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).lines().last().unwrap_or_default().to_owned()
    }
}

async fn pull(reference: String) -> Pulled {
    tokio::task::spawn_blocking(move || {
        let (programs, tree) = (noted_programs(), tempfile::tempdir().unwrap());
        let target = tree.path().join("tree");
        let output = script("elemental/elemental", &programs)
            .args(["pull-image", &reference])
            .arg(&target)
            .output()
            .unwrap();
        Pulled { output, tree, slept: calls(&programs) }
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_after_two_failures() {
    let mut registry = Registry::default();
    let lower =
        layer(&[("etc/os-release", "v1"), ("etc/old", "x"), ("usr/dir/a", "a"), ("boot/vmlinuz", "kernel")]);
    let upper = layer(&[
        ("etc/os-release", "v2"),
        ("etc/.wh.old", ""),
        ("usr/dir/.wh..wh..opq", ""),
        ("usr/dir/b", "b"),
    ]);
    let want = registry.add_image(&[lower, upper]);
    registry.failures = [503, 503].into();
    let registry = Arc::new(Mutex::new(registry));
    let port = serve(registry.clone()).await;
    for form in ["oci:127.0.0.1", "oci://127.0.0.1", "docker:127.0.0.1"] {
        let pulled = pull(format!("{form}:{port}/lab/os:v1")).await;
        assert!(pulled.output.status.success(), "{form}: {:?}", pulled.output);
        assert_eq!(String::from_utf8_lossy(&pulled.output.stdout).trim(), want, "{form}");
        let tree = pulled.tree.path().join("tree");
        let read = |path: &str| fs::read_to_string(tree.join(path)).ok();
        assert_eq!(read("etc/os-release").as_deref(), Some("v2"), "{form}: the upper layer wins");
        assert_eq!((read("etc/old"), read("usr/dir/a"), read("etc/.wh.old")), (None, None, None), "{form}");
        assert_eq!(read("usr/dir/b").as_deref(), Some("b"), "{form}");
        let retries = if form == "oci:127.0.0.1" { "sleep 3\nsleep 3\n" } else { "" };
        assert_eq!(pulled.slept, retries, "{form}");
        assert_eq!(fs::read_dir(pulled.tree.path()).unwrap().count(), 1, "{form}: nothing else is left");
    }
    // Two of the index failed; the others read index and manifest.
    assert_eq!(registry.lock().unwrap().manifests, 2 + 3 * 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_pull_ends_with_its_cause() {
    let mut registry = Registry::default();
    let damaged = layer(&[("a", "1")]);
    registry.add_image(std::slice::from_ref(&damaged));
    registry.content.insert(format!("/v2/lab/os/blobs/{}", digest(&damaged)), layer(&[("a", "2")]));
    let registry = Arc::new(Mutex::new(registry));
    let port = serve(registry.clone()).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    for (name, reference, failures, cause) in [
        ("no such tag", format!("oci:127.0.0.1:{port}/lab/os:v9"), vec![], "MANIFEST_UNKNOWN"),
        ("closed", format!("oci:127.0.0.1:{port}/lab/os:v1"), vec![401; 3], "UNAUTHORIZED"),
        ("overloaded", format!("oci:127.0.0.1:{port}/lab/os:v1"), vec![503; 3], "unexpected status code 503"),
        (
            "damaged layer",
            format!("oci:127.0.0.1:{port}/lab/os:v1"),
            vec![],
            "error verifying sha256 checksum",
        ),
        ("another digest", format!("oci:127.0.0.1:{port}/lab/os@sha256:1"), vec![], "MANIFEST_UNKNOWN"),
        ("no listener", format!("oci:127.0.0.1:{closed}/lab/os:v1"), vec![], "connection refused"),
    ] {
        registry.lock().unwrap().failures = failures.into();
        let pulled = pull(reference).await;
        assert_eq!(pulled.output.status.code(), Some(1), "{name}: {:?}", pulled.output);
        let last = pulled.last_line();
        assert!(last.contains("ERROR") && last.contains(cause), "{name}: {last}");
        assert_eq!(pulled.slept, "sleep 3\nsleep 3\n", "{name}: three tries");
    }
}

#[test]
fn a_snapshot_is_good_when_every_checker_passed() {
    let (programs, root) = (noted_programs(), tempfile::tempdir().unwrap());
    let at = |path: &str| root.path().join(path);
    for directory in ["oem", "run/elemental"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    for file in ["oem/grubenv", "run/elemental/active_mode"] {
        fs::write(at(file), "").unwrap();
    }
    let asked = at("asked").display().to_string();
    put_script(&at("usr/libexec/elemental-checker/first"), &format!("echo first \"$@\" >>{asked}"));
    let second = at("usr/libexec/elemental-checker/second");
    put_script(&second, &format!("echo second \"$@\" >>{asked}; exit 1"));
    let assess = || {
        let mut command = script("elemental/root/usr/sbin/elemental-boot-assessment", &programs);
        command.arg(root.path()).status().unwrap().success()
    };
    assert!(!assess());
    assert_eq!(calls(&programs), "", "still on trial");
    put_script(&second, &format!("echo second \"$@\" >>{asked}"));
    assert!(assess());
    let asked = fs::read_to_string(&asked).unwrap();
    assert_eq!(asked, "first check\nsecond check\nsecond check\n", "what has passed is not asked again");
    let unset = |name| format!("grub-editenv {} unset {name}\n", at("oem/grubenv").display());
    assert_eq!(calls(&programs), unset("last_boot_attempt") + &unset("boot_assessment_check"));
}
