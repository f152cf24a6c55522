//! The Helm chart: the files of `coordinator/chart`, and templates made of the manifests that
//! `clusterctl` installs.

use std::collections::BTreeMap;

use crate::components::{Error, Sources};

/// The namespace of the manifests, and the name of the catalog there.
const NAMESPACE: &str = "baremetal-system";
const CATALOG: &str = "elemental-image-catalog";
/// The namespace that `one-namespace.yaml` names as an example.
const EXAMPLE: &str = "fleet";

impl Sources {
    /// The files of the chart by path.
    pub fn chart(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut files = BTreeMap::new();
        let written = [self.list("chart")?, self.list("chart/templates")?].concat();
        for file in written.into_iter().filter(|file| file != "chart/templates") {
            let name = file.trim_start_matches("chart/").to_owned();
            files.insert(name, self.text(&file)?);
        }
        let definitions = self.definitions("config/crd")?;
        let metal3 = self.definitions("config/metal3/crd")?;
        let rights = self.rights()?;
        let install = ".Values.definitions.install";
        let full = r#"eq .Values.metal3.mode "full""#;
        for (name, text) in [
            ("definitions", render_when(install, &definitions)),
            ("definitions-metal3", render_when(&format!("and {install} ({full})"), &metal3)),
            ("rights", rights),
            ("rights-metal3", self.metal3_rights()?),
            ("conversion", render_when(full, &self.conversion()?)),
            ("users", parametrize(&self.text("config/users.yaml")?)),
        ] {
            files.insert(format!("templates/{name}.yaml"), text);
        }
        files.extend(self.observability()?);
        Ok(files)
    }

    /// Alert rules and dashboard by path: the chart can install them, and the release has them as files.
    pub fn observability(&self) -> Result<BTreeMap<String, String>, Error> {
        let files = ["observability/alerts.yaml", "observability/dashboard.json"];
        files.into_iter().map(|file| Ok((file.to_owned(), self.text(file)?))).collect()
    }

    fn definitions(&self, directory: &str) -> Result<String, Error> {
        let mut text = String::new();
        for file in self.list(directory)? {
            // Helm keeps the definitions, because a deleted definition deletes its objects.
            let keep = "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n";
            text += "---\n";
            text += &parametrize(&self.text(&file)?).replacen("metadata:\n", keep, 1);
        }
        Ok(text)
    }

    /// The roles and policies, bound in all namespaces or in each that is watched.
    fn rights(&self) -> Result<String, Error> {
        let text = self.text("config/rbac.yaml")?;
        let documents: Vec<&str> =
            text.split("---\n").filter(|document| !document.contains("kind: Namespace\n")).collect();
        let everywhere = self.text("config/all-namespaces.yaml")?;
        let within = self.text("config/one-namespace.yaml")?;
        Ok(parametrize(&documents.join("---\n")) + "---\n" + &render_bindings(&everywhere, &within))
    }

    fn metal3_rights(&self) -> Result<String, Error> {
        let within = self.text("config/metal3/one-namespace.yaml")?;
        let everywhere = self.text("config/metal3/all-namespaces.yaml")?;
        let full = parametrize(&self.text("config/metal3/rbac.yaml")?)
            + "---\n"
            + &render_bindings(&everywhere, &within);
        let hosts = self.text("config/metal3/hosts.yaml")?;
        let (role, everywhere) = hosts.split_once("---\n").unwrap_or((&hosts, ""));
        let within = within.replace("baremetal-coordinator-metal3", "baremetal-coordinator-hosts");
        let hosts = parametrize(role) + "---\n" + &render_bindings(everywhere, &within);
        let policy = parametrize(&self.text("config/metal3/policy.yaml")?);
        Ok(render_when(r#"eq .Values.metal3.mode "full""#, &full)
            + &render_when(r#"eq .Values.metal3.mode "hosts""#, &hosts)
            + "---\n"
            + &render_when(r#"ne .Values.metal3.mode "off""#, &policy))
    }

    /// The webhook, with its role.
    fn conversion(&self) -> Result<String, Error> {
        let text = self.text("config/metal3/conversion.yaml")?;
        let render = |document: &str| {
            let text = parametrize(document);
            let is_policy = document.contains("kind: NetworkPolicy\n");
            if is_policy { render_when(".Values.networkPolicy.enabled", &text) } else { text }
        };
        Ok(text.split("---\n").map(render).collect::<Vec<_>>().join("---\n"))
    }
}

/// A binding for the whole cluster, or one in each namespace that is watched.
fn render_bindings(everywhere: &str, within: &str) -> String {
    let within = parametrize(within).replace(&format!("namespace: {EXAMPLE}\n"), "namespace: {{ . }}\n");
    format!(
        "{{{{- if .Values.watch.namespaces }}}}\n{{{{- range .Values.watch.namespaces }}}}\n---\n{within}\
         {{{{- end }}}}\n{{{{- else }}}}\n---\n{}{{{{- end }}}}\n",
        parametrize(everywhere)
    )
}

fn render_when(condition: &str, text: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{text}\n{{{{- end }}}}\n")
}

/// The text of a manifest with its braces kept, because Helm reads braces as a template.
fn escape_template(text: &str) -> String {
    text.replace("{{", r#"{{ "{{" }}"#)
}

fn parametrize(text: &str) -> String {
    escape_template(text)
        .replace(NAMESPACE, "{{ $.Release.Namespace }}")
        .replace(CATALOG, "{{ $.Values.provider.imageCatalog.name }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_has_the_version_of_the_coordinator() {
        let chart = Sources::of_checkout().chart().unwrap();
        for field in ["version", "appVersion"] {
            let line = format!("\n{field}: {}\n", crate::VERSION);
            assert!(chart["Chart.yaml"].contains(&line), "{field}");
        }
    }

    #[test]
    fn nothing_of_the_chart_names_a_fixed_namespace() {
        for (name, text) in Sources::of_checkout().chart().unwrap() {
            assert!(!text.contains(NAMESPACE), "{name}");
            assert!(!text.contains(&format!("namespace: {EXAMPLE}")), "{name}");
        }
    }

    #[test]
    fn braces_of_a_manifest_are_kept() {
        assert_eq!(escape_template("a {{ b }}"), r#"a {{ "{{" }} b }}"#);
    }
}
