//! Bootstrap data as Cluster API and operators write it.

#![allow(clippy::format_collect, clippy::format_push_string)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_core::bootstrap::{BootstrapError, Looks, NodeNames, normalise_data};

mod properties;

const INIT: &str = include_str!("samples/kubeadm-init.yaml");
const JOIN: &str = include_str!("samples/kubeadm-join.yaml");
const NODE: NodeNames<'_> = NodeNames {
    hostname: "node-1",
    provider_id: "baremetal:///rack-1",
    cri_socket: "unix:///var/run/containerd/containerd.sock",
};

/// Every pair's first text stands once in `text` and is replaced.
fn with(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from:?} stands not once");
        text.replace(from, to)
    })
}

fn assert_normalised(name: &str, given: &str, want: &str) {
    let once = normalise_data(given, &NODE).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(once, want, "{name}");
    assert_eq!(normalise_data(&once, &NODE).as_deref(), Ok(once.as_str()), "{name}, twice");
}

#[test]
fn real_init_data_changes_only_three_values() {
    let want = with(
        INIT,
        &[(
            "        kubeletExtraArgs:\n        - name: node-labels\n",
            "        name: \"node-1\"\n        criSocket: \"unix:///var/run/containerd/containerd.sock\"\n        \
             kubeletExtraArgs:\n        - name: \"provider-id\"\n          value: \"baremetal:///rack-1\"\n        \
             - name: node-labels\n",
        )],
    );
    assert_normalised("init", INIT, &want);
}

#[test]
fn real_join_data_changes_only_coordinator_values() {
    let want = with(
        JOIN,
        &[
            ("value: metal3://{{ ds.meta_data.providerid }}", "value: \"baremetal:///rack-1\""),
            ("name: '{{ ds.meta_data.local_hostname }}'", "name: \"node-1\""),
            (
                "        kubeletExtraArgs:\n",
                "        criSocket: \"unix:///var/run/containerd/containerd.sock\"\n        kubeletExtraArgs:\n",
            ),
        ],
    );
    assert_normalised("join", JOIN, &want);
}

/// A file of kubeadm's in a cloud-config, as a literal block.
fn data(version: &str, kind: &str, rest: &str) -> String {
    let body = format!("apiVersion: kubeadm.k8s.io/{version}\nkind: {kind}\n{rest}");
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    format!("#cloud-config\nwrite_files:\n- path: /k.yaml\n  content: |\n{body}runcmd: [a]\n")
}

const SOCKET: &str = "criSocket: \"unix:///var/run/containerd/containerd.sock\"";

