//! The kinds of Cluster API Provider Metal3 and of its address manager, for hosts without
//! a BMC. Names, fields and defaults are the same as in those projects.

pub mod cluster;
pub mod data;
pub mod data_template;
pub mod host;
mod ip_rules;
pub mod ipam;
pub mod machine;
pub mod remediation;
pub mod v1beta2;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionVersion, ServiceReference,
    WebhookClientConfig, WebhookConversion,
};
use kube::CustomResourceExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::crds;
use crate::names::annotation;
use crate::object::Namespace;

/// Every definition that `--metal3=full` needs.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut host = host::BareMetalHost::crd();
    crds::make_spec_optional(&mut host);
    let mut crds = vec![
        host,
        cluster::Metal3Cluster::crd(),
        cluster::Metal3ClusterTemplate::crd(),
        machine::Metal3Machine::crd(),
        machine::Metal3MachineTemplate::crd(),
        data_template::Metal3DataTemplate::crd(),
        data::Metal3DataClaim::crd(),
        data::Metal3Data::crd(),
        remediation::Metal3Remediation::crd(),
        remediation::Metal3RemediationTemplate::crd(),
        ipam::IPPool::crd(),
        ipam::IPClaim::crd(),
        ipam::IPAddress::crd(),
    ];
    for newer in v1beta2::crds() {
        if let Some(crd) = crds.iter_mut().find(|crd| crd.metadata.name == newer.metadata.name) {
            add_version(crd, newer);
        }
    }
    for crd in &mut crds {
        crds::keep_foreign_status(crd);
        crds::complete_definition(crd);
        // The plural is that of the project, and `clusterctl init` would refuse it.
        if crd.spec.names.plural == "metal3datas" {
            let annotations = crd.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::SKIP_NAME_CHECK.to_owned(), String::new());
        }
    }
    crds
}

/// Reads an empty text as absent: the older version of an object that CAPM3 stores has empty texts where nothing was
/// written.
pub(crate) fn filled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()))
}

/// The definitions with two versions.
pub const CONVERTED: [&str; 9] = [
    "metal3clusters.infrastructure.cluster.x-k8s.io",
    "metal3clustertemplates.infrastructure.cluster.x-k8s.io",
    "metal3machines.infrastructure.cluster.x-k8s.io",
    "metal3machinetemplates.infrastructure.cluster.x-k8s.io",
    "metal3datatemplates.infrastructure.cluster.x-k8s.io",
    "metal3dataclaims.infrastructure.cluster.x-k8s.io",
    "metal3datas.infrastructure.cluster.x-k8s.io",
    "metal3remediations.infrastructure.cluster.x-k8s.io",
    "metal3remediationtemplates.infrastructure.cluster.x-k8s.io",
];

/// The webhook that converts between the versions, as the manifests have it.
pub mod webhook {
    /// Name of the Service.
    pub const SERVICE: &str = "baremetal-coordinator-conversion";
    /// Namespace of the Service in the manifests.
    pub const NAMESPACE: &str = "baremetal-system";
    /// Port of the Service.
    pub const PORT: i32 = 443;
    /// Path of the webhook.
    pub const PATH: &str = "/convert";
}

/// Adds v1beta2. Without the authority of the webhook, which the coordinator writes, the API server
/// refuses to convert, and prunes nothing.
fn add_version(crd: &mut CustomResourceDefinition, newer: CustomResourceDefinition) {
    let versions = newer.spec.versions.into_iter();
    crd.spec
        .versions
        .extend(versions.map(|version| CustomResourceDefinitionVersion { storage: false, ..version }));
    let service = ServiceReference {
        namespace: webhook::NAMESPACE.to_owned(),
        name: webhook::SERVICE.to_owned(),
        path: Some(webhook::PATH.to_owned()),
        port: Some(webhook::PORT),
    };
    let client_config = WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() };
    crd.spec.conversion = Some(CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(client_config),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    });
}

/// An IPv4 address.
macro_rules! ipv4 {
    () => {
        r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}"
    };
}

/// An IPv6 address.
macro_rules! ipv6 {
    () => {
        concat!(
            r"([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}",
            r"|([0-9a-fA-F]{1,4}:){1,7}:",
            r"|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}",
            r"|([0-9a-fA-F]{1,4}:){1,5}(:[0-9a-fA-F]{1,4}){2}",
            r"|([0-9a-fA-F]{1,4}:){1,4}(:[0-9a-fA-F]{1,4}){3}",
            r"|([0-9a-fA-F]{1,4}:){1,3}(:[0-9a-fA-F]{1,4}){4}",
            r"|([0-9a-fA-F]{1,4}:){1,2}(:[0-9a-fA-F]{1,4}){5}",
            r"|[0-9a-fA-F]{1,4}:(:[0-9a-fA-F]{1,4}){6}",
            r"|:((:[0-9a-fA-F]{1,4}){1,7}|:)",
            r"|(([0-9a-fA-F]{1,4}:){6}|::([0-9a-fA-F]{1,4}:){0,5}|([0-9a-fA-F]{1,4}:){1,4}:([0-9a-fA-F]{1,4}:){0,1})",
            ipv4!(),
        )
    };
}

