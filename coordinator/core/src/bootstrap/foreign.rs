//! Distributions of Kubernetes that the table of distributions does not have, found in bootstrap data.

use proto::distribution::{DISTRIBUTIONS, UNSUPPORTED, Unsupported};

use super::BootstrapError;
use super::kept::is_below;
use super::tree::Node;

/// Keys with commands, each a text or a list of words.
const COMMANDS: [&str; 2] = ["bootcmd", "runcmd"];

/// Refuses data that starts a program or writes a file of an unsupported distribution. Data that names
/// no distribution is left to the OS image; the host states what its node is.
pub(super) fn check_distribution(document: &Node) -> Result<(), BootstrapError> {
    match UNSUPPORTED.iter().find(|row| is_named(document, row)) {
        Some(row) => Err(BootstrapError::Distribution { name: row.name }),
        None => Ok(()),
    }
}

/// The names of the distributions in the table, for a message.
pub(super) fn list_supported() -> String {
    DISTRIBUTIONS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

fn is_named(document: &Node, row: &Unsupported) -> bool {
    let items = |key| document.find_entry(key).ok().flatten().map_or(&[][..], |(_, value)| value.items());
    let writes = items("write_files").iter().any(|file| {
        file.find_text("path").ok().flatten().is_some_and(|path| is_below(path, row.directories))
    });
    writes || COMMANDS.iter().flat_map(|key| items(key)).any(|command| runs_program(command, row.program))
}

fn runs_program(command: &Node, program: &str) -> bool {
    let parts = command.items().iter().filter_map(|word| word.as_text());
    parts.chain(command.as_text()).any(|text| {
        text.split(|letter: char| letter.is_whitespace() || ";&|()'\"`=".contains(letter))
            .any(|word| word.rsplit('/').next() == Some(program))
    })
}

#[cfg(test)]
mod tests {
    use super::super::kept::read_mapping;
    use super::*;

    #[test]
    fn data_of_unsupported_distributions_is_found() {
        for (data, want) in [
            ("write_files: [{path: /etc/k0s/k0s.yaml, content: a}]", Some("k0s")),
            ("runcmd: [[/usr/local/bin/k0s, install, worker]]", Some("k0s")),
            (
                "runcmd: ['curl -sSfL https://get.k0s.sh | sh', 'k0s install worker && k0s start']",
                Some("k0s"),
            ),
            ("bootcmd: ['sh -c \"(k0s start)\"']", Some("k0s")),
            ("runcmd: [snap install microk8s --classic]", Some("MicroK8s")),
            ("runcmd: ['kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml']", None),
            ("runcmd: [systemctl start rke2-agent, /opt/k0s-tools/prepare]", None),
            ("write_files: [{path: /etc/k0sctl.yaml, content: k0s}]", None),
            ("runcmd: {k0s: a}", None),
        ] {
            let document = read_mapping(&format!("#cloud-config\n{data}\n")).unwrap();
            let refused = check_distribution(&document).err();
            let name = want.map(|name| BootstrapError::Distribution { name });
            assert_eq!(refused, name, "{data}");
        }
        let text = BootstrapError::Distribution { name: "k0s" }.to_string();
        assert!(DISTRIBUTIONS.iter().all(|row| text.contains(row.name)), "{text}");
    }
}
