//! The components of the provider for `clusterctl`: the manifests of `coordinator/config` with the
//! labels and variables that `clusterctl` expects.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Deserialize as _;
use serde_norway::Value;

use crate::{IMAGE, VERSION};

/// The label by which `clusterctl` finds the objects of a provider.
const PROVIDER: (&str, &str) = ("cluster.x-k8s.io/provider", "infrastructure-baremetal");
/// The Service that hosts reach, and the Deployment.
const NAME: &str = "baremetal-coordinator";
/// The label of a node by which a Deployment selects the architecture of its image.
const ARCHITECTURE: &str = "kubernetes.io/arch";
/// Files of `coordinator/templates` that are released without a change.
const TEMPLATES: [&str; 5] = [
    "cluster-template.yaml",
    "cluster-template-vip.yaml",
    "cluster-template-clusterclass.yaml",
    "cluster-template-metal3.yaml",
    "clusterclass-baremetal.yaml",
];

/// A source cannot be read, or lacks a field.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("read {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    #[error("parse {}", .0.display())]
    Parse(PathBuf, #[source] serde_norway::Error),
    #[error("write YAML")]
    Write(#[from] serde_norway::Error),
    /// A manifest lacks the field that a variable replaces.
    #[error("no {place} in the {kind} of coordinator/config/manager.yaml")]
    Place {
        kind: &'static str,
        /// Path to the field.
        place: String,
    },
}

/// The kinds of Metal3 that a set of manifests serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metal3 {
    /// No kind; `--metal3=hosts` needs one more role.
    Off,
    /// All kinds, with their definitions.
    Full,
}

/// The directory `coordinator` of a checkout.
#[derive(Debug, Clone)]
pub struct Sources(PathBuf);

impl Sources {
    /// The sources that this program was built from.
    pub fn of_checkout() -> Self {
        Self(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")))
    }

    pub fn text(&self, file: &str) -> Result<String, Error> {
        let path = self.0.join(file);
        std::fs::read_to_string(&path).map_err(|error| Error::Read(path, error))
    }

    /// Sorted names of the files of a directory.
    pub fn list(&self, directory: &str) -> Result<Vec<String>, Error> {
        let path = self.0.join(directory);
        let entries = path.read_dir().and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|error| Error::Read(path, error))?;
        let mut names: Vec<String> = entries
            .iter()
            .map(|entry| format!("{directory}/{}", entry.file_name().to_string_lossy()))
            .collect();
        names.sort();
        Ok(names)
    }

    /// The YAML documents of a file.
    pub fn documents(&self, file: &str) -> Result<Vec<Value>, Error> {
        let text = self.text(file)?;
        let documents = serde_norway::Deserializer::from_str(&text).map(Value::deserialize);
        documents.collect::<Result<_, _>>().map_err(|error| Error::Parse(self.0.join(file), error))
    }

    /// All objects of an installation, each behind the objects that it needs.
    pub fn objects(&self, metal3: Metal3) -> Result<Vec<Value>, Error> {
        let rights = ["rbac.yaml", "all-namespaces.yaml", "users.yaml"];
        let mut files: Vec<_> = rights.iter().map(|file| format!("config/{file}")).collect();
        files.extend(self.list("config/crd")?);
        if metal3 == Metal3::Full {
            let rights = ["rbac.yaml", "all-namespaces.yaml", "policy.yaml", "conversion.yaml"];
            files.extend(rights.map(|file| format!("config/metal3/{file}")));
            files.extend(self.list("config/metal3/crd")?);
        }
        files.push("config/manager.yaml".to_owned());
        let mut objects = vec![];
        for file in files {
            objects.extend(self.documents(&file)?);
        }
        objects.sort_by_key(|object| match kind(object) {
            "Namespace" => 0,
            "CustomResourceDefinition" => 1,
            "ServiceAccount" => 2,
            "Deployment" => 4,
            _ => 3,
        });
        Ok(objects)
    }

    /// The architecture of the nodes that the coordinator runs on, as images name it.
    pub fn architecture(&self) -> Result<String, Error> {
        let documents = self.documents("config/manager.yaml")?;
        let deployment = documents.iter().find(|document| kind(document) == "Deployment");
        let selector = deployment.and_then(|found| found["spec"]["template"]["spec"].get("nodeSelector"));
        let architecture = selector.and_then(|selector| selector.get(ARCHITECTURE)?.as_str());
        let architecture = architecture.ok_or_else(|| {
            let place = format!("nodeSelector {ARCHITECTURE}");
            Error::Place { kind: "Deployment", place }
        });
        Ok(architecture?.to_owned())
    }

