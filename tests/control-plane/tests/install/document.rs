//! The commands of docs/install.md, as they stand there.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bundle::archive::{Entry, gzip, tar};
use bundle::components::Sources;
use control_plane::{ClusterApi, Clusterctl, ControlPlane, Part, Parts, Settings};
use tokio::process::Command;

use crate::SERVERS;

const BEGIN: &str = "```sh\n";
const END: &str = "```\n";

fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The shell blocks of one section, one behind the other.
fn commands(section: &str) -> Result<String> {
    let text = fs::read_to_string(checkout("docs/install.md"))?;
    let mut sections = text.split("\n## ");
    let section =
        sections.find(|part| part.starts_with(&format!("{section}\n"))).context("no such section")?;
    let blocks = section.split(BEGIN).skip(1).map(|part| part.split(END).next().unwrap_or_default());
    let commands: String = blocks.collect();
    ensure!(!commands.is_empty(), "no commands");
    Ok(commands)
}

/// A directory as a checkout is after `make release`, without the image.
struct Place {
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Place {
    fn prepare(parts: &Parts, control_plane: &ControlPlane, clusterctl: &Clusterctl) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("bin"))?;
        for part in [Part::Helm, Part::Kubectl] {
            symlink(parts.path(part)?, path("bin").join(part.name()))?;
        }
        // Cluster API's own providers would be fetched from the Internet.
        let wrapper = format!(
            "#!/bin/sh\nset -eu\n[ -e done ] || {{ grep -v ^providers: clusterctl.yaml >ours; cat {} ours >clusterctl.yaml; touch done; }}\nexec {} \"$@\"\n",
            clusterctl.configuration().display(),
            clusterctl.binary().display(),
        );
        fs::write(path("bin/clusterctl"), wrapper)?;
        fs::set_permissions(path("bin/clusterctl"), fs::Permissions::from_mode(0o755))?;
        symlink(checkout("coordinator").canonicalize()?, path("coordinator"))?;
        let sources = Sources::of_checkout();
        let release = path("dist/infrastructure-baremetal").join(format!("v{}", bundle::VERSION));
        fs::create_dir_all(&release)?;
        for (name, content) in sources.repository()? {
            fs::write(release.join(name), content)?;
        }
        let name = "baremetal-coordinator";
        let entries =
            sources.chart()?.into_iter().map(|(path, text)| Entry::file(format!("{name}/{path}"), text));
        let archive = gzip(&tar(entries.collect())?)?;
        fs::write(path("dist").join(format!("{name}-{}.tgz", bundle::VERSION)), archive)?;
        Ok(Self { directory, kubeconfig: control_plane.admin_kubeconfig() })
    }

    async fn run(&self, section: &str) -> Result<()> {
        let home = self.directory.path();
        let mut command = Command::new("bash");
        command
            .args(["-euxo", "pipefail", "-c", &commands(section)?])
            .current_dir(home)
            .env_clear()
            .env("PATH", format!("{}/bin:/usr/bin:/bin", home.display()))
            .env("HOME", home)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        let output = command.output().await?;
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        ensure!(output.status.success(), "section {section}:\n{}", said.concat());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_document_work() -> Result<()> {
    let parts = Parts::from_environment()?;
    let _turn = SERVERS.lock().await;
    let management = ControlPlane::start(&parts, &Settings::management()).await?;
    let mut cluster_api = ClusterApi::start(&parts, &management).await?;
    cluster_api.start_kubeadm(&parts, &management).await?;
    let clusterctl = Clusterctl::prepare(&parts, &management, &cluster_api).await?;
    let place = Place::prepare(&parts, &management, &clusterctl)?;
    // Helm takes over nothing that it did not make; the others do.
    for section in ["Helm", "clusterctl", "Manifests"] {
        place.run(section).await?;
    }
    Ok(())
}

#[test]
fn document_names_the_version_of_the_release() -> Result<()> {
    let text = fs::read_to_string(checkout("docs/install.md"))?;
    for name in [format!("baremetal-coordinator-{}.tgz", bundle::VERSION), bundle::IMAGE.to_owned()] {
        ensure!(text.contains(&name), "{name}");
    }
    Ok(())
}