#[test]
fn every_node_registration_form_is_edited_in_place() {
    let set = format!("nodeRegistration:\n  name: node-1\n  {SOCKET}\n");
    let list = "  kubeletExtraArgs:\n  - name: \"provider-id\"\n    value: \"baremetal:///rack-1\"\n";
    let map = "  kubeletExtraArgs:\n    provider-id: \"baremetal:///rack-1\"\n";
    let flow = "{\"name\": \"node-1\", \"criSocket\": \"unix:///var/run/containerd/containerd.sock\", \
                \"kubeletExtraArgs\": [{\"name\": \"provider-id\", \"value\": \"baremetal:///rack-1\"}]}";
    let whole = format!("nodeRegistration:\n  name: \"node-1\"\n  {SOCKET}\n");
    let cases = [
        ("v1beta3 map, absent", "v1beta3", format!("{set}  kubeletExtraArgs:\n    node-labels: a=b\n"),
         format!("{set}{map}    node-labels: a=b\n")),
        ("v1beta3 map, another value", "v1beta3",
         format!("{set}  kubeletExtraArgs:\n    provider-id: 'metal3://{{{{ ds.meta_data.x }}}}' # why\n    z: 1\n"),
         format!("{set}{map}    z: 1\n").replace("rack-1\"", "rack-1\" # why")),
        ("v1beta3, no arguments", "v1beta3", set.clone(),
         format!("nodeRegistration:\n{map}{}", set.trim_start_matches("nodeRegistration:\n"))),
        ("v1beta3, empty flow map", "v1beta3", format!("{set}  kubeletExtraArgs: {{}}\n"),
         format!("{set}  kubeletExtraArgs: {{\"provider-id\": \"baremetal:///rack-1\"}}\n")),
        ("v1beta4 list, indented", "v1beta4", format!("{set}  kubeletExtraArgs:\n    - name: v\n      value: '4'\n"),
         format!("{set}  kubeletExtraArgs:\n    - name: \"provider-id\"\n      value: \"baremetal:///rack-1\"\n    - name: v\n      value: '4'\n")),
        ("v1beta4 list, value before name", "v1beta4",
         format!("{set}  kubeletExtraArgs:\n  - value: old\n    name: provider-id\n"),
         format!("{set}  kubeletExtraArgs:\n  - value: \"baremetal:///rack-1\"\n    name: provider-id\n")),
        ("v1beta4 list, twice", "v1beta4",
         format!("{set}  kubeletExtraArgs: [{{name: provider-id, value: a}}, {{name: provider-id, value: b}}]\n"),
         format!("{set}  kubeletExtraArgs: [{{name: provider-id, value: \"baremetal:///rack-1\"}}, {{name: provider-id, value: \"baremetal:///rack-1\"}}]\n")),
        ("v1beta4 list, in brackets", "v1beta4", format!("{set}  kubeletExtraArgs: [{{name: v, value: '4'}}]\n"),
         format!("{set}  kubeletExtraArgs: [{{\"name\": \"provider-id\", \"value\": \"baremetal:///rack-1\"}}, {{name: v, value: '4'}}]\n")),
        ("no value after the key", "v1beta4", "nodeRegistration:\nz: 1\n".into(),
         format!("nodeRegistration: {flow}\nz: 1\n")),
        ("null", "v1beta4", "nodeRegistration: null # c\n".into(), format!("nodeRegistration: {flow} # c\n")),
        ("empty braces", "v1beta4", "nodeRegistration: {}\n".into(),
         format!("nodeRegistration: {flow}\n")),
        ("braces", "v1beta4", "nodeRegistration: {name: old, taints: []}\n".into(),
         "nodeRegistration: {\"criSocket\": \"unix:///var/run/containerd/containerd.sock\", \"kubeletExtraArgs\": \
          [{\"name\": \"provider-id\", \"value\": \"baremetal:///rack-1\"}], name: \"node-1\", taints: []}\n".into()),
        ("name without quotes in jinja", "v1beta4",
         format!("nodeRegistration:\n  name: {{{{ ds.meta_data.local_hostname }}}}\n  {SOCKET}\n{list}"),
         format!("{whole}{list}")),
        ("a comment and blank lines between", "v1beta4",
         format!("# a\n\nnodeRegistration: # b\n\n  # c\n  name: node-1 # d\n  {SOCKET}\n{list}\n# e\n"),
         format!("# a\n\nnodeRegistration: # b\n\n  # c\n  name: node-1 # d\n  {SOCKET}\n{list}\n# e\n")),
    ];
    for (name, version, given, want) in cases {
        assert_normalised(
            name,
            &data(version, "JoinConfiguration", &given),
            &data(version, "JoinConfiguration", &want),
        );
    }
}

#[test]
fn the_authors_cri_socket_stays() {
    let list = "  kubeletExtraArgs:\n  - name: \"provider-id\"\n    value: \"baremetal:///rack-1\"\n";
    let registration = |socket: &str| {
        let given = format!("nodeRegistration:\n  name: node-1\n  criSocket:{socket}\n{list}");
        data("v1beta4", "InitConfiguration", &given)
    };
    let cases = [
        " unix:///var/run/crio/crio.sock",
        " 'unix:///run/containerd/containerd.sock' # why",
        " /run/x.sock",
        " '{{ ds.meta_data.socket }}'",
        " {{ ds.meta_data.socket }}",
        " !!str /run/x.sock",
        " \"\"",
    ];
    for socket in cases {
        assert_normalised(socket, &registration(socket), &registration(socket));
    }
    let filled = registration(&SOCKET["criSocket:".len()..]);
    for absent in ["", " null", " ~"] {
        assert_normalised(absent, &registration(absent), &filled);
    }
}