    /// The components of the provider for `clusterctl`.
    pub fn components(&self, metal3: Metal3) -> Result<String, Error> {
        let mut text =
            format!("# Baremetal provider {VERSION} for clusterctl, made from coordinator/config.\n");
        for mut object in self.objects(metal3)? {
            escape_variables(&mut object);
            add_label(&mut object);
            for (place, value) in list_variables(&object, metal3) {
                set_value(&mut object, place, value)?;
            }
            let _ = write!(text, "---\n{}", serde_norway::to_string(&object)?);
        }
        Ok(text)
    }

    /// The files that a repository of `clusterctl` has for one version, by name.
    pub fn repository(&self) -> Result<BTreeMap<&'static str, String>, Error> {
        let mut files = BTreeMap::from([
            ("metadata.yaml", self.text("config/metadata.yaml")?),
            ("infrastructure-components.yaml", self.components(Metal3::Off)?),
            ("infrastructure-components-metal3.yaml", self.components(Metal3::Full)?),
        ]);
        for name in TEMPLATES {
            files.insert(name, self.text(&format!("templates/{name}"))?);
        }
        Ok(files)
    }
}

fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// Escapes text that looks like a variable: `$$` stands for a dollar sign.
fn escape_variables(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace("${", "$${"),
        Value::Sequence(values) => values.iter_mut().for_each(escape_variables),
        Value::Mapping(fields) => fields.values_mut().for_each(escape_variables),
        _ => {}
    }
}

fn add_label(object: &mut Value) {
    let Some(Value::Mapping(metadata)) = object.get_mut("metadata") else { return };
    let labels =
        metadata.entry("labels".into()).or_insert_with(|| Value::Mapping(serde_norway::Mapping::new()));
    if let Value::Mapping(labels) = labels {
        labels.insert(PROVIDER.0.into(), PROVIDER.1.into());
    }
}

/// The fields of an object that become variables, and their values.
fn list_variables(object: &Value, metal3: Metal3) -> Vec<(&'static str, String)> {
    let mode = match metal3 {
        Metal3::Off => "off",
        Metal3::Full => "full",
    };
    match kind(object) {
        "Service" if object["metadata"]["name"] == NAME => {
            vec![("/spec/type", "${BAREMETAL_SERVICE_TYPE:=LoadBalancer}".to_owned())]
        }
        "Deployment" => vec![
            ("/spec/replicas", "${BAREMETAL_REPLICAS:=2}".to_owned()),
            ("/spec/template/spec/containers/0/image", format!("${{BAREMETAL_IMAGE:={IMAGE}}}")),
            ("/spec/template/spec/containers/1/image", format!("${{BAREMETAL_IMAGE:={IMAGE}}}")),
            // The URL has no default, because each site has its own.
            ("/spec/template/spec/containers/0/args/0", "--server-url=${BAREMETAL_SERVER_URL}".to_owned()),
            ("/spec/template/spec/containers/0/args/1", format!("--metal3=${{BAREMETAL_METAL3:={mode}}}")),
            (
                "/spec/template/spec/containers/0/resources/limits/memory",
                "${BAREMETAL_MEMORY_LIMIT:=1Gi}".to_owned(),
            ),
        ],
        _ => vec![],
    }
}

