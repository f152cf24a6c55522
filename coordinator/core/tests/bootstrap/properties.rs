//! Bootstrap data of many forms, valid and spoilt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_core::bootstrap::normalise_data;
use proptest::prelude::*;
use serde::Deserialize as _;
use serde_norway::Value;

use super::NODE;

/// Lines that say nothing of the values of a node, in any order and number.
fn noise() -> impl Strategy<Value = Vec<&'static str>> {
    let lines = [
        "# a comment",
        "",
        "caCertPath: /etc/x",
        "text: \"{{ ds.meta_data.uuid }}\"",
        "patches: {directory: /a}",
        "timeouts:\n  discovery: 5m0s",
        "long: |-\n  name: no\n\n    deeper",
        "skipPhases:\n- a\n- b",
        "odd: 'it''s: # fine'",
        "discovery:\n  bootstrapToken:\n    token: canary.0123456789abcdef",
    ];
    Just(lines.to_vec())
        .prop_shuffle()
        .prop_flat_map(|lines| (0..=lines.len()).prop_map(move |many| lines[..many].to_vec()))
}

prop_compose! {
    fn registration()(
        name in prop::sample::select(vec!["", "  name: old\n", "  name: '{{ ds.meta_data.name }}'\n", "  name:\n", "  name: \"node-1\"\n"]),
        socket in prop::sample::select(vec!["", "  criSocket: /run/x.sock # c\n", "  criSocket: null\n", "  criSocket: 'unix:///run/y.sock'\n"]),
        arguments in 0..5usize,
        list: bool,
        taints in prop::sample::select(vec!["", "  taints: []\n", "  taints:\n  - key: a\n    effect: NoSchedule\n"]),
        order in Just([0usize, 1, 2, 3]).prop_shuffle(),
    ) -> (bool, String) {
        let lists = [
            "", "  kubeletExtraArgs: []\n", "  kubeletExtraArgs:\n  - name: node-labels\n    value: a=b\n",
            "  kubeletExtraArgs:\n      - name: provider-id\n        value: 'old'\n", "  kubeletExtraArgs: [{name: v, value: '4'}]\n",
        ];
        let maps = [
            "", "  kubeletExtraArgs: {}\n", "  kubeletExtraArgs:\n    node-labels: a=b\n",
            "  kubeletExtraArgs:\n        provider-id: old\n        v: '4'\n", "  kubeletExtraArgs: {v: '4'}\n",
        ];
        let parts = [name, socket, if list { lists[arguments] } else { maps[arguments] }, taints];
        let body: String = order.iter().map(|index| parts[*index]).collect();
        (list, if body.is_empty() { String::new() } else { format!("nodeRegistration:\n{body}") })
    }
}

prop_compose! {
    fn bootstrap_data()(
        before in noise(),
        (list, registration) in registration(),
        step in 1..7usize,
        header in prop::sample::select(vec!["|", "|-", "|+", "| # c"]),
        marker in prop::sample::select(vec!["", "---\n", "---\nkind: ClusterConfiguration\napiVersion: kubeadm.k8s.io/v1beta4\n---\n"]),
        windows: bool,
        encoded: bool,
        end in prop::sample::select(vec!["", "\n", "\n\n"]),
    ) -> String {
        let version = if list { "v1beta4" } else { "v1beta3" };
        let mut file = format!("{marker}apiVersion: kubeadm.k8s.io/{version}\n");
        for line in before {
            file += &format!("{line}\n");
        }
        file += &format!("kind: JoinConfiguration\n{registration}");
        let content = if encoded {
            format!("{}\n  encoding: base64", STANDARD.encode(&file))
        } else {
            let indent = " ".repeat(2 + step);
            let line = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("{indent}{line}\n") };
            format!("{header}\n{}", file.lines().map(line).collect::<String>())
        };
        let data = format!("## template: jinja\n#cloud-config\nwrite_files:\n- path: \n  content: {content}\nruncmd:\n- 'x: {{{{ y }}}}'{end}");
        if windows { data.replace('\n', "\r\n") } else { data }
    }
}

/// Every document in the first file; of a script none, which the shell alone can read.
fn documents(data: &Value) -> Result<Vec<Value>, serde_norway::Error> {
    let entry = &data["write_files"][0];
    let mut content = entry["content"].as_str().unwrap_or_default().to_owned();
    if entry["encoding"] == "base64" {
        content.retain(|letter| !letter.is_ascii_whitespace());
        let bytes = STANDARD.decode(&content).unwrap_or_default();
        content = String::from_utf8(bytes).unwrap_or_default();
    }
    if content.starts_with("#!") {
        return Ok(vec![]);
    }
    serde_norway::Deserializer::from_str(&content).map(Value::deserialize).collect()
}

