//! What kubeadm and the kubelet do on a host, by the seed that the agent wrote.

use std::collections::BTreeMap;
use std::fs;

use agent::ground::paths::Root;
use anyhow::{Context as _, ensure};
use control_plane::Workload;
use control_plane::workload::Kubelet;
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use serde_json::Value;

use super::read_value;

/// What a node has that joined once.
const CREDENTIALS: &str = "/etc/kubernetes/kubelet.conf";
/// Credentials that the API server does not accept any more.
pub(super) const EXPIRED: &str = "expired";
const UUID_LABEL: &str = "metal3.io/uuid";
/// kubeadm's own, where its configuration has no list of taints.
const CONTROL_PLANE_TAINT: &str = "node-role.kubernetes.io/control-plane";

/// Runs kubeadm where the seed asks for it and it did not run yet, and then the
/// kubelet: its Node has what the agent wrote into the kubelet's configuration.
pub(super) async fn run(root: &Root, workload: &Workload) -> anyhow::Result<()> {
    let user_data = fs::read_to_string(root.nocloud_seed().join("user-data")).unwrap_or_default();
    if user_data.is_empty() {
        return Ok(());
    }
    let meta_data = fs::read_to_string(root.nocloud_seed().join("meta-data"))?;
    match fs::read_to_string(root.join(CREDENTIALS)) {
        Ok(credentials) if credentials == EXPIRED => return Ok(()),
        // A kubelet that starts again reports its Node.
        Ok(_) => {
            let name = read_value(&meta_data, "local-hostname: ").context("the seed names no host")?;
            workload.find_node(&name).await?;
            return Ok(());
        }
        Err(_) => {}
    }
    let Some(kubeadm) = Kubeadm::read(&render(&user_data, &meta_data)?)? else { return Ok(()) };
    let kubelet = kubeadm.configure_kubelet(root)?;
    let node = workload.register_node(&kubelet).await?;
    if kubeadm.is_control_plane() {
        workload.run_control_plane(&kubelet, &node).await?;
    }
    if let Some(configuration) = &kubeadm.configuration {
        workload.upload_configuration(configuration).await?;
    }
    fs::create_dir_all(root.join("/etc/kubernetes"))?;
    fs::write(root.join(CREDENTIALS), "credentials")?;
    Ok(())
}

/// cloud-init's template engine, as far as the templates of this tree use it.
fn render(user_data: &str, meta_data: &str) -> anyhow::Result<String> {
    if !user_data.starts_with("## template: jinja") {
        return Ok(user_data.to_owned());
    }
    let values: BTreeMap<String, String> = serde_norway::from_str(meta_data).context("the meta-data")?;
    let replace = |text: String, (key, value): (&String, &String)| {
        text.replace(&format!("{{{{ ds.meta_data.{key} }}}}"), value)
    };
    let rendered = values.iter().fold(user_data.to_owned(), replace);
    ensure!(!rendered.contains("{{ ds.meta_data."), "the meta-data lacks a key of the user-data");
    Ok(rendered)
}

