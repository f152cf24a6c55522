//! How the fields of a kind merge: what of a schema server-side apply has to know.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// What an owner can own of a value: the whole, its members, or its items.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum Merge {
    /// Maps member by member, lists as a whole: the default of CRDs.
    #[default]
    Default,
    /// As a whole.
    Atomic,
    /// A list, item by item, an item is known by these members.
    ByKeys(Vec<String>),
    /// A list of scalars, value by value.
    Set,
}

/// A tree of merge rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) merge: Merge,
    members: BTreeMap<String, Shape>,
    items: Option<Box<Shape>>,
    others: Option<Box<Shape>>,
    conventional: bool,
}

static UNKNOWN: LazyLock<Shape> = LazyLock::new(Shape::default);
static CONVENTIONAL: LazyLock<Shape> = LazyLock::new(|| Shape { conventional: true, ..Shape::default() });
static CONDITIONS: LazyLock<Shape> = LazyLock::new(|| Shape::keyed("type"));

impl Shape {
    /// For a kind of unknown schema: `conditions` merge by `type` wherever they are.
    pub(crate) fn by_convention() -> Self {
        Self { conventional: true, ..Self::object([("metadata", Self::metadata())]) }
    }

    /// From the structural schema of a CRD version.
    pub(crate) fn from_schema(root: &JSONSchemaProps) -> Self {
        let mut shape = Self::from_props(root);
        shape.members.insert("metadata".into(), Self::metadata());
        shape
    }

    fn from_props(props: &JSONSchemaProps) -> Self {
        let keys = props.x_kubernetes_list_map_keys.clone().unwrap_or_default();
        let merge = match (props.x_kubernetes_list_type.as_deref(), props.x_kubernetes_map_type.as_deref()) {
            (Some("map"), _) => Merge::ByKeys(keys),
            (Some("set"), _) => Merge::Set,
            (Some("atomic"), _) | (_, Some("atomic")) => Merge::Atomic,
            _ => Merge::Default,
        };
        let members = props.properties.iter().flatten();
        let items = match &props.items {
            Some(JSONSchemaPropsOrArray::Schema(item)) => Some(Box::new(Self::from_props(item))),
            _ => None,
        };
        let others = match &props.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(of)) => Some(Box::new(Self::from_props(of))),
            _ => None,
        };
        Self {
            merge,
            members: members.map(|(name, of)| (name.clone(), Self::from_props(of))).collect(),
            items,
            others,
            conventional: false,
        }
    }

    /// The rules of `ObjectMeta`, the same for every kind.
    fn metadata() -> Self {
        let set = Self { merge: Merge::Set, ..Self::default() };
        let atomic = Self { merge: Merge::Atomic, ..Self::default() };
        let owners = Self { items: Some(Box::new(atomic)), ..Self::keyed("uid") };
        Self::object([("finalizers", set), ("ownerReferences", owners)])
    }

    fn keyed(key: &str) -> Self {
        Self { merge: Merge::ByKeys(vec![key.into()]), ..Self::default() }
    }

    fn object<const N: usize>(members: [(&str, Self); N]) -> Self {
        Self { members: members.map(|(name, shape)| (name.to_owned(), shape)).into(), ..Self::default() }
    }

    pub(crate) fn member(&self, name: &str) -> &Self {
        if let Some(known) = self.members.get(name).or(self.others.as_deref()) {
            return known;
        }
        match (self.conventional, name) {
            (true, "conditions") => &CONDITIONS,
            (true, _) => &CONVENTIONAL,
            (false, _) => &UNKNOWN,
        }
    }

    pub(crate) fn item(&self) -> &Self {
        self.items.as_deref().unwrap_or(&UNKNOWN)
    }
}
