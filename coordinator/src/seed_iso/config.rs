//! The files that make a base ISO a seed ISO.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use coordinator_api::registration::{MachineRegistration, Registration};
use coordinator_api::seed_image::SeedImage;
use coordinator_core::network::{self, LiveNetwork, SingleHost, TooManyHosts};
use proto::update_keys::SIGNATURE_FILE;
use serde::Serialize;
use serde_json::Value;

use super::compose::{Content, NewFile};
use crate::agent_file::read_signature;

/// The file from which upstream's live system reads its registration.
const REGISTRATION: &str = "livecd-cloud-config.yaml";
/// The directory whose files a stock live system passes to yip (`elemental.setup=`).
const STAGES: &str = "iso-config";
/// The networks of single hosts.
pub const NETWORKS: &str = "baremetal-networks.json";
/// The agent, for live systems without one.
const AGENT: &str = "baremetal-agent";
/// Stages of yip that install the agent.
const AGENT_STAGES: &str = include_str!("baremetal-agent.yaml");
/// Largest size in bytes of the files that a seed adds, because they are held in memory.
const FILES_BYTES: usize = 1024 * 1024;

/// A failure to render the files of a seed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The registration has no URL yet.
    #[error("the MachineRegistration has no status.registrationURL yet")]
    NotReady,
    #[error("the cloud-config of the SeedImage cannot be written as YAML ({0}): correct spec.cloud-config")]
    Yaml(String),
    #[error("spec.cloud-config of the SeedImage has more than {FILES_BYTES} bytes: shorten it")]
    TooLarge,
    #[error(transparent)]
    TooManyHosts(#[from] TooManyHosts),
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Document<'a> {
    elemental: Elemental,
    #[serde(skip_serializing_if = "Option::is_none")]
    cloud_config: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<LiveNetwork>,
}

#[derive(Serialize)]
struct Elemental {
    registration: Registration,
}

/// The files of every seed for the agent in `path`. A live system that has an agent ignores all but
/// the signature, from which an installed host has its keys for updates.
pub fn agent_files(path: &Path) -> io::Result<Vec<NewFile>> {
    let len = fs::metadata(path)?.len();
    let agent = NewFile { directory: None, name: AGENT, content: Content::Agent { len } };
    let mut files = vec![agent, new_file(Some(STAGES), "baremetal-agent.yaml", AGENT_STAGES.to_owned())];
    if let Some(signature) = read_signature(path)? {
        files.push(new_file(None, SIGNATURE_FILE, serde_json::to_string(&signature)?));
    }
    Ok(files)
}

/// Files that a seed adds: the registration URL with the CA certificate, the cloud-config of the
/// live system, and the network that a host needs to register. A host receives everything else
/// after it has authenticated.
pub fn render_files(
    seed: &SeedImage,
    registration: &MachineRegistration,
    authority: &str,
    hosts: &BTreeMap<String, Arc<SingleHost>>,
) -> Result<Vec<NewFile>, ConfigError> {
    let networks = network::render_single_hosts(hosts.values().map(|host| &**host), registration)?;
    let url = registration.status.as_ref().and_then(|status| status.registration_url.clone());
    let asked = registration.spec.config.as_ref();
    let asked = asked.and_then(|config| config.elemental.as_ref()?.registration.clone());
    let network = network::live_network(registration);
    let registration = Registration {
        url: Some(url.ok_or(ConfigError::NotReady)?),
        ca_cert: Some(authority.to_owned()),
        // A key from a seed is no secret, so that the field is accepted and ignored.
        emulated_tpm_seed: None,
        ..asked.unwrap_or_default()
    };
    let cloud_config = seed.spec.cloud_config.as_ref().filter(|config| !config.is_null());
    let stages = cloud_config.is_some_and(|config| config.get("stages").is_some());
    let document = Document {
        elemental: Elemental { registration },
        // Stages are for yip, which reads the other file.
        cloud_config: cloud_config.filter(|_| !stages),
        network,
    };
    let text = render_yaml(&document)?;
    let mut bytes = text.len();
    let mut files = vec![new_file(None, REGISTRATION, text)];
    if let Some(config) = cloud_config {
        let text = if stages {
            render_yaml(config)?
        } else {
            format!("#cloud-config\n{}", render_yaml(&state_permissions(config))?)
        };
        bytes += text.len();
        files.push(new_file(Some(STAGES), "cloud-config.yaml", text));
    }
    files.extend(networks.map(|text| new_file(None, NETWORKS, text)));
    if bytes > FILES_BYTES { Err(ConfigError::TooLarge) } else { Ok(files) }
}