#[test]
fn a_document_without_node_registration_gets_one() {
    for (version, arguments) in [
        ("v1beta3", "        provider-id: \"baremetal:///rack-1\"\n"),
        ("v1beta4", "      - name: \"provider-id\"\n        value: \"baremetal:///rack-1\"\n"),
    ] {
        let want = with(
            &data(version, "InitConfiguration", ""),
            &[(
                "  content: |\n",
                &format!(
                    "  content: |\n    nodeRegistration:\n      name: \"node-1\"\n      {SOCKET}\n      kubeletExtraArgs:\n{arguments}"
                ),
            )],
        );
        assert_normalised(version, &data(version, "InitConfiguration", ""), &want);
    }
}

#[test]
fn only_node_configurations_of_file_are_edited() {
    let file = |registration: &str| {
        format!(
            "---\napiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nnodeRegistration: {{}}\n---\n\
             apiVersion: kubeadm.k8s.io/v1beta3\nkind: InitConfiguration\nnodeRegistration: {registration}\n---\n\
             apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n---\n# nothing\n---\n\
             apiVersion: kubeadm.k8s.io/v1beta3\nkind: JoinConfiguration\nnodeRegistration: {registration}\n...\n"
        )
    };
    let wrap = |file: &str| {
        let file: String = file.lines().map(|line| format!("       {line}\n")).collect();
        format!("#cloud-config\nwrite_files:\n  - content: |\n{file}    path: /x\n")
    };
    let set = "{\"name\": \"node-1\", \"criSocket\": \"unix:///var/run/containerd/containerd.sock\", \
               \"kubeletExtraArgs\": {\"provider-id\": \"baremetal:///rack-1\"}}";
    assert_normalised("documents", &wrap(&file("{}")), &wrap(&file(set)));
}

#[test]
fn a_content_keeps_its_style() {
    let kubeadm = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration: {}\n";
    let edited = kubeadm.replace(
        "{}",
        "{\"name\": \"node-1\", \"criSocket\": \"unix:///var/run/containerd/containerd.sock\", \
         \"kubeletExtraArgs\": [{\"name\": \"provider-id\", \"value\": \"baremetal:///rack-1\"}]}",
    );
    let block = |header: &str, indent: usize, text: &str| {
        text.lines().fold(format!("{header}\n"), |all, line| all + &" ".repeat(indent) + line + "\n")
    };
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    let code = |text: &str| STANDARD.encode(text);
    let cases: Vec<(&str, String, String)> = vec![
        ("strip", block("|-", 4, kubeadm), block("|-", 4, &edited)),
        ("keep", block("|+", 9, kubeadm) + "\n\n", block("|+", 9, &edited) + "\n\n"),
        ("explicit indentation", block("|2", 4, kubeadm), block("|2", 4, &edited)),
        (
            "leading blank lines",
            block("|", 4, &format!("\n\n{kubeadm}")),
            block("|", 4, &format!("\n\n{edited}")),
        ),
        ("double quotes", quoted(kubeadm) + " # c\n", quoted(&edited) + " # c\n"),
        (
            "single quotes",
            format!("'{}'\n", kubeadm.trim_end().replace('\n', "\n\n    ")),
            quoted(edited.trim_end()) + "\n",
        ),
        (
            "folded",
            block(">-", 4, &kubeadm.trim_end().replace('\n', "\n\n")),
            quoted(edited.trim_end()) + "\n",
        ),
    ];
    for (name, given, want) in cases {
        let wrap = |content: &str| {
            format!("#cloud-config\nwrite_files:\n- path: /k\n  content: {content}  owner: me\nz: 1\n")
        };
        assert_normalised(name, &wrap(&given), &wrap(&want));
        if name == "strip" {
            let crlf = |text: &str| wrap(text).replace('\n', "\r\n");
            assert_normalised("line ends of Windows", &crlf(&given), &crlf(&want));
        }
    }
    let lines = |text: &str| {
        code(text)
            .as_bytes()
            .chunks(40)
            .map(|part| format!("    {}\n", String::from_utf8_lossy(part)))
            .collect::<String>()
    };
    let encoded: Vec<(&str, String, String)> = vec![
        ("plain", code(kubeadm) + "\n", code(&edited) + "\n"),
        ("single", format!("'{}' # c\n", code(kubeadm)), format!("'{}' # c\n", code(&edited))),
        ("double", format!("\"{}\"\n", code(kubeadm)), format!("\"{}\"\n", code(&edited))),
        ("wrapped", format!("|\n{}", lines(kubeadm)), format!("|\n    {}\n", code(&edited))),
        ("folded", format!(">-\n{}", lines(kubeadm)), format!(">-\n    {}\n", code(&edited))),
    ];
    for (name, given, want) in encoded {
        for encoding in ["b64", "base64"] {
            let wrap = |content: &str| {
                format!(
                    "#cloud-config\nwrite_files:\n- encoding: {encoding}\n  content: {content}  path: /k\nz: 1\n"
                )
            };
            assert_normalised(name, &wrap(&given), &wrap(&want));
        }
    }
}