/// Replaces the value at a path that has to exist.
fn set_value(object: &mut Value, place: &str, value: String) -> Result<(), Error> {
    let kind = if kind(object) == "Service" { "Service" } else { "Deployment" };
    let mut at = Some(object);
    for part in place.split('/').skip(1) {
        at = at.and_then(|value| match part.parse::<usize>() {
            Ok(index) => value.get_mut(index),
            Err(_) => value.get_mut(part),
        });
    }
    let field = at.ok_or_else(|| Error::Place { kind, place: place.to_owned() })?;
    *field = Value::String(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::COORDINATOR;

    #[test]
    fn clusterctl_components_carry_the_provider_label() {
        let sources = Sources::of_checkout();
        for metal3 in [Metal3::Off, Metal3::Full] {
            let text = sources.components(metal3).unwrap();
            let documents = text.matches("\n---\n").count();
            assert_eq!(documents, sources.objects(metal3).unwrap().len());
            assert_eq!(
                text.matches("cluster.x-k8s.io/provider: infrastructure-baremetal").count(),
                documents
            );
        }
    }

    #[test]
    fn clusterctl_components_have_known_variables_alone() {
        let text = Sources::of_checkout().components(Metal3::Off).unwrap();
        assert!(text.contains("$${System Information/UUID}"), "text of a definition is no variable");
        let mut names: Vec<&str> = text
            .split("${")
            .zip(text.split("${").skip(1))
            .filter(|(before, _)| !before.ends_with('$'))
            .map(|(_, after)| after.split([':', '}']).next().unwrap_or_default())
            .collect();
        names.sort_unstable();
        names.dedup();
        let known = ["IMAGE", "MEMORY_LIMIT", "METAL3", "REPLICAS", "SERVER_URL", "SERVICE_TYPE"];
        assert_eq!(names, known.map(|name| format!("BAREMETAL_{name}")));
    }

    /// With the label of the cluster alone, two deployments of a cluster select each other's machines, and
    /// those of its control plane.
    #[test]
    fn clusterctl_templates_select_their_own_machines() {
        const OWN: &str = "cluster.x-k8s.io/deployment-name";
        let sources = Sources::of_checkout();
        let mut files = TEMPLATES.map(|name| format!("templates/{name}")).to_vec();
        files.push("../docs/examples/workers.yaml".to_owned());
        let documents = files.iter().flat_map(|file| sources.documents(file).unwrap());
        let deployments: Vec<Value> =
            documents.filter(|document| kind(document) == "MachineDeployment").collect();
        assert_eq!(deployments.len(), 4);
        for deployment in deployments {
            let (name, spec) = (&deployment["metadata"]["name"], &deployment["spec"]);
            assert_eq!(&spec["selector"]["matchLabels"][OWN], name);
            assert_eq!(&spec["template"]["metadata"]["labels"][OWN], name);
        }
    }

    #[test]
    fn chart_and_manifests_name_one_architecture() {
        let sources = Sources::of_checkout();
        let values = sources.documents("chart/values.yaml").unwrap();
        let own = sources.architecture().unwrap();
        assert_eq!(values[0]["nodeSelector"][ARCHITECTURE].as_str(), Some(&*own));
    }

    /// What reads bytes of foreign servers has no way to the API server and to the authority's key.
    #[test]
    fn fetcher_of_base_images_has_no_credential() {
        let objects = Sources::of_checkout().objects(Metal3::Full).unwrap();
        let deployment = objects.iter().find(|object| kind(object) == "Deployment").unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], Value::Bool(false));
        let [manager, fetcher] = &pod["containers"].as_sequence().unwrap()[..] else { panic!("{pod:?}") };
        let mounts = |container: &Value| -> BTreeMap<String, String> {
            let mounts = container["volumeMounts"].as_sequence().unwrap().iter();
            let text = |mount: &Value, field: &str| mount[field].as_str().unwrap().to_owned();
            mounts.map(|mount| (text(mount, "name"), text(mount, "mountPath"))).collect()
        };
        assert_eq!(mounts(fetcher).into_keys().collect::<Vec<_>>(), ["base-images"]);
        let volumes = pod["volumes"].as_sequence().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == "base-images").unwrap();
        assert!(volume.get("emptyDir").is_some(), "{volume:?}");
        let environment = fetcher["env"].as_sequence().unwrap();
        assert!(environment.iter().all(|variable| variable.get("valueFrom").is_none()), "{environment:?}");
        assert!(fetcher.get("envFrom").is_none());
        assert_eq!(mounts(manager)["service-account"], "/var/run/secrets/kubernetes.io/serviceaccount");
        for field in ["image", "securityContext"] {
            assert_eq!(fetcher[field], manager[field], "{field}");
        }
        let probe = &fetcher["livenessProbe"]["exec"]["command"];
        assert_eq!(probe[0], format!("/{COORDINATOR}"), "it is restarted alone");
        assert!(fetcher["resources"]["limits"].get("memory").is_some());
    }

    #[test]
    fn objects_stand_behind_what_they_need() {
        let objects = Sources::of_checkout().objects(Metal3::Full).unwrap();
        let place =
            |kind_wanted: &str| objects.iter().position(|object| kind(object) == kind_wanted).unwrap();
        assert_eq!(place("Namespace"), 0);
        assert!(place("CustomResourceDefinition") < place("ServiceAccount"));
        assert!(place("ServiceAccount") < place("ClusterRoleBinding"));
        assert_eq!(place("Deployment"), objects.len() - 1);
    }

    #[test]
    fn missing_place_is_an_error() {
        let mut object: Value = serde_norway::from_str("{kind: Service, spec: {}}").unwrap();
        let error = set_value(&mut object, "/spec/type", "x".to_owned()).unwrap_err();
        assert!(error.to_string().contains("/spec/type"), "{error}");
    }
}
