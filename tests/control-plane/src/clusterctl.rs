//! The real `clusterctl` on a repository of files and one API server.
//!
//! Cluster API's own providers are in the repository as they run here: processes beside the API
//! server and no Deployments. cert-manager is there by its kinds alone: `clusterctl` wants to create
//! objects of them, and nothing here needs the certificates.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::process::Command;

use crate::parts::{self, Module, Part, Parts, Provider};
use crate::{ClusterApi, ControlPlane, apply, control_plane};

/// `clusterctl` could not be prepared or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The binary is missing.
    #[error("find clusterctl")]
    Parts(#[from] parts::Error),
    /// The repository could not be written.
    #[error("write the repository of clusterctl")]
    Files(#[from] io::Error),
    /// The kinds of cert-manager could not be applied.
    #[error("apply the kinds of cert-manager")]
    Apply(#[from] apply::Error),
    /// The API server could not be reached.
    #[error("use the control plane for clusterctl")]
    ControlPlane(#[from] control_plane::Error),
    /// A document could not be written.
    #[error("write the configuration of clusterctl")]
    Write(#[from] serde_norway::Error),
    /// It ended with an error.
    #[error("clusterctl {arguments} ended with an error:\n{said}")]
    Failed {
        /// What it was asked for.
        arguments: String,
        /// What it wrote to standard error.
        said: String,
    },
}

/// A configured `clusterctl`.
#[derive(Debug)]
pub struct Clusterctl {
    binary: PathBuf,
    kubeconfig: PathBuf,
    variables: BTreeMap<String, String>,
    home: tempfile::TempDir,
}

impl Clusterctl {
    /// Writes a repository with the providers that run beside `control_plane`.
    ///
    /// # Errors
    /// When a part is missing or refused.
    pub async fn prepare(
        parts: &Parts,
        control_plane: &ControlPlane,
        cluster_api: &ClusterApi,
    ) -> Result<Self, Error> {
        let binary = parts.path(Part::Clusterctl)?;
        apply::manifest(&control_plane.admin().await?, &certificate_kinds()?).await?;
        let clusterctl = Self {
            binary,
            kubeconfig: control_plane.admin_kubeconfig(),
            variables: BTreeMap::new(),
            home: tempfile::tempdir()?,
        };
        let version = Module::ClusterApi.version();
        for (provider, components) in cluster_api.components()? {
            let metadata = metadata(version)?;
            let files = BTreeMap::from([("components.yaml", components), ("metadata.yaml", metadata)]);
            clusterctl.add_release(label(provider), version, &files)?;
        }
        clusterctl.write_configuration(None)?;
        Ok(clusterctl)
    }

    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Its configuration: until [`Clusterctl::configure`] with Cluster API's own providers alone.
    pub fn configuration(&self) -> PathBuf {
        self.path("clusterctl.yaml")
    }

    /// A program that runs it with this configuration and these variables.
    pub fn script(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("export {name}='{value}'\n"));
        let (binary, configuration) = (self.binary.display(), self.configuration());
        let variables: String = variables.collect();
        format!("#!/bin/sh\n{variables}exec {binary} \"$@\" --config {}\n", configuration.display())
    }

    /// Adds a version of a provider, as in `infrastructure-baremetal` and `v0.1.0`.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn add_release(&self, label: &str, version: &str, files: &BTreeMap<&str, String>) -> io::Result<()> {
        let directory = self.path("repository").join(label).join(version);
        fs::create_dir_all(&directory)?;
        files.iter().try_for_each(|(name, content)| fs::write(directory.join(name), content))
    }

    /// Has the components of our provider read from the file of that name.
    ///
    /// # Errors
    /// When the configuration cannot be written.
    pub fn configure(&self, components: &str) -> Result<(), Error> {
        self.write_configuration(Some(components))
    }

    fn write_configuration(&self, components: Option<&str>) -> Result<(), Error> {
        let url = |label: &str, file: &str| {
            format!("file://{}/{label}/latest/{file}", self.path("repository").display())
        };
        let own = |provider| {
            let (name, kind) = match provider {
                Provider::Core => ("cluster-api", "CoreProvider"),
                Provider::Bootstrap => ("kubeadm", "BootstrapProvider"),
                Provider::ControlPlane => ("kubeadm", "ControlPlaneProvider"),
            };
            json!({ "name": name, "type": kind, "url": url(label(provider), "components.yaml") })
        };
        let mut providers = Provider::ALL.map(own).to_vec();
        providers.extend(components.map(|file| {
            let ours = url("infrastructure-baremetal", file);
            json!({ "name": "baremetal", "type": "InfrastructureProvider", "url": ours })
        }));
        let certificates = json!({ "externallyProvisioned": "true" });
        let document = json!({ "cert-manager": certificates, "providers": providers });
        Ok(fs::write(self.configuration(), serde_norway::to_string(&document)?)?)
    }

    /// Sets a variable of manifests.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    /// Runs a command; the answer is what it wrote to standard output and standard error.
    pub async fn run(&self, arguments: &[&str]) -> Result<String, Error> {
        let output = self.command(arguments).output().await?;
        let (said, result) = (text(&output.stderr), text(&output.stdout));
        if output.status.success() {
            return Ok(result + &said);
        }
        Err(Error::Failed { arguments: arguments.join(" "), said })
    }

    /// Runs a command that writes a manifest.
    pub async fn render(&self, arguments: &[&str]) -> Result<String, Error> {
        let output = self.command(arguments).output().await?;
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(Error::Failed { arguments: arguments.join(" "), said: text(&output.stderr) })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .arg("--config")
            .arg(self.configuration())
            .env_clear()
            .env("HOME", self.home.path())
            .env("XDG_CONFIG_HOME", self.home.path())
            .env("KUBECONFIG", &self.kubeconfig)
            // It would ask GitHub.
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            .envs(&self.variables)
            .kill_on_drop(true);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Its directory in a repository.
fn label(provider: Provider) -> &'static str {
    match provider {
        Provider::Core => "cluster-api",
        Provider::Bootstrap => "bootstrap-kubeadm",
        Provider::ControlPlane => "control-plane-kubeadm",
    }
}

/// Which contract that version of Cluster API speaks.
fn metadata(version: &str) -> Result<String, serde_norway::Error> {
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    serde_norway::to_string(&json!({
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
        "kind": "Metadata",
        "releaseSeries": [{ "major": major, "minor": minor, "contract": "v1beta2" }],
    }))
}

fn certificate_kinds() -> Result<String, serde_norway::Error> {
    let mut text = String::new();
    for kind in ["Issuer", "Certificate"] {
        let plural = format!("{}s", kind.to_lowercase());
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        text += "---\n";
        text += &serde_norway::to_string(&json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.cert-manager.io") },
            "spec": {
                "group": "cert-manager.io",
                "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": anything },
                }],
            },
        }))?;
    }
    Ok(text)
}