/// What is to be there once a document is normalised: the author's socket stays.
fn wanted(before: &Value) -> [Value; 3] {
    let [_, socket, _] = read(before);
    let socket = if socket.is_null() { NODE.cri_socket.into() } else { socket };
    [NODE.hostname.into(), socket, NODE.provider_id.into()]
}

/// What a parser of another family reads at the three places of a node's configuration.
fn read(document: &Value) -> [Value; 3] {
    let registration = &document["nodeRegistration"];
    let arguments = &registration["kubeletExtraArgs"];
    let provider_id = match arguments.as_sequence() {
        Some(list) => {
            list.iter().find(|item| item["name"] == "provider-id").map(|item| item["value"].clone())
        }
        None => Some(arguments["provider-id"].clone()),
    };
    [registration["name"].clone(), registration["criSocket"].clone(), provider_id.unwrap_or_default()]
}

fn is_node_configuration(document: &Value) -> bool {
    let versions = ["kubeadm.k8s.io/v1beta3", "kubeadm.k8s.io/v1beta4"];
    let kinds = ["InitConfiguration", "JoinConfiguration"];
    versions.iter().any(|version| document["apiVersion"] == *version)
        && kinds.iter().any(|kind| document["kind"] == *kind)
}

/// A change at one place: what is written there, and how much is removed.
type Spoil = (prop::sample::Index, &'static str, usize);

fn spoils() -> impl Strategy<Value = Vec<Spoil>> {
    let written = [
        "",
        "\n",
        "\n\n",
        "\t",
        " ",
        "  ",
        ":",
        ": ",
        "- ",
        "#",
        " #",
        "{",
        "}",
        "[",
        "]",
        "'",
        "\"",
        "|",
        "&a ",
        "*a",
        "!!binary ",
        "<<: ",
        "---\n",
        "...\n",
        "{{",
        "%",
        "\r",
        "\u{0}",
        "\u{feff}",
        "ä",
        "name: x\n",
    ];
    let removed = prop_oneof![3 => Just(0usize), 3 => Just(1), 1 => 2..40usize];
    let spoil = (any::<prop::sample::Index>(), prop::sample::select(written.to_vec()), removed);
    prop::collection::vec(spoil, 1..4)
}

fn spoil(text: &str, spoils: &[Spoil]) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    for (at, written, removed) in spoils {
        let at = at.index(letters.len() + 1);
        let end = (at + removed).min(letters.len());
        letters.splice(at..end, written.chars());
    }
    letters.into_iter().collect()
}

/// All but what may be edited.
fn without_contents(mut data: Value) -> Value {
    for entry in data["write_files"].as_sequence_mut().into_iter().flatten() {
        if let Some(entry) = entry.as_mapping_mut() {
            entry.remove("content");
        }
    }
    data
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn normalising_sets_values_once_keeping_lines(given in bootstrap_data()) {
        let once = normalise_data(&given, &NODE).unwrap();
        prop_assert_eq!(normalise_data(&once, &NODE).unwrap(), once.clone());
        let last = |data: &str| documents(&serde_norway::from_str(data).unwrap()).unwrap().pop().unwrap();
        prop_assert_eq!(read(&last(&once)), wanted(&last(&given)));
        // What says nothing of the values is there, in its order.
        let mut lines = once.split_inclusive('\n');
        let names = ["name:", "criSocket", "provider-id", "kubeletExtraArgs", "nodeRegistration", "value:", "content:"];
        for line in given.split_inclusive('\n').filter(|line| !names.iter().any(|name| line.contains(name))) {
            prop_assert!(lines.any(|other| other == line), "lost {:?} in {}", line, once);
        }
    }

    #[test]
    fn damaged_data_is_refused_or_normalised_correctly(valid in bootstrap_data(), spoils in spoils()) {
        let given = spoil(&valid, &spoils);
        match normalise_data(&given, &NODE) {
            Err(error) => prop_assert!(!error.to_string().contains("canary"), "{error}"),
            Ok(once) => {
                prop_assert_eq!(normalise_data(&once, &NODE), Ok(once.clone()));
                // Parsers differ in what they accept; what both do, both read alike.
                let Ok(before) = serde_norway::from_str::<Value>(&given) else { return Ok(()) };
                let after: Value = serde_norway::from_str(&once).unwrap();
                if let Ok(given) = documents(&before) {
                    let edited = documents(&after).unwrap();
                    let pairs = given.iter().zip(&edited);
                    for (given, edited) in pairs.filter(|(_, edited)| is_node_configuration(edited)) {
                        prop_assert_eq!(read(edited), wanted(given));
                    }
                }
                prop_assert_eq!(without_contents(after), without_contents(before));
            }
        }
    }
}
