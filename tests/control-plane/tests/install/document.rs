//! The commands of docs/install.md and docs/upgrade.md, as they stand there.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bundle::archive::{Entry, gzip, tar};
use bundle::components::Sources;
use control_plane::{ClusterApi, Clusterctl, ControlPlane, Definitions, Part, Parts, Settings, apply};
use tokio::process::Command;

use crate::SERVERS;

const BEGIN: &str = "```sh\n";
const END: &str = "```\n";

pub(crate) fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

const INSTALL: &str = "docs/install.md";
pub(crate) const UPGRADE: &str = "docs/upgrade.md";
/// Of the release before: the present files under another version.
const FORMER: &str = "v0.1.0-alpha.1";

/// The former release by Helm.
const INSTALL_CHART: &str = "helm install baremetal-coordinator dist/baremetal-coordinator-0.1.0.tgz --namespace baremetal-system --set serverURL=https://baremetal.example.com:8443 --set replicas=3";
/// The values that an operator gave are kept.
const CHECK_CHART: &str =
    "helm get values baremetal-coordinator --namespace baremetal-system | grep -x 'replicas: 3'
helm uninstall baremetal-coordinator --namespace baremetal-system";
/// clusterctl tries cert-manager in a namespace that it deletes; no controller is here
/// to end the deletion, and it makes the namespace again.
const END_DELETIONS: &str = r#"kubectl get namespaces --output json | jq --compact-output '.items[] | select(.metadata.deletionTimestamp) | .spec.finalizers = []' |
while read -r namespace; do
  kubectl replace --raw "/api/v1/namespaces/$(jq --raw-output .metadata.name <<<"$namespace")/finalize" --filename - <<<"$namespace"
done"#;
/// The former release by clusterctl.
const INIT_FORMER: &str = "export BAREMETAL_SERVER_URL=https://baremetal.example.com:8443
clusterctl init --config clusterctl.yaml --infrastructure baremetal:v0.1.0-alpha.1";
/// The present release, and the host of the document.
const CHECK_PROVIDER: &str = "kubectl --namespace baremetal-system get provider infrastructure-baremetal --output jsonpath={.version} | grep -x v0.1.0
kubectl create --filename - <<EOF
apiVersion: elemental.cattle.io/v1beta1
kind: MachineInventory
metadata:
  name: rack-1-u7
  namespace: default
EOF";
const DELETE_PROVIDER: &str = "kubectl get machineinventory rack-1-u7 --output yaml | grep 'baremetal.cluster.io/agent-version: 0.1.0'
clusterctl delete --config clusterctl.yaml --infrastructure baremetal
kubectl delete machineinventory rack-1-u7
kubectl delete clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding --selector cluster.x-k8s.io/provider=infrastructure-baremetal";

/// The shell blocks of one section, one behind the other.
pub(crate) fn commands(document: &str, section: &str) -> Result<String> {
    let text = fs::read_to_string(checkout(document))?;
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
        for directory in ["coordinator", "docs"] {
            symlink(checkout(directory).canonicalize()?, path(directory))?;
        }
        let sources = Sources::of_checkout();
        for version in [FORMER.to_owned(), format!("v{}", bundle::VERSION)] {
            let release = path("dist/infrastructure-baremetal").join(version);
            fs::create_dir_all(&release)?;
            for (name, content) in sources.repository()? {
                fs::write(release.join(name), content)?;
            }
        }
        let name = "baremetal-coordinator";
        let entries =
            sources.chart()?.into_iter().map(|(path, text)| Entry::file(format!("{name}/{path}"), text));
        let archive = gzip(&tar(entries.collect())?)?;
        fs::write(path("dist").join(format!("{name}-{}.tgz", bundle::VERSION)), archive)?;
        Ok(Self { directory, kubeconfig: control_plane.admin_kubeconfig() })
    }

    async fn run_section(&self, document: &str, section: &str) -> Result<()> {
        self.run(&commands(document, section)?)
            .await
            .with_context(|| format!("section {section} of {document}"))
    }

    async fn run(&self, commands: &str) -> Result<()> {
        let home = self.directory.path();
        let mut command = Command::new("bash");
        command
            .args(["-euxo", "pipefail", "-c", commands])
            .current_dir(home)
            .env_clear()
            .env("PATH", format!("{}/bin:/usr/bin:/bin", home.display()))
            .env("HOME", home)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        let output = command.output().await?;
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        ensure!(output.status.success(), "{}", said.concat());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_documents_work() -> Result<()> {
    let parts = Parts::from_environment()?;
    let _turn = SERVERS.lock().await;
    let management = ControlPlane::start(&parts, &Settings::management()).await?;
    let mut cluster_api = ClusterApi::start(&parts, &management).await?;
    cluster_api.start_kubeadm(&parts, &management).await?;
    let clusterctl = Clusterctl::prepare(&parts, &management, &cluster_api).await?;
    let place = Place::prepare(&parts, &management, &clusterctl)?;
    // Helm takes over nothing that it did not make; the others do.
    place.run_section(INSTALL, "Helm").await?;
    place.run(INSTALL_CHART).await?;
    place.run_section(UPGRADE, "Helm").await?;
    let gateway_api = parts.definitions(Definitions::GatewayApi)?;
    apply::manifest(&management.admin().await?, &gateway_api).await?;
    place.run_section(INSTALL, "Gateway").await?;
    place.run(CHECK_CHART).await?;
    place.run_section(INSTALL, "clusterctl").await?;
    place.run(END_DELETIONS).await?;
    place.run(INIT_FORMER).await?;
    place.run_section(UPGRADE, "clusterctl").await?;
    place.run(CHECK_PROVIDER).await?;
    place.run_section(UPGRADE, "Agents").await?;
    place.run(DELETE_PROVIDER).await?;
    place.run_section(INSTALL, "Manifests").await
}

#[test]
fn document_names_the_version_of_the_release() -> Result<()> {
    let text = fs::read_to_string(checkout(INSTALL))?;
    for name in [format!("baremetal-coordinator-{}.tgz", bundle::VERSION), bundle::IMAGE.to_owned()] {
        ensure!(text.contains(&name), "{name}");
    }
    Ok(())
}