#[test]
fn a_compressed_file_is_edited_inside() {
    use std::io::{Read as _, Write as _};
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(
        b"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration:\n  name: old\n",
    )
    .unwrap();
    let code = STANDARD.encode(gzip.finish().unwrap());
    for entry in [
        format!("encoding: gzip+base64\n  content: {code}"),
        format!("encoding: gz\n  content: !!binary {code}"),
    ] {
        let given = format!("#cloud-config\nwrite_files:\n- path: /k\n  {entry}\n");
        let once = normalise_data(&given, &NODE).unwrap();
        assert_eq!(normalise_data(&once, &NODE).as_deref(), Ok(once.as_str()));
        let code = once.trim_end().rsplit(' ').next().unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(STANDARD.decode(code).unwrap().as_slice())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(
            text,
            format!(
                "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration:\n  {SOCKET}\n  \
                 kubeletExtraArgs:\n  - name: \"provider-id\"\n    value: \"baremetal:///rack-1\"\n  name: \"node-1\"\n"
            )
        );
    }
}

fn compress(text: &str) -> String {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(text.as_bytes()).unwrap();
    STANDARD.encode(gzip.finish().unwrap())
}

// Fault: bootstrap data names one large file thousands of times, or unpacks to gigabytes.
// Shown: nothing, or condition `BootstrapReady` of the machine: `BootstrapInvalid` with the size.
#[test]
fn each_content_is_decoded_once_and_bounded() {
    let kubeadm = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration: {}\n";
    let large = |file: usize| format!("{kubeadm}# {file}{}\n", "\n".repeat(1 << 20));
    let entry = |file| format!("- encoding: gz+b64\n  content: &c{file} {}\n", compress(&large(file)));
    let first = format!("#cloud-config\nwrite_files:\n- &a\n{}", entry(0).replacen("- ", "  ", 1));
    let contents = "- encoding: gz+b64\n  content: *c0\n".repeat(10_000);
    let aliases = format!("{first}{}{contents}", "- *a\n".repeat(10_000));
    let edited = normalise_data(&aliases, &NODE).unwrap();
    assert!(edited != aliases && edited.ends_with(&contents), "one edit, in the one content");
    let bombs = format!("#cloud-config\nwrite_files:\n{}", (0..17).map(entry).collect::<String>());
    assert_eq!(normalise_data(&bombs, &NODE), Err(BootstrapError::TooLarge));
}

