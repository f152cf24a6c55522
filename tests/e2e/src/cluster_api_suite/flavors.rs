//! The provider's own templates, with what simulated hosts need otherwise.

use std::collections::BTreeMap;
use std::path::Path;

use control_plane::parts::Part;

use crate::commands::run_with_input;
use crate::environment::Environment;

/// Files of a release of the provider, and the kustomizations that they are made of.
const CLUSTERS: [(&str, &str); 5] = [
    ("cluster-template.yaml", "cluster"),
    ("cluster-template-md-remediation.yaml", "remediation"),
    ("cluster-template-kcp-md-taints.yaml", "taints"),
    ("cluster-template-topology.yaml", "topology"),
    ("cluster-template-topology-taints.yaml", "topology-taints"),
];
const CLASS: (&str, &str) = ("clusterclass-baremetal.yaml", "class");

/// The templates by the names that they have in a release. With each cluster come the authorities of the
/// API server that stands for its control planes.
pub(super) async fn render(environment: &Environment) -> anyhow::Result<BTreeMap<&'static str, String>> {
    let authorities = environment.workload.authority_secrets("${NAMESPACE}", "${CLUSTER_NAME}")?;
    let authorities: Vec<String> =
        authorities.iter().map(serde_norway::to_string).collect::<Result<_, _>>()?;
    let authorities = authorities.join("---\n");
    let mut files = BTreeMap::new();
    for (file, directory) in CLUSTERS {
        let template = kustomize(environment, directory).await?;
        files.insert(file, format!("{authorities}---\n{template}"));
    }
    files.insert(CLASS.0, kustomize(environment, CLASS.1).await?);
    Ok(files)
}

async fn kustomize(environment: &Environment, directory: &str) -> anyhow::Result<String> {
    let kubectl = environment.parts.path(Part::Kubectl)?;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/suite").join(directory);
    let directory = directory.display().to_string();
    let arguments = ["kustomize", "--load-restrictor=LoadRestrictionsNone", &directory];
    run_with_input(&kubectl, &arguments, "").await
}
