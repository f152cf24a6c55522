//! The commands of docs/install.md, docs/upgrade.md and docs/examples, and those of other pages that
//! change an installation, as they stand there.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use bundle::archive::{Entry, gzip, tar};
use bundle::components::Sources;
use contract::documents::{Block, INSTALLATION, Reader, checkout};
use control_plane::{ClusterApi, Clusterctl, ControlPlane, Definitions, Part, Parts, Settings, Shell, apply};

use crate::SERVERS;

const INSTALL: &str = "docs/install.md";
const UPGRADE: &str = "docs/upgrade.md";
const EXAMPLES: &str = "docs/examples/README.md";
const METAL3: &str = "docs/metal3.md";
const OPERATIONS: &str = "docs/operations.md";
/// Of the release before: the present files under another version.
const FORMER: &str = "0.1.0-alpha.1";
/// A column of the definitions, and what it was called in the former ones.
const COLUMN: (&str, &str) = ("name: Agent\n", "name: Program\n");

/// The former release by Helm.
const INSTALL_CHART: &str = "helm install baremetal-coordinator dist/baremetal-coordinator-0.1.0-alpha.1.tgz --namespace baremetal-system --set serverURL=https://baremetal.example.com:8443 --set watch.allNamespaces=true --set replicas=3";
/// The values that an operator gave are kept.
const CHECK_CHART: &str =
    "helm get values baremetal-coordinator --namespace baremetal-system | grep -x 'replicas: 3'
helm uninstall baremetal-coordinator --namespace baremetal-system";
/// clusterctl tries cert-manager in a namespace that it deletes; no controller is here
/// to end the deletion, and it makes the namespace again.
const END_DELETIONS: &str = r#"kubectl get namespaces --output json | jq --compact-output '.items[] | select(.metadata.deletionTimestamp) | .spec.finalizers = []' |
while read -r namespace; do
  name=$(jq --raw-output .metadata.name <<<"$namespace")
  kubectl replace --raw "/api/v1/namespaces/$name/finalize" --filename - <<<"$namespace" || ! kubectl get namespace "$name"
done"#;
/// The former coordinator, with the present definitions.
const CHECK_ROLLED_BACK: &str = "kubectl --namespace baremetal-system get deployment baremetal-coordinator --output jsonpath='{.spec.template.spec.containers[0].image}' | grep ':0.1.0-alpha.1$'
kubectl get crd machineinventories.elemental.cattle.io --output yaml | grep 'name: Agent$'";
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

/// What the manifests were changed to.
const CHECK_ARGUMENTS: &str =
    "kubectl --namespace baremetal-system get deployment baremetal-coordinator --output yaml >deployment.yaml
grep -x -e ' *- --metal3=full' deployment.yaml
grep -x -e ' *- --namespace=fleet' deployment.yaml
kubectl --namespace fleet get rolebinding baremetal-coordinator-objects";

/// A directory as a checkout is after `make release`, without the image.
struct Place {
    shell: Shell,
    reader: Reader,
}

impl Place {
    fn prepare(parts: &Parts, control_plane: &ControlPlane, clusterctl: &Clusterctl) -> Result<Self> {
        let shell = Shell::new(control_plane.admin_kubeconfig())?;
        for part in [Part::Helm, Part::Kubectl] {
            shell.add_program(part.name(), &parts.path(part)?)?;
        }
        // Cluster API's own providers would be fetched from the Internet.
        let wrapper = format!(
            "#!/bin/sh\nset -eu\n[ -e done ] || {{ grep -v ^providers: clusterctl.yaml >ours; cat {} ours >clusterctl.yaml; touch done; }}\nexec {} \"$@\"\n",
            clusterctl.configuration().display(),
            clusterctl.binary().display(),
        );
        shell.add_script("clusterctl", &wrapper)?;
        for directory in ["coordinator", "docs"] {
            symlink(checkout(directory).canonicalize()?, shell.path(directory))?;
        }
        for version in [FORMER, bundle::VERSION] {
            write_release(&shell.path("dist"), version)?;
        }
        Ok(Self { shell, reader: Reader::of(INSTALLATION) })
    }

