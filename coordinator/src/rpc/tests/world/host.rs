//! A host with a key in software: what it sends.

use coordinator_core::host::certified::KeyTime;
use jiff::Timestamp;
use proto::proof::{self, Exporter};
use proto::v1alpha1 as wire;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SigningKey as _};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::LIVE_BOOT;
use crate::ca::{Authority, HostKey, Peer, RequestedKey, Role, Subject};

pub(in crate::rpc::tests) struct Host {
    name: String,
    pub(super) key: KeyPair,
    /// Text of a keyfile that it reports.
    keyfile: Option<String>,
}

impl Host {
    pub(in crate::rpc::tests) fn new(name: &str) -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        Self { name: name.into(), key, keyfile: None }
    }

    /// A host with a keyfile of this many bytes.
    pub(in crate::rpc::tests) fn with_keyfile(self, bytes: usize) -> Self {
        let text = format!("[connection]\nid=a\ntype=ethernet\n#{}\n", "x".repeat(bytes));
        Self { keyfile: Some(text), ..self }
    }

    pub(in crate::rpc::tests) fn inventory_name(&self) -> String {
        format!("m-{}", self.name)
    }

    pub(super) fn public_key(&self) -> Vec<u8> {
        self.key.subject_public_key_info()
    }

    pub(in crate::rpc::tests) fn hash(&self) -> String {
        proof::identity(&self.public_key())
    }

    pub(super) fn request(&self) -> Vec<u8> {
        CertificateParams::default().serialize_request(&self.key).unwrap().der().to_vec()
    }

    pub(in crate::rpc::tests) fn complete(&self, nonce: &[u8], exporter: &Exporter) -> wire::CompleteRequest {
        let binding = proof::binding(nonce.try_into().unwrap(), exporter, &self.public_key());
        let uuid = (!self.name.is_empty()).then(|| ("UUID".to_owned(), self.name.clone()));
        wire::CompleteRequest {
            proof: self.key.sign(&binding).unwrap(),
            certificate_request: self.request(),
            facts: Some(wire::HostFacts {
                smbios: vec![wire::SmbiosSection {
                    title: "System Information".into(),
                    values: uuid.into_iter().collect(),
                }],
                ..Default::default()
            }),
            observed_network: Some(wire::ObservedNetwork {
                connections: self.keyfile.iter().map(|text| ("a".to_owned(), text.clone())).collect(),
                ..Self::network("192.0.2.1/24")
            }),
            boot_id: LIVE_BOOT.into(),
            tpm_quote: None,
            proves_renewals: true,
        }
    }

    pub(in crate::rpc::tests) fn host_key(&self) -> HostKey {
        HostKey { namespace: "fleet".into(), tpm_hash: self.hash() }
    }

    pub(in crate::rpc::tests) fn certificate(&self, authority: &Authority, role: Role) -> String {
        let requested = RequestedKey::parse(&self.request()).unwrap();
        let (key, name) = (self.host_key(), self.inventory_name());
        let subject = Subject { key: &key, name: &name, role, key_time: KeyTime::default() };
        authority.sign_host(&requested, &subject, Timestamp::now()).unwrap()
    }

    pub(in crate::rpc::tests) fn peer(chain: &str) -> Peer {
        Peer::parse(&CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()).unwrap()
    }

    pub(in crate::rpc::tests) fn hello(boot_id: &str) -> wire::Hello {
        let installed = wire::InstallDone { device: "/dev/sda".into(), image: "os:v1".into() };
        wire::Hello {
            system: Some(wire::SystemState { boot_id: boot_id.into(), ..Default::default() }),
            agent_version: "1".into(),
            carried: Some(wire::Carried { installed: Some(installed), ..Default::default() }),
            facts: None,
            network: None,
            settings: String::new(),
            agent_update: None,
        }
    }

    pub(in crate::rpc::tests) fn started() -> wire::InstallReport {
        let started = wire::InstallStarted { device: "/dev/sda".into(), attempt: 1 };
        wire::InstallReport { outcome: Some(wire::install_report::Outcome::Started(started)) }
    }

    pub(in crate::rpc::tests) fn installed() -> wire::InstallReport {
        let done = wire::InstallDone { device: "/dev/sda".into(), image: "os:v1".into() };
        wire::InstallReport { outcome: Some(wire::install_report::Outcome::Done(done)) }
    }

    pub(in crate::rpc::tests) fn network(address: &str) -> wire::ObservedNetwork {
        wire::ObservedNetwork {
            interfaces: vec![wire::Interface {
                name: "eth0".into(),
                mac: "52:54:00:00:00:01".into(),
                permanent_mac: "52:54:00:00:00:01".into(),
                mtu: 1500,
                addresses: vec![address.into()],
                ..Default::default()
            }],
            ..Default::default()
        }
    }
}