#[test]
fn a_hostname_of_the_user_data_gives_way() {
    let cases = [
        ("another", "hostname: old # c\n", "hostname: \"node-1\" # c\n"),
        ("the same", "hostname: 'node-1'\n", "hostname: 'node-1'\n"),
        ("jinja", "hostname: '{{ ds.meta_data.name }}'\n", "hostname: \"node-1\"\n"),
        ("a full name of this host", "fqdn: node-1.example.com\n", "fqdn: node-1.example.com\n"),
        ("a full name of another host", "fqdn: old.example.com\n", "fqdn: \"node-1\"\n"),
        ("none", "hostname:\n", "hostname:\n"),
        ("kept by force", "preserve_hostname: yes\n", "preserve_hostname: false\n"),
        ("not kept", "preserve_hostname: False\n", "preserve_hostname: False\n"),
        ("deeper is not meant", "a: {hostname: old}\n", "a: {hostname: old}\n"),
    ];
    for (name, given, want) in cases {
        let wrap = |text: &str| format!("## template: jinja\n#cloud-config\n{text}");
        assert_normalised(name, &wrap(given), &wrap(want));
    }
}

#[test]
fn data_without_kubeadm_configuration_stays_unchanged() {
    let script =
        "#!/bin/sh\ncat >/k <<E\napiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n  x\nE\n";
    let script: String = script.lines().map(|line| format!("      {line}\n")).collect();
    let cases = [
        ("commands", "#cloud-config\nruncmd:\n- [a, b]\n".to_owned()),
        ("RKE2", "#cloud-config\nwrite_files:\n- path: /etc/rancher/rke2/config.yaml\n  content: |\n    server: x\n".into()),
        ("a script with a here-document", format!("#cloud-config\nwrite_files:\n  - path: /s\n    content: |\n{script}")),
        ("no content", "#cloud-config\nwrite_files:\n- path: /a\n- source: {uri: x}\n  path:\nz:\n".into()),
        ("no list", "#cloud-config\nwrite_files:\n".into()),
        ("broken base64", "#cloud-config\nwrite_files:\n- encoding: b64\n  content: '{{ x }}'\n".into()),
        ("a mention", "#cloud-config\nwrite_files:\n- content: 'see kubeadm.k8s.io/v1beta4: {'\n".into()),
        ("blank lines first, spaces after", "\n\n#cloud-config  \n\na: b".into()),
        ("aliases", "#cloud-config\nx: &x [a]\ny: *x\n".into()),
    ];
    for (name, given) in cases {
        assert_normalised(name, &given, &given);
    }
}