/// An IPv4 or IPv6 address.
pub(crate) const IP_ADDRESS: &str = concat!("^(", ipv4!(), "|", ipv6!(), ")$");
/// A network with its prefix length.
pub(crate) const NETWORK: &str = concat!(
    "^((",
    ipv4!(),
    ")/([0-9]|[12][0-9]|3[0-2])|(",
    ipv6!(),
    ")/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))$"
);

/// A reference to an object; its kind follows from the field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Name of the object.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Namespace of the object. Absent: the namespace of the referring object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Written by CAPM3 and not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Written by CAPM3, and only read for the claim of an `IPAddress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Written by CAPM3 and not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Part of every reference in Kubernetes and not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
    /// Part of every reference in Kubernetes and not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

impl ObjectRef {
    /// A reference to an object of this namespace.
    pub fn within(namespace: &str, name: &str) -> Self {
        Self { name: name.to_owned(), namespace: Some(namespace.to_owned()), ..Self::default() }
    }

    /// The object is in another namespace than `own`, where no reference leads.
    pub fn is_outside(&self, own: &Namespace) -> bool {
        is_outside(self.namespace.as_deref(), own)
    }
}

fn is_outside(named: Option<&str>, own: &Namespace) -> bool {
    named.is_some_and(|namespace| !namespace.is_empty() && *own != namespace)
}

/// A reference to a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Name of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the Secret, which is the namespace of the referring object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl SecretRef {
    /// The Secret is in another namespace than `own`, where the coordinator reads none.
    pub fn is_outside(&self, own: &Namespace) -> bool {
        is_outside(self.namespace.as_deref(), own)
    }
}

/// The user of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumer {
    /// Group and version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Not read, because names decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
    /// Not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

