//! The `NoCloud` seed's files, apart from the network.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::provider_id::ProviderId;

/// meta-data of a node: the keys of Metal3 too, so that templates
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
    /// Further keys, and those that replace one of the others. The instance is
    /// always the plan.
    pub replaced: BTreeMap<String, String>,
}

/// Key of the instance.
const INSTANCE: &str = "instance-id";

/// Keys and values in their order.
struct Document<'a>(Vec<(&'a str, &'a str)>);

impl Serialize for Document<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// meta-data of a node.
pub fn meta_data(data: &MetaData) -> String {
    to_yaml(&Document(list_keys(data)))
}

/// The same as values.
pub fn meta_data_values(data: &MetaData) -> BTreeMap<String, String> {
    list_keys(data).into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn list_keys(data: &MetaData) -> Vec<(&str, &str)> {
    let mut keys = vec![
        (INSTANCE, data.instance_id.as_str()),
        ("local-hostname", &data.hostname),
        ("local_hostname", &data.hostname),
        // Templates of Cluster API's book read this key.
        ("hostname", &data.hostname),
        ("name", &data.hostname),
        ("uuid", &data.uuid),
        ("providerid", ProviderId::without_scheme(&data.provider_id)),
        ("metal3-name", &data.machine),
        ("metal3-namespace", &data.namespace),
    ];
    keys.retain(|(key, _)| *key == INSTANCE || !data.replaced.contains_key(*key));
    let further = data.replaced.iter().filter(|(key, _)| *key != INSTANCE);
    keys.extend(further.map(|(key, value)| (key.as_str(), value.as_str())));
    keys
}

/// meta-data as a Secret holds it: a map of texts, in YAML or JSON. `None` for
/// anything else.
pub fn parse_meta_data(text: &str) -> Option<BTreeMap<String, String>> {
    let Value::Object(map) = crate::yaml::from_yaml(text).ok()? else { return None };
    map.into_iter().map(|(key, value)| Some((key, scalar_text(value)?))).collect()
}

fn scalar_text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Null => Some(String::new()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// meta-data of a host that is no node: it only identifies the seed.
pub fn neutral_meta_data(instance_id: &str) -> String {
    to_yaml(&Document(vec![(INSTANCE, instance_id)]))
}

/// user-data of a cloud-config that is held as a value.
pub fn user_data(cloud_config: &Value) -> String {
    format!("#cloud-config\n{}", to_yaml(cloud_config))
}

/// A cloud-config of yip, which knows nothing of the marker.
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
    fn meta_data_has_every_name_templates_use() {
        let data = MetaData {
            instance_id: "reprovision-0011223344556677".into(),
            hostname: "node-1".into(),
            uuid: "123".into(),
            provider_id: "baremetal:///rack-1".into(),
            machine: "workers-abc".into(),
            namespace: "metal".into(),
            replaced: BTreeMap::new(),
        };
        assert_eq!(
            meta_data(&data),
            "instance-id: reprovision-0011223344556677\n\
             local-hostname: node-1\n\
             local_hostname: node-1\n\
             hostname: node-1\n\
             name: node-1\n\
             uuid: \"123\"\n\
             providerid: \"baremetal:///rack-1\"\n\
             metal3-name: workers-abc\n\
             metal3-namespace: metal\n"
        );
    }

    #[test]
    fn given_keys_replace_all_but_the_instance() {
        let replaced = parse_meta_data("{name: other, instance-id: mine, rack: 7, empty: null}").unwrap();
        let data = MetaData {
            instance_id: "plan-1".into(),
            hostname: "node-1".into(),
            provider_id: "metal3://fleet/host-1/m-1".into(),
            replaced,
            ..MetaData::default()
        };
        let text = meta_data(&data);
        for line in ["instance-id: plan-1", "name: other", "rack: \"7\"", "providerid: fleet/host-1/m-1"] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
        assert!(!text.contains("mine") && text.matches("\nname:").count() == 1, "{text}");
        for text in ["[]", "a: [1]", "a: {b: c}", "{"] {
            assert_eq!(parse_meta_data(text), None, "{text}");
        }
    }

    #[test]
    fn host_without_node_gets_only_instance_id() {
        assert_eq!(neutral_meta_data("clean-1"), "instance-id: clean-1\n");
    }

    #[test]
    fn a_cloud_config_starts_with_its_marker() {
        let config = json!({"users": [{"name": "root"}], "runcmd": ["echo 'a: b'"]});
        assert_eq!(user_data(&config), "#cloud-config\nruncmd:\n- \"echo 'a: b'\"\nusers:\n- name: root\n");
    }
}