/// kubeadm's documents in bootstrap data.
struct Kubeadm {
    /// `ClusterConfiguration`, of the first control plane.
    configuration: Option<String>,
    /// `InitConfiguration` or `JoinConfiguration`.
    node: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CloudConfig {
    write_files: Vec<WriteFile>,
    runcmd: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WriteFile {
    content: String,
}

impl Kubeadm {
    fn read(user_data: &str) -> anyhow::Result<Option<Self>> {
        let seed: CloudConfig = serde_norway::from_str(user_data).context("the user-data")?;
        let runs = |command: &str| seed.runcmd.iter().any(|line| line.to_string().contains(command));
        let kind = match (runs("kubeadm init"), runs("kubeadm join")) {
            (true, _) => "InitConfiguration",
            (false, true) => "JoinConfiguration",
            (false, false) => return Ok(None),
        };
        let mut documents = BTreeMap::new();
        for file in seed.write_files.iter().filter(|file| file.content.contains("kubeadm.k8s.io/")) {
            for document in serde_norway::Deserializer::from_str(&file.content) {
                let document = Value::deserialize(document).context("a document of kubeadm's")?;
                let kind = document["kind"].as_str().unwrap_or_default().to_owned();
                documents.insert(kind, document);
            }
        }
        let configuration = documents.remove("ClusterConfiguration").map(|document| document.to_string());
        let node = documents.remove(kind).with_context(|| format!("the user-data has no {kind}"))?;
        Ok(Some(Self { configuration, node }))
    }

    fn is_control_plane(&self) -> bool {
        self.node["kind"] == "InitConfiguration" || self.node.get("controlPlane").is_some()
    }

    fn taints(&self) -> anyhow::Result<Vec<Taint>> {
        let taints = &self.node["nodeRegistration"]["taints"];
        if taints.is_null() && self.is_control_plane() {
            let (effect, key) = ("NoSchedule".to_owned(), CONTROL_PLANE_TAINT.to_owned());
            return Ok(vec![Taint { effect, key, ..Taint::default() }]);
        }
        Ok(Option::deserialize(taints).context("the taints")?.unwrap_or_default())
    }

    /// The value of an argument of the kubelet, v1beta4.
    fn argument(&self, name: &str) -> Option<&str> {
        let arguments = self.node["nodeRegistration"]["kubeletExtraArgs"].as_array()?;
        arguments.iter().find(|argument| argument["name"] == name)?["value"].as_str()
    }

    /// The data of kubeadm and the files of the agent have to agree: a kubelet
    /// takes the last flag.
    fn configure_kubelet(&self, root: &Root) -> anyhow::Result<Kubelet> {
        let meta_data = fs::read_to_string(root.nocloud_seed().join("meta-data"))?;
        let name = read_value(&meta_data, "local-hostname: ").context("the seed names no host")?;
        let flags = fs::read_to_string(root.join("/etc/default/kubelet"))?;
        let provider_id = read_value(&flags, "--provider-id=").context("the kubelet has no provider id")?;
        let uuid = read_value(&flags, &format!("{UUID_LABEL}=")).context("the kubelet has no label")?;
        let registration = &self.node["nodeRegistration"];
        ensure!(registration["name"] == *name, "kubeadm names the node {}", registration["name"]);
        let argument = self.argument("provider-id");
        let is_left_to_agent = argument.is_none() && provider_id.starts_with("metal3://");
        ensure!(
            is_left_to_agent || argument == Some(&*provider_id),
            "kubeadm's provider-id is {argument:?}, not {provider_id}"
        );
        let label = format!("{UUID_LABEL}={uuid}");
        let labels = self.argument("node-labels").filter(|labels| labels.contains(UUID_LABEL));
        ensure!(labels.is_none_or(|labels| labels.contains(&label)), "kubeadm's labels are {labels:?}");
        let os_release = fs::read_to_string(root.os_release())?;
        let image = read_value(&os_release, "IMAGE=").context("os-release names no image")?;
        let version = image.rsplit_once(':').map_or("", |(_, tag)| tag).to_owned();
        let labels = BTreeMap::from([(UUID_LABEL.to_owned(), uuid)]);
        Ok(Kubelet { name, provider_id, labels, taints: self.taints()?, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INIT: &str = include_str!("../../../../../coordinator/core/tests/samples/kubeadm-init.yaml");
    const JOIN: &str = include_str!("../../../../../coordinator/core/tests/samples/kubeadm-join.yaml");

    #[test]
    fn templates_are_rendered_with_meta_data() {
        let data = "## template: jinja\n#cloud-config\nname: '{{ ds.meta_data.name }}'\n";
        let rendered = render(data, "name: node-0\nuuid: u\n").unwrap();
        assert!(rendered.ends_with("name: 'node-0'\n"), "{rendered}");
        assert!(render(data, "uuid: u\n").is_err());
        let plain = "#cloud-config\nname: '{{ ds.meta_data.name }}'\n";
        assert_eq!(render(plain, "uuid: u\n").unwrap(), plain);
    }

    #[test]
    fn real_bootstrap_data_gives_role_and_taints() {
        let init = Kubeadm::read(INIT).unwrap().unwrap();
        assert!(init.is_control_plane() && init.configuration.is_some());
        assert_eq!(init.taints().unwrap()[0].key, CONTROL_PLANE_TAINT);
        let join = Kubeadm::read(JOIN).unwrap().unwrap();
        assert!(!join.is_control_plane() && join.configuration.is_none());
        assert_eq!(join.taints().unwrap()[0].key, "node.cluster.x-k8s.io/uninitialized");
        assert!(Kubeadm::read("#cloud-config\nruncmd: [reboot]\n").unwrap().is_none());
    }
}
