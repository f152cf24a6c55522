//! The kinds that the server serves, and the rules for each.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::admission;
use crate::schema::Schema;

/// Whether objects of a kind live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// Who defined the kind: the server treats the two differently in small ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Compiled into the real server: no nulls, no generation, update without resourceVersion.
    BuiltIn,
    /// From a CRD: generation, and every PUT names the resourceVersion it read.
    Custom,
}

/// A kind that the fake serves at one group and version.
#[derive(Clone, Debug)]
pub struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    /// As in manifests: `Widget`.
    pub(crate) name: String,
    pub(crate) plural: String,
    pub(crate) scope: Scope,
    pub(crate) origin: Origin,
    pub(crate) has_status: bool,
    pub(crate) unconditional_update: bool,
    pub(crate) schema: Option<Arc<Schema>>,
}

impl Kind {
    /// A namespaced custom kind whose schema is not known. Prefer [`Kind::from_crd`].
    pub fn namespaced(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            name: kind.into(),
            plural: plural.into(),
            scope: Scope::Namespaced,
            origin: Origin::Custom,
            has_status: false,
            unconditional_update: false,
            schema: None,
        }
    }

    /// As [`Kind::namespaced`], for a kind without namespaces.
    pub fn cluster(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self { scope: Scope::Cluster, ..Self::namespaced(group, version, kind, plural) }
    }

    /// Serves `/status`, and keeps status out of every other write.
    pub fn with_status(mut self) -> Self {
        self.has_status = true;
        self
    }

    /// The kinds of a CRD, one for each served version: scope, status subresource and schema
    /// are the CRD's own.
    pub fn from_crd(crd: &CustomResourceDefinition) -> Vec<Self> {
        let names = &crd.spec.names;
        let scope = if crd.spec.scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced };
        let served = crd.spec.versions.iter().filter(|version| version.served);
        served
            .map(|version| {
                let schema = version.schema.as_ref();
                let root = schema.and_then(|schema| schema.open_api_v3_schema.as_ref());
                let status = version.subresources.as_ref().and_then(|s| s.status.as_ref());
                Self {
                    scope,
                    has_status: status.is_some(),
                    schema: root.map(|root| Arc::new(Schema::compile(root))),
                    ..Self::namespaced(&crd.spec.group, &version.name, &names.kind, &names.plural)
                }
            })
            .collect()
    }

    /// `group/version`, or the version alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `plural.group`: the name of the resource in messages, and the first part of the key of its objects.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Whether the server counts `metadata.generation` for this kind.
    pub(crate) fn counts_generations(&self) -> bool {
        self.origin == Origin::Custom || self.plural == CRDS
    }

    fn built_in(self) -> Self {
        Self { origin: Origin::BuiltIn, unconditional_update: true, ..self }
    }

    fn conditional(self) -> Self {
        Self { unconditional_update: false, ..self }
    }
}

/// Every kind that the server serves, by group, version and plural.
#[derive(Debug, Default)]
pub(crate) struct Kinds(BTreeMap<(String, String, String), Arc<Kind>>);

impl Kinds {
    /// The kinds of Kubernetes itself that controllers of this project touch.
    pub(crate) fn built_in() -> Self {
        let core = |kind, plural| Kind::namespaced("", "v1", kind, plural).built_in();
        let mut kinds = Self::default();
        for kind in [
            core("ConfigMap", "configmaps"),
            core("Secret", "secrets"),
            core("ServiceAccount", "serviceaccounts"),
            Kind::cluster("", "v1", "Namespace", "namespaces").built_in().with_status(),
            Kind::cluster("", "v1", "Node", "nodes").built_in().with_status(),
            core("Event", "events"),
            Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases").built_in().conditional(),
            Kind::cluster(admission::GROUP, "v1", "ValidatingAdmissionPolicy", admission::POLICIES)
                .built_in()
                .conditional(),
            Kind::cluster(admission::GROUP, "v1", "ValidatingAdmissionPolicyBinding", admission::BINDINGS)
                .built_in(),
            Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", CRDS)
                .built_in()
                .conditional()
                .with_status(),
        ] {
            kinds.register(kind);
        }
        kinds
    }

    pub(crate) fn register(&mut self, kind: Kind) {
        let at = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.0.insert(at, Arc::new(kind));
    }

    pub(crate) fn remove_version(&mut self, group: &str, version: &str) {
        self.0.retain(|(of, at, _), _| (of.as_str(), at.as_str()) != (group, version));
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        let at = (group.to_owned(), version.to_owned(), plural.to_owned());
        self.0.get(&at).cloned()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.0.values()
    }

    /// By the name in manifests, in any version.
    pub(crate) fn find_by_name(&self, group: &str, kind: &str) -> Option<Arc<Kind>> {
        self.all().find(|one| one.group == group && one.name == kind).cloned()
    }
}

/// Creating one of these registers its kinds, as on a real server.
pub(crate) const CRDS: &str = "customresourcedefinitions";