#[test]
fn uneditable_data_is_refused_with_next_action() {
    use BootstrapError::{Duplicate, Empty, KubeadmVersion, NotCloudConfig, Shape, Unsafe, Yaml};
    let file = || "/k.yaml".to_owned();
    let user = || "the user-data".to_owned();
    let shape = |field: &str, line| Shape { place: file(), field: field.to_owned(), line };
    let join = |version: &str, rest: &str| data(version, "JoinConfiguration", rest);
    let extra = "nodeRegistration.kubeletExtraArgs";
    let jinja = "; jinja must stand inside quoted YAML strings, since the data is read before it is rendered";
    let cases = [
        ("nothing", String::new(), Empty),
        ("only the marker", "#cloud-config\n".into(), Empty),
        ("a script", "#!/bin/sh\n".into(), NotCloudConfig(Looks::Script)),
        ("Ignition", "{\"ignition\": {}}".into(), NotCloudConfig(Looks::Ignition)),
        ("MIME", "Content-Type: multipart/mixed\n\n".into(), NotCloudConfig(Looks::Mime)),
        ("no marker", "runcmd: [a]\n".into(), NotCloudConfig(Looks::Unknown)),
        ("a template that cloud-init ignores", "## template: basic\n#cloud-config\na: $b\n".into(), NotCloudConfig(Looks::Unknown)),
        ("jinja that cloud-init ignores", "##template: jinja\n#cloud-config\na: b\n".into(), NotCloudConfig(Looks::Unknown)),
        ("an archive", "#cloud-config-archive\n- a\n".into(), NotCloudConfig(Looks::Unknown)),
        ("a list", "#cloud-config\n- a\n".into(), Yaml { place: user(), line: 2, message: "it is not one mapping".into(), hint: "" }),
        ("many values", format!("#cloud-config\nruncmd: [{}]\n", "a,".repeat(200_001)), Yaml { place: user(), line: 2, message: "more than 200000 values".into(), hint: "" }),
        ("two documents", "#cloud-config\na: b\n---\nc: d\n".into(), Yaml { place: user(), line: 2, message: "it is not one mapping".into(), hint: "" }),
        ("jinja that is no YAML", "## template: jinja\n#cloud-config\n{% if x %}\na: b\n{% endif %}\n".into(),
         Yaml { place: user(), line: 3, message: "unexpected character: `%'".into(), hint: jinja }),
        ("kubeadm that is no YAML", join("v1beta4", "a: {{ x }}-y\n"),
         Yaml { place: file(), line: 3, message: "while parsing a block mapping, did not find expected key".into(), hint: jinja }),
        ("a version before", join("v1beta2", ""), KubeadmVersion { place: file(), version: "v1beta2".into() }),
        ("a key twice", join("v1beta4", "nodeRegistration: {}\nnodeRegistration: {}\n"), Duplicate { place: file(), line: 4 }),
        ("files twice", "#cloud-config\nwrite_files: []\nwrite_files: []\n".into(), Duplicate { place: user(), line: 3 }),
        ("no mapping", join("v1beta4", "nodeRegistration: [a]\n"), shape("nodeRegistration", 3)),
        ("a map in v1beta4", join("v1beta4", "nodeRegistration:\n  kubeletExtraArgs:\n    a: b\n"), shape(extra, 5)),
        ("a list in v1beta3", join("v1beta3", "nodeRegistration:\n  kubeletExtraArgs: []\n"), shape(extra, 4)),
        ("an item without value", join("v1beta4", "nodeRegistration:\n  kubeletExtraArgs:\n  - name: provider-id\n"), shape(extra, 5)),
        ("an anchor", join("v1beta4", "nodeRegistration:\n  name: &a b\n  x: *a\n"), shape("nodeRegistration.name", 4)),
        ("a merge", join("v1beta4", "a: &a {}\nnodeRegistration:\n  <<: *a\n"), shape("a merge key (<<)", 5)),
        ("a block as name", join("v1beta4", "nodeRegistration:\n  name: |\n    x\n"), shape("nodeRegistration.name", 5)),
        ("files that are none", "#cloud-config\nwrite_files: {a: b}\n".into(),
         Shape { place: user(), field: "write_files".into(), line: 2 }),
        ("jinja that quotes would change",
         "#cloud-config\nwrite_files:\n- path: /k.yaml\n  content: 'apiVersion: kubeadm.k8s.io/v1beta4\n\n    kind: JoinConfiguration\n\n    a: b # {{ d[\"x\"] }}'\n".into(),
         Unsafe { place: file() }),
    ];
    for (name, given, want) in cases {
        assert_eq!(normalise_data(&given, &NODE), Err(want), "{name}");
    }
}

#[test]
fn unsafe_yaml_or_jinja_names_are_refused() {
    let cases = [
        NodeNames { hostname: "Node", ..NODE },
        NodeNames { hostname: "", ..NODE },
        NodeNames { hostname: "a.", ..NODE },
        NodeNames { provider_id: "{{ x }}", ..NODE },
        NodeNames { cri_socket: "a\nb", ..NODE },
    ];
    for names in cases {
        assert!(matches!(normalise_data(JOIN, &names), Err(BootstrapError::Name { .. })), "{names:?}");
    }
    let number = NodeNames { hostname: "123", ..NODE };
    let given = data("v1beta4", "JoinConfiguration", "nodeRegistration:\n  name: 123\n");
    assert!(normalise_data(&given, &number).unwrap().contains("  name: \"123\"\n"), "a number is quoted");
}
