//! The objects that an operator applies, as they stand in `manifests/`.

/// See `manifests/registration.yaml`.
pub const REGISTRATION: &str = include_str!("../manifests/registration.yaml");
/// See `manifests/seed-image.yaml`.
pub const SEED_IMAGE: &str = include_str!("../manifests/seed-image.yaml");
/// See `manifests/cluster.yaml`.
pub const CLUSTER: &str = include_str!("../manifests/cluster.yaml");
/// See `manifests/control-planes.yaml`.
pub const CONTROL_PLANES: &str = include_str!("../manifests/control-planes.yaml");
/// See `manifests/health-check.yaml`.
pub const HEALTH_CHECK: &str = include_str!("../manifests/health-check.yaml");
/// See `manifests/book-health-check.yaml`.
pub const BOOK_HEALTH_CHECK: &str = include_str!("../manifests/book-health-check.yaml");
/// See `manifests/metal3.yaml`.
pub const METAL3: &str = include_str!("../manifests/metal3.yaml");
/// See `manifests/metal3-worker.yaml`.
pub const METAL3_WORKER: &str = include_str!("../manifests/metal3-worker.yaml");
/// See `manifests/metal3-health-check.yaml`.
pub const METAL3_HEALTH_CHECK: &str = include_str!("../manifests/metal3-health-check.yaml");
/// What is applied beside the roles for the kinds of Metal3.
pub const METAL3_RIGHTS: [&str; 3] = [
    include_str!("../../../coordinator/config/metal3/rbac.yaml"),
    include_str!("../../../coordinator/config/metal3/all-namespaces.yaml"),
    include_str!("../../../coordinator/config/metal3/policy.yaml"),
];
/// The webhook of the kinds of Metal3, in the coordinator's namespace.
pub const METAL3_CONVERSION: &str = include_str!("../../../coordinator/config/metal3/conversion.yaml");
/// The coordinator's roles and policy.
pub const RIGHTS: &str = include_str!("../../../coordinator/config/rbac.yaml");
const ALL_NAMESPACES: &str = include_str!("../../../coordinator/config/all-namespaces.yaml");
const ONE_NAMESPACE: &str = include_str!("../../../coordinator/config/one-namespace.yaml");

/// What is applied for a coordinator that is limited to `namespaces`, where there
/// are any.
pub fn rights(namespaces: &[&str]) -> Vec<String> {
    let in_one = |namespace: &&str| {
        ONE_NAMESPACE.replace("\n  namespace: fleet\n", &format!("\n  namespace: {namespace}\n"))
    };
    let bindings = match namespaces {
        [] => vec![ALL_NAMESPACES.to_owned()],
        some => some.iter().map(in_one).collect(),
    };
    [RIGHTS.to_owned()].into_iter().chain(bindings).collect()
}

/// Replaces each `@NAME@` by its value.
pub fn fill(manifest: &str, values: &[(&str, &str)]) -> String {
    let fill = |text: String, (name, value): &(&str, &str)| text.replace(&format!("@{name}@"), value);
    values.iter().fold(manifest.to_owned(), fill)
}