/// Adds the permissions that cloud-init would use by default, because yip makes a file without
/// permissions readable for root alone.
fn state_permissions(cloud_config: &Value) -> Value {
    let mut stated = cloud_config.clone();
    let files = stated.get_mut("write_files").and_then(Value::as_array_mut);
    for file in files.into_iter().flatten().filter_map(Value::as_object_mut) {
        file.entry("permissions").or_insert_with(|| "0644".into());
    }
    stated
}

fn new_file(directory: Option<&'static str>, name: &'static str, text: String) -> NewFile {
    NewFile { directory, name, content: Content::Text(text.into()) }
}

fn render_yaml(value: &impl Serialize) -> Result<String, ConfigError> {
    serde_norway::to_string(value).map_err(|error| ConfigError::Yaml(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_api::registration::{Config, Elemental, MachineRegistrationStatus};
    use serde_json::json;

    fn registration() -> MachineRegistration {
        let status = MachineRegistrationStatus {
            registration_url: Some("https://c.example:8443/elemental/registration/tok".into()),
            ..Default::default()
        };
        let mut registration = MachineRegistration { status: Some(status), ..MachineRegistration::default() };
        registration.spec.config = Some(Config {
            cloud_config: Some(json!({ "users": ["installed system's alone"] })),
            elemental: Some(Elemental {
                registration: Some(Registration {
                    emulate_tpm: true,
                    emulated_tpm_seed: Some(42),
                    https_proxy: Some("http://proxy.example:3128".into()),
                    no_proxy: Some(".example.com".into()),
                    url: Some("https://elsewhere/".into()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        });
        registration
    }

    fn render(cloud_config: Option<Value>) -> Vec<(String, String)> {
        let mut seed = SeedImage::default();
        seed.spec.cloud_config = cloud_config;
        let files =
            render_files(&seed, &registration(), "-----BEGIN CERTIFICATE-----\nAA==\n", &BTreeMap::new())
                .unwrap();
        let path = |file: &NewFile| format!("{}/{}", file.directory.unwrap_or_default(), file.name);
        let text = |file: &NewFile| match &file.content {
            Content::Text(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Content::Agent { .. } => panic!("{file:?}"),
        };
        files.iter().map(|file| (path(file), text(file))).collect()
    }

    #[test]
    fn seed_contains_only_registration_and_cloud_config() {
        let cloud_config = json!({ "write_files": [{ "path": "/x", "content": "a\nb" }] });
        let registration = json!({ "registration": {
            "url": "https://c.example:8443/elemental/registration/tok",
            "ca-cert": "-----BEGIN CERTIFICATE-----\nAA==\n",
            "emulate-tpm": true,
            "https-proxy": "http://proxy.example:3128",
            "no-proxy": ".example.com",
        } });
        let files = render(Some(cloud_config.clone()));
        assert_eq!(files[0].0, "/livecd-cloud-config.yaml");
        let read: Value = serde_norway::from_str(&files[0].1).unwrap();
        assert_eq!(read, json!({ "elemental": registration, "cloud-config": cloud_config }));
        let [_, (path, text)] = &files[..] else { panic!("{files:?}") };
        assert_eq!(path, "iso-config/cloud-config.yaml");
        assert!(text.starts_with("#cloud-config\nwrite_files:\n"), "{text}");
        let read: Value = serde_norway::from_str(text).unwrap();
        let want = json!({ "path": "/x", "content": "a\nb", "permissions": "0644" });
        assert_eq!(read["write_files"], json!([want]), "yip would give it no permissions");
        assert_eq!(render(None).len(), 1);
        assert_eq!(render(Some(Value::Null)).len(), 1);
    }

    #[test]
    fn yip_stages_contain_commands_for_agent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        fs::write(&path, "7 bytes").unwrap();
        let files = agent_files(&path).unwrap();
        let [agent, stages] = &files[..] else { panic!("{files:?}") };
        assert_eq!((agent.directory, agent.name, &agent.content), (None, AGENT, &Content::Agent { len: 7 }));
        let Content::Text(text) = &stages.content else { panic!("{stages:?}") };
        let read: Value = serde_norway::from_slice(text).unwrap();
        let step = &read["stages"]["initramfs"][0];
        assert!(step["if"].as_str().unwrap().contains("! -x /usr/bin/baremetal-agent"), "{step}");
        assert!(step["commands"].as_array().unwrap().iter().all(Value::is_string), "{step}");
    }

    #[test]
    fn seed_has_the_signature_beside_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        fs::write(&path, "agent").unwrap();
        let key = "ab".repeat(32);
        let signature = format!(r#"{{"keys":["{key}"],"signature":"00ff"}}"#);
        fs::write(directory.path().join(SIGNATURE_FILE), &signature).unwrap();
        let files = agent_files(&path).unwrap();
        let file = files.last().unwrap();
        let Content::Text(text) = &file.content else { panic!("{file:?}") };
        assert_eq!((file.directory, file.name), (None, "baremetal-agent.signature.json"));
        assert_eq!(&text[..], signature.as_bytes());
        fs::write(directory.path().join(SIGNATURE_FILE), "torn").unwrap();
        let error = agent_files(&path).unwrap_err();
        assert!(error.to_string().contains(SIGNATURE_FILE), "{error}");
    }

    #[test]
    fn stages_are_for_yip_alone() {
        let stages = json!({ "name": "n", "stages": { "network": [{ "commands": ["ip link"] }] } });
        let files = render(Some(stages.clone()));
        let [(_, registration), (path, text)] = &files[..] else { panic!("{files:?}") };
        assert!(!registration.contains("stages"), "{registration}");
        assert_eq!(path, "iso-config/cloud-config.yaml");
        assert_eq!(serde_norway::from_str::<Value>(text).unwrap(), stages);
    }

    #[test]
    fn live_systems_get_the_network_of_the_registration() {
        let keyfile = "[connection]\ntype=ethernet\ninterface-name=eno1\n[ipv4]\nmethod=manual\naddress1=192.0.2.7/24\n[ipv6]\nmethod=disabled\n";
        let network_config = "version: 2\nethernets:\n  eno1:\n    addresses:\n    - \"192.0.2.7/24\"\n";
        let cases = [
            (
                json!({ "configurator": "nmconnections", "config": { "a": keyfile } }),
                json!({ "network-config": network_config, "connections": { "a": keyfile } }),
            ),
            (json!({ "config": { "version": 2 } }), json!({ "network-config": "version: 2\n" })),
            (
                json!({ "config": { "version": 2, "ethernets": { "a": { "addresses": ["{ip}/24"] } } } }),
                json!(null),
            ),
            (json!({}), json!(null)),
        ];
        for (network, want) in cases {
            let mut registration = registration();
            let config = registration.spec.config.as_mut().unwrap();
            config.network = Some(serde_json::from_value(network.clone()).unwrap());
            let files = render_files(&SeedImage::default(), &registration, "CA", &BTreeMap::new()).unwrap();
            let Content::Text(text) = &files[0].content else { panic!("{files:?}") };
            let read: Value = serde_norway::from_slice(text).unwrap();
            assert_eq!(read["network"], want, "{network}");
        }
    }

    #[test]
    fn what_cannot_be_a_seed_says_why() {
        let error =
            render_files(&SeedImage::default(), &MachineRegistration::default(), "", &BTreeMap::new())
                .unwrap_err();
        assert!(matches!(error, ConfigError::NotReady));
        let mut seed = SeedImage::default();
        seed.spec.cloud_config = Some(json!({ "a": "x".repeat(FILES_BYTES) }));
        let error = render_files(&seed, &registration(), "", &BTreeMap::new()).unwrap_err();
        assert!(matches!(error, ConfigError::TooLarge), "{error}");
    }
}