    /// The commands of a section of two blocks.
    fn read_two(&mut self, document: &str, section: &str) -> Result<[String; 2]> {
        let blocks = self.reader.read(document, section)?.into_iter().filter(Block::is_commands);
        let commands: Vec<_> = blocks.map(|block| block.content).collect();
        commands.try_into().map_err(|_| anyhow::anyhow!("section {section} of {document} has not two blocks"))
    }

    async fn run_section(&mut self, document: &str, section: &str) -> Result<()> {
        let blocks = self.reader.read(document, section)?;
        let commands: String =
            blocks.into_iter().filter(Block::is_commands).map(|block| block.content).collect();
        self.run(&commands).await.with_context(|| format!("section {section} of {document}"))
    }

    async fn run(&self, commands: &str) -> Result<()> {
        self.shell.run(commands).await?;
        Ok(())
    }
}

/// Manifests and chart of a version.
fn write_release(dist: &Path, version: &str) -> Result<()> {
    let sources = Sources::of_checkout();
    let of_version = |path: &str, text: String| match (version, path) {
        (FORMER, "Chart.yaml") => text.replace(bundle::VERSION, FORMER),
        (FORMER, _) => text.replace(COLUMN.0, COLUMN.1),
        _ => text,
    };
    let release = dist.join(format!("infrastructure-baremetal/v{version}"));
    fs::create_dir_all(&release)?;
    for (name, text) in sources.repository()? {
        fs::write(release.join(name), of_version(name, text))?;
    }
    let name = "baremetal-coordinator";
    let entries = sources.chart()?.into_iter().map(|(path, text)| {
        let text = of_version(&path, text);
        Entry::file(format!("{name}/{path}"), text)
    });
    let archive = gzip(&tar(entries.collect())?)?;
    Ok(fs::write(dist.join(format!("{name}-{version}.tgz")), archive)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_documents_work() -> Result<()> {
    let parts = Parts::from_environment()?;
    let _turn = SERVERS.lock().await;
    let management = ControlPlane::start(&parts, &Settings::management()).await?;
    let mut cluster_api = ClusterApi::start(&parts, &management).await?;
    cluster_api.start_kubeadm(&parts, &management).await?;
    let clusterctl = Clusterctl::prepare(&parts, &management, &cluster_api).await?;
    let mut place = Place::prepare(&parts, &management, &clusterctl)?;
    // Helm takes over nothing that it did not make; the others do.
    place.run_section(INSTALL, "Helm").await?;
    place.run(INSTALL_CHART).await?;
    place.run_section(UPGRADE, "Helm").await?;
    let [back, again] = place.read_two(UPGRADE, "Roll back by Helm")?;
    place.run(&back).await?;
    place.run(CHECK_ROLLED_BACK).await?;
    place.run(&again).await?;
    let gateway_api = parts.definitions(Definitions::GatewayApi)?;
    apply::manifest(&management.admin().await?, &gateway_api).await?;
    place.run_section(INSTALL, "Gateway").await?;
    place.run(CHECK_CHART).await?;
    place.run_section(INSTALL, "clusterctl").await?;
    place.run(END_DELETIONS).await?;
    place.run(INIT_FORMER).await?;
    place.run_section(UPGRADE, "clusterctl").await?;
    place.run_section(UPGRADE, "Roll back by clusterctl").await?;
    place.run(CHECK_ROLLED_BACK).await?;
    place.run_section(UPGRADE, "clusterctl").await?;
    place.run(CHECK_PROVIDER).await?;
    place.run_section(UPGRADE, "Agents").await?;
    place.run(DELETE_PROVIDER).await?;
    place.run_section(INSTALL, "Manifests").await?;
    place.run_section(METAL3, "Manifests").await?;
    place.run("kubectl create namespace fleet").await?;
    place.run_section(OPERATIONS, "Limit the coordinator to some namespaces").await?;
    place.run(CHECK_ARGUMENTS).await?;
    place.run_section(EXAMPLES, "Examples").await?;
    Ok(place.reader.finish()?)
}

#[test]
fn document_names_the_version_of_the_release() -> Result<()> {
    let text = fs::read_to_string(checkout(INSTALL))?;
    for name in [format!("baremetal-coordinator-{}.tgz", bundle::VERSION), bundle::IMAGE.to_owned()] {
        ensure!(text.contains(&name), "{name}");
    }
    Ok(())
}
