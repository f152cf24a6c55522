use super::*;

fn host(directories: &[&str]) -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    for path in directories {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    (directory, root)
}

fn identity() -> NodeIdentity {
    NodeIdentity {
        uuid: "0a1b".into(),
        provider_id: "baremetal:///host-1".into(),
        owner: "BaremetalMachine/m-1".into(),
    }
}

#[test]
fn all_usual_files_are_written_by_default() {
    let (_directory, root) = host(&["/etc/default", "/etc/sysconfig"]);
    apply_identity(&root, &identity()).unwrap();
    for path in ["/etc/default/kubelet", "/etc/sysconfig/kubelet"] {
        let text = fs::read_to_string(root.join(path)).unwrap();
        assert!(text.contains("--node-labels=metal3.io/uuid=0a1b"), "{path}: {text}");
    }
}

#[test]
fn an_identity_is_forgotten_without_a_trace() {
    let (_directory, root) = host(&["/etc/default", "/etc/rancher/rke2"]);
    fs::write(root.join("/etc/default/kubelet"), "KUBELET_EXTRA_ARGS=--v=2\n").unwrap();
    assert_eq!(read(&root).unwrap(), None);
    remember(&root, &identity()).unwrap();
    assert_eq!(read(&root).unwrap(), Some(identity()));
    apply_identity(&root, &identity()).unwrap();
    let fragment = root.join("/etc/rancher/rke2/config.yaml.d/90-baremetal-agent.yaml");
    let text = fs::read_to_string(&fragment).unwrap();
    assert!(text.contains("\"metal3.io/uuid=0a1b\"") && text.contains("provider-id=baremetal:///host-1"));
    assert!(!is_forgotten(&root).unwrap());
    forget_identity(&root).unwrap();
    assert!(is_forgotten(&root).unwrap() && !fragment.exists());
    assert_eq!(fs::read_to_string(root.join("/etc/default/kubelet")).unwrap(), "KUBELET_EXTRA_ARGS=--v=2\n");
}

#[test]
fn what_would_become_another_argument_is_refused() {
    let cases = [
        ("space", "a b", "baremetal:///x"),
        ("quote", "a\"", "baremetal:///x"),
        ("empty", "", "baremetal:///x"),
        ("expansion", "a", "baremetal:///$X"),
        ("no provider", "a", ""),
    ];
    let (_directory, root) = host(&["/etc/default"]);
    for (name, uuid, provider_id) in cases {
        let identity =
            NodeIdentity { uuid: uuid.into(), provider_id: provider_id.into(), owner: String::new() };
        assert!(remember(&root, &identity).is_err(), "{name}");
        assert!(apply_identity(&root, &identity).is_err(), "{name}");
    }
    assert!(!root.join("/etc/default/kubelet").exists());
}