/// Names on Metal3 objects.
pub mod names {
    /// Finalizer of a `BareMetalHost` that names an inventory: held until the inventory is
    /// free for other owners.
    pub const HOST_FINALIZER: &str = "baremetalhost.baremetal.cluster.io";
    /// Finalizer of a `Metal3Machine`: held until its host is free.
    pub const MACHINE_FINALIZER: &str = "metal3machine.infrastructure.cluster.x-k8s.io";
    /// Finalizer of a `Metal3Remediation`: held until its reboot request is removed.
    pub const REMEDIATION_FINALIZER: &str = "metal3remediation.infrastructure.cluster.x-k8s.io";
    /// Finalizer of a `Metal3Cluster`: held while the Cluster has machines.
    pub const CLUSTER_FINALIZER: &str = "metal3cluster.infrastructure.cluster.x-k8s.io";
    /// Ours, annotation of a `BareMetalHost`: the providerID of the running node.
    pub const PROVIDER_ID: &str = "baremetal.cluster.io/provider-id";
    /// Ours, annotation of a `BareMetalHost`: the running image. Another image in the spec
    /// is installed after the node was removed.
    pub const PROVISIONED_IMAGE: &str = "baremetal.cluster.io/provisioned-image";
    /// Ours, annotation of a `BareMetalHost`: the OS image that replaces the image of the
    /// spec, as `oci://REGISTRY/IMAGE:TAG`. An image in the spec is still required.
    pub const OS_IMAGE: &str = "baremetal.cluster.io/os-image";
    /// Ours, annotation of a `Metal3Machine`: the image catalog has its image, by the
    /// version of its Machine.
    pub const IMAGE_FROM_CATALOG: &str = "baremetal.cluster.io/image-from-catalog";
    /// Annotation of a `Metal3Cluster`: prefixes, separated by commas, of the labels of hosts
    /// that are written to their Nodes.
    pub const LABEL_SYNC_PREFIXES: &str = "metal3.io/metal3-label-sync-prefixes";
    /// Annotation of a `Metal3Machine`: its host, as NAMESPACE/NAME.
    pub const HOST_OF_MACHINE: &str = "metal3.io/BareMetalHost";
    /// Annotation of a `Metal3Machine`: the value of [`HOST_OF_MACHINE`] that the coordinator wrote.
    /// Another value there is a host that an operator named.
    pub const CHOSEN_HOST: &str = "baremetal.cluster.io/chosen-host";
    /// Annotations that pause a `BareMetalHost`.
    pub const HOST_PAUSES: [&str; 2] = ["baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached"];
    /// Annotation of a `BareMetalHost`: copy of its status, which CAPM3 writes with a pause so that the
    /// status survives a move. It is stale after the pause.
    pub const SAVED_STATUS: &str = "baremetalhost.metal3.io/status";
    /// Annotations that exclude a `BareMetalHost` from the choice of machines.
    pub const HOST_UNHEALTHY: [&str; 2] = ["capm3.metal3.io/unhealthy", "capi.metal3.io/unhealthy"];
    /// Ours, annotation of a `Metal3DataClaim`, `Metal3Data`, `IPClaim` or `IPAddress`: time (RFC 3339) since
    /// which the object that has to release it is missing.
    pub const ORPHANED_SINCE: &str = "baremetal.cluster.io/orphaned-since";
    /// Annotation of a `BareMetalHost` that requests a reboot, without or with `/` and a key.
    pub const REBOOT: &str = "reboot.metal3.io";
    /// Ours, annotation of a `BareMetalHost`: accepted reboot requests, and the boot that
    /// they end.
    pub const REBOOT_RECORD: &str = "baremetal.cluster.io/reboot-record";
    /// Label of a `BareMetalHost` that is kept for the successors of a machine.
    pub const NODE_REUSE: &str = "infrastructure.cluster.x-k8s.io/node-reuse";
    /// Ours, annotation of such a host: time (RFC 3339) until which it is kept. A host without
    /// it is kept indefinitely.
    pub const KEPT_UNTIL: &str = "baremetal.cluster.io/kept-until";
    /// Ours, annotation of a `Metal3MachineTemplate`: time for which hosts are kept for
    /// successors, for example `45m` or `2h`.
    pub const KEEP_HOSTS_FOR: &str = "baremetal.cluster.io/keep-hosts-for";
    /// Ours, annotation of a `Metal3DataClaim`: the chosen index. It is written before the
    /// data, so that a stale cache cannot allocate a second index.
    pub const CHOSEN_INDEX: &str = "baremetal.cluster.io/data-index";
    /// Finalizer of a `Metal3DataClaim`: held until its data is deleted.
    pub const DATA_CLAIM_FINALIZER: &str = "metal3dataclaim.infrastructure.cluster.x-k8s.io";
    /// Finalizer of a `Metal3Data`: held until its addresses are released.
    pub const DATA_FINALIZER: &str = "metal3data.infrastructure.cluster.x-k8s.io";
    /// Finalizer of a `Metal3DataTemplate`: held while the template has data.
    pub const DATA_TEMPLATE_FINALIZER: &str = "metal3datatemplate.infrastructure.cluster.x-k8s.io";
    /// Type of rendered Secrets.
    pub const DATA_SECRET: &str = "infrastructure.cluster.x-k8s.io/secret";
    /// Label of an `IPClaim` with the name of its `Metal3Data`.
    pub const DATA_NAME: &str = "infrastructure.cluster.x-k8s.io/data-name";
    /// Label of an `IPClaim` with the name of its pool.
    pub const POOL_NAME: &str = "infrastructure.cluster.x-k8s.io/pool-name";
    /// Label of a `BareMetalHost` with its failure domain.
    pub const FAILURE_DOMAIN: &str = "infrastructure.cluster.x-k8s.io/failure-domain";
    /// Annotation of an `IPClaim`: the requested address.
    pub const REQUESTED_ADDRESS: &str = "ipAddress";
    /// Ours, annotation of an `IPClaim`: the chosen address. It is written before the
    /// `IPAddress`, so that a stale cache cannot allocate a second address.
    pub const CHOSEN_ADDRESS: &str = "baremetal.cluster.io/ip-address";
    /// Finalizer of an `IPClaim`: held until its address is released.
    pub const CLAIM_FINALIZER: &str = "ipclaim.ipam.metal3.io";
    /// Finalizer of an `IPAddress`: held while its claim exists.
    pub const ADDRESS_FINALIZER: &str = "ipaddress.ipam.metal3.io";
    /// Label of Cluster API with the provider of an object, here of an `IPPool` of a Cluster.
    pub const PROVIDER: (&str, &str) = ("cluster.x-k8s.io/provider", "ipam-metal3");
    /// Finalizer of an `IPPool`: held while one of its addresses is in use.
    pub const POOL_FINALIZER: &str = "ippool.ipam.metal3.io";
}
