//! The `NoCloud` seed's files, apart from the network.

use serde::Serialize;
use serde_json::Value;

/// meta-data of a node: the keys of decision D15, so that templates
/// written for CAPM3 render.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaData {
    /// Name of the plan: a new one makes cloud-init run again.
    pub instance_id: String,
    /// Name of the host and of the node.
    pub hostname: String,
    /// Value of the label `metal3.io/uuid`.
    pub uuid: String,
    /// `baremetal:///<inventory>`.
    pub provider_id: String,
    /// Name of the `BaremetalMachine`.
    pub machine: String,
    /// Namespace of the `BaremetalMachine`.
    pub namespace: String,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "instance-id")]
    instance_id: &'a str,
    #[serde(flatten)]
    node: Option<Node<'a>>,
}

#[derive(Serialize)]
struct Node<'a> {
    #[serde(rename = "local-hostname")]
    local_hostname: &'a str,
    #[serde(rename = "local_hostname")]
    local_hostname_for_templates: &'a str,
    name: &'a str,
    uuid: &'a str,
    providerid: &'a str,
    #[serde(rename = "metal3-name")]
    metal3_name: &'a str,
    #[serde(rename = "metal3-namespace")]
    metal3_namespace: &'a str,
}

/// meta-data of a node.
#[must_use]
pub fn meta_data(data: &MetaData) -> String {
    to_yaml(&Document {
        instance_id: &data.instance_id,
        node: Some(Node {
            local_hostname: &data.hostname,
            local_hostname_for_templates: &data.hostname,
            name: &data.hostname,
            uuid: &data.uuid,
            providerid: &data.provider_id,
            metal3_name: &data.machine,
            metal3_namespace: &data.namespace,
        }),
    })
}

/// meta-data of a host that is no node: it only identifies the seed.
#[must_use]
pub fn neutral_meta_data(instance_id: &str) -> String {
    to_yaml(&Document { instance_id, node: None })
}

/// user-data of a cloud-config that is held as a value.
#[must_use]
pub fn user_data(cloud_config: &Value) -> String {
    format!("#cloud-config\n{}", to_yaml(cloud_config))
}

/// A cloud-config of yip, which knows nothing of the marker.
#[must_use]
pub fn stages(cloud_config: &Value) -> String {
    to_yaml(cloud_config)
}

/// Values without maps of odd keys always have a YAML form.
fn to_yaml(value: &impl Serialize) -> String {
    crate::yaml::to_yaml(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_has_every_name_that_templates_ask_for() {
        let data = MetaData {
            instance_id: "reprovision-0011223344556677".into(),
            hostname: "node-1".into(),
            uuid: "123".into(),
            provider_id: "baremetal:///rack-1".into(),
            machine: "workers-abc".into(),
            namespace: "metal".into(),
        };
        assert_eq!(
            meta_data(&data),
            "instance-id: reprovision-0011223344556677\n\
             local-hostname: node-1\n\
             local_hostname: node-1\n\
             name: node-1\n\
             uuid: \"123\"\n\
             providerid: \"baremetal:///rack-1\"\n\
             metal3-name: workers-abc\n\
             metal3-namespace: metal\n"
        );
    }

    #[test]
    fn a_host_without_a_node_says_only_which_seed_it_is() {
        assert_eq!(neutral_meta_data("clean-1"), "instance-id: clean-1\n");
    }

    #[test]
    fn a_cloud_config_starts_with_its_marker() {
        let config = json!({"users": [{"name": "root"}], "runcmd": ["echo 'a: b'"]});
        assert_eq!(user_data(&config), "#cloud-config\nruncmd:\n- \"echo 'a: b'\"\nusers:\n- name: root\n");
    }
}
