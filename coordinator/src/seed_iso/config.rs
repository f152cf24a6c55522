//! `/livecd-cloud-config.yaml`: the one file that makes a base ISO a seed ISO.

use bytes::Bytes;
use coordinator_api::registration::{MachineRegistration, Registration};
use coordinator_api::seed_image::SeedImage;
use coordinator_core::network::{self, LiveNetwork};
use serde::Serialize;
use serde_json::Value;

/// Why the file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The registration has no URL yet.
    #[error("the MachineRegistration has no status.registrationURL yet")]
    NotReady,
    /// YAML cannot hold it.
    #[error("the cloud-config of the SeedImage cannot be written as YAML ({0}): correct spec.cloud-config")]
    Yaml(String),
    /// Too much.
    #[error(
        "the seed takes {needed} bytes, the base image reserves {reserved}: shorten spec.cloud-config of the SeedImage"
    )]
    TooLarge {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are there.
        reserved: u64,
    },
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

/// The text: where to register, the CA certificate, and the live system's own
/// cloud-config. A host receives everything else after it has authenticated.
///
/// # Errors
/// [`ConfigError`].
pub fn render_config(
    seed: &SeedImage,
    registration: &MachineRegistration,
    authority: &str,
) -> Result<String, ConfigError> {
    let url = registration.status.as_ref().and_then(|status| status.registration_url.clone());
    let asked = registration.spec.config.as_ref();
    let asked = asked.and_then(|config| config.elemental.as_ref()?.registration.clone());
    let network = network::live_network(registration);
    let registration = Registration {
        url: Some(url.ok_or(ConfigError::NotReady)?),
        ca_cert: Some(authority.to_owned()),
        // A key from a seed is no secret: the field is accepted and goes nowhere.
        emulated_tpm_seed: None,
        ..asked.unwrap_or_default()
    };
    let document = Document {
        elemental: Elemental { registration },
        cloud_config: seed.spec.cloud_config.as_ref(),
        network,
    };
    serde_norway::to_string(&document).map_err(|error| ConfigError::Yaml(error.to_string()))
}

/// Fills the reserved space: the text, then newlines, as many as there were.
///
/// # Errors
/// [`ConfigError::TooLarge`].
pub fn fill_archive(text: &str, reserved: u64) -> Result<Bytes, ConfigError> {
    let needed = text.len() as u64;
    let too_large = ConfigError::TooLarge { needed, reserved };
    let Some(size) = usize::try_from(reserved).ok().filter(|size| text.len() <= *size) else {
        return Err(too_large);
    };
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(size, b'\n');
    Ok(bytes.into())
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
                    url: Some("https://elsewhere/".into()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        });
        registration
    }

    #[test]
    fn a_seed_tells_where_to_register_and_nothing_that_is_secret_later() {
        let mut seed = SeedImage::default();
        seed.spec.cloud_config = Some(json!({ "write_files": [{ "path": "/x", "content": "a\nb" }] }));
        let text = render_config(&seed, &registration(), "-----BEGIN CERTIFICATE-----\nAA==\n").unwrap();
        let read: Value = serde_norway::from_str(&text).unwrap();
        assert_eq!(
            read,
            json!({
                "elemental": { "registration": {
                    "url": "https://c.example:8443/elemental/registration/tok",
                    "ca-cert": "-----BEGIN CERTIFICATE-----\nAA==\n",
                    "emulate-tpm": true,
                } },
                "cloud-config": { "write_files": [{ "path": "/x", "content": "a\nb" }] },
            })
        );
        let padded = fill_archive(&text, 65536).unwrap();
        assert_eq!(padded.len(), 65536);
        assert_eq!(serde_norway::from_slice::<Value>(&padded).unwrap(), read);
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
            let text = render_config(&SeedImage::default(), &registration, "CA").unwrap();
            let read: Value = serde_norway::from_str(&text).unwrap();
            assert_eq!(read["network"], want, "{network}");
        }
    }

    #[test]
    fn what_cannot_be_a_seed_says_why() {
        let error = render_config(&SeedImage::default(), &MachineRegistration::default(), "").unwrap_err();
        assert!(matches!(error, ConfigError::NotReady));
        let error = fill_archive("12345", 4).unwrap_err();
        assert!(matches!(error, ConfigError::TooLarge { needed: 5, reserved: 4 }), "{error}");
        assert_eq!(fill_archive("1234", 4).unwrap(), "1234");
    }
}
