//! The providerID that bootstrap data without edits gives the kubelet.

use std::collections::BTreeMap;

use super::content::Contents;
use super::tree::{self, Node};

const ARGUMENT: &str = "provider-id";
const META_DATA: &str = "ds.meta_data.";

/// The kubelet's `provider-id` as the data has it: in kubeadm's configuration of
/// the node, or in that of k3s and RKE2. `None` where there is none, or nothing that
/// can be read.
pub fn stated_provider_id(data: &str) -> Option<String> {
    let documents = tree::parse_tree(data).ok()?;
    let (_, files) = documents.first()?.find_entry("write_files").ok()??;
    let mut contents = Contents::default();
    files.items().iter().find_map(|entry| find_in_file(data, entry, &mut contents))
}

fn find_in_file(data: &str, entry: &Node, contents: &mut Contents) -> Option<String> {
    let encoding = entry.find_text("encoding").ok().flatten();
    let (_, content) = entry.find_entry("content").ok()??;
    let content = contents.read_next(data, content, encoding).ok()??;
    if !content.text.contains(ARGUMENT) {
        return None;
    }
    let documents = tree::parse_tree(&content.text).ok()?;
    documents.iter().find_map(|document| {
        find_kubeadm_argument(&content.text, document).or_else(|| find_argument(document))
    })
}

/// `nodeRegistration.kubeletExtraArgs`: a list in v1beta4, a map in v1beta3.
fn find_kubeadm_argument(text: &str, document: &Node) -> Option<String> {
    let (_, registration) = document.find_entry("nodeRegistration").ok()??;
    let (_, arguments) = registration.find_entry("kubeletExtraArgs").ok()??;
    let mut items = arguments.items().iter();
    let listed = items.rfind(|item| item.find_text("name").ok().flatten() == Some(ARGUMENT));
    let value = match listed {
        Some(item) => item.find_entry("value").ok()??.1,
        None => arguments.find_entry(ARGUMENT).ok()??.1,
    };
    // An expression without quotes reads as a mapping.
    Some(value.as_text().unwrap_or(&text[value.span.clone()]).to_owned())
}

/// `kubelet-arg: [provider-id=ID]`.
fn find_argument(document: &Node) -> Option<String> {
    let (_, arguments) = document.find_entry("kubelet-arg").ok()??;
    arguments.items().iter().rev().find_map(|item| read_argument(item)).or_else(|| read_argument(arguments))
}

fn read_argument(node: &Node) -> Option<String> {
    let (name, value) = node.as_text()?.split_once('=')?;
    (name.trim_start_matches('-') == ARGUMENT).then(|| value.to_owned())
}

/// Replaces each `{{ ds.meta_data.KEY }}`, as cloud-init does on the host. `None`
/// for any other expression, and for a key that is not there.
pub fn render_expressions(text: &str, meta_data: &BTreeMap<String, String>) -> Option<String> {
    let mut rendered = String::new();
    let mut rest = text;
    while let Some((before, expression)) = rest.split_once("{{") {
        let (expression, after) = expression.split_once("}}")?;
        rendered.push_str(before);
        rendered.push_str(meta_data.get(expression.trim().strip_prefix(META_DATA)?)?);
        rest = after;
    }
    rendered.push_str(rest);
    Some(rendered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> String {
        let lines: Vec<_> = content.lines().map(|line| format!("    {line}\n")).collect();
        let lines = lines.concat();
        format!("## template: jinja\n#cloud-config\nwrite_files:\n- path: /a\n  content: |\n{lines}")
    }

    #[test]
    fn data_states_a_provider_id() {
        let kubeadm = |arguments: &str| {
            let api = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration";
            file(&format!("---\n{api}\nnodeRegistration:\n  kubeletExtraArgs:{arguments}\n"))
        };
        let legacy = "metal3://{{ ds.meta_data.uuid }}";
        let as_list =
            format!("\n  - name: node-labels\n    value: a=b\n  - name: provider-id\n    value: {legacy}");
        for (what, data, want) in [
            ("a list", kubeadm(&as_list), Some(legacy)),
            ("a quoted value", kubeadm(&as_list.replace(legacy, &format!("'{legacy}'"))), Some(legacy)),
            ("a map", kubeadm(&format!("\n    provider-id: {legacy}")), Some(legacy)),
            (
                "an expression alone",
                kubeadm("\n    provider-id: {{ ds.meta_data.id }}"),
                Some("{{ ds.meta_data.id }}"),
            ),
            ("other arguments", kubeadm("\n  - name: v\n    value: '2'"), None),
            ("RKE2", file(&format!("kubelet-arg:\n- v=2\n- provider-id={legacy}\n")), Some(legacy)),
            ("k3s, one", file("kubelet-arg: --provider-id=x"), Some("x")),
            ("a script", file("#!/bin/sh\nkubelet --provider-id=x\n"), None),
            ("no files", "#cloud-config\nruncmd: [a]\n".to_owned(), None),
            ("no YAML", "#cloud-config\n{{ }}: [".to_owned(), None),
        ] {
            assert_eq!(stated_provider_id(&data).as_deref(), want, "{what}");
        }
    }

    #[test]
    fn expressions_are_rendered_with_meta_data() {
        let meta_data = BTreeMap::from([("uuid".to_owned(), "u-1".to_owned())]);
        for (text, want) in [
            ("metal3://{{ ds.meta_data.uuid }}", Some("metal3://u-1")),
            ("metal3://{{ds.meta_data.uuid}}/x", Some("metal3://u-1/x")),
            ("metal3://fixed", Some("metal3://fixed")),
            ("metal3://{{ ds.meta_data.other }}", None),
            ("metal3://{{ v1.instance_id }}", None),
            ("metal3://{{ ds.meta_data.uuid", None),
        ] {
            assert_eq!(render_expressions(text, &meta_data).as_deref(), want, "{text}");
        }
    }
}
