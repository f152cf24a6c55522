//! The command line.

#![allow(clippy::doc_markdown, reason = "the comments are the help")]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::view::HostState;

const EXIT_CODES: &str = "\
Exit codes:
  0   done; `why`: nothing is in the way
  1   the API server could not be reached, or it refused
  2   wrong arguments
  3   the object does not exist
  4   refused: the state of the object does not allow the change
  10  `why`: the object waits, and continues by itself
  11  `why`: an operator has to act";

/// Hosts without BMC as nodes of Cluster API: their state, the cause for which something waits, and
/// the next action. Every request has the rights of your kubeconfig.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-baremetal",
    bin_name = "kubectl baremetal",
    version,
    after_help = EXIT_CODES,
    disable_help_subcommand = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// Kubeconfig file; the default is KUBECONFIG, or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; the default is the current context.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace; the default is the namespace of the context.
    #[arg(long, short, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// All namespaces.
    #[arg(long, short = 'A', global = true, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the hosts: state, reason, next action
    Hosts(HostsArguments),
    /// Follow the causes of an object's state down to the object to act on, and show the next action
    Why(WhyArguments),
    /// Show a cluster with its machines, hosts, plans and steps
    Tree(TreeArguments),
    /// Show the steps of a host's newest plan and their outputs
    Logs(LogsArguments),
    /// Show a host with its plan, conditions and Events
    Describe(DescribeArguments),
    /// Approve hosts that wait for approval
    Approve(ApproveArguments),
    /// Delete the Machine of a host without draining its node, or end a clean that cannot succeed
    Release(ReleaseArguments),
    /// Clean a host whose machine is lost, so that it goes back to its pool
    Clean(CleanArguments),
    /// Let the next boot of a seed ISO install a free host again
    Reinstall(ReinstallArguments),
    /// Name the disk of a host that waits for one; whatever is on the disk is erased
    InstallOn(InstallOnArguments),
    /// Refuse the key of a host that may have been stolen, and accept another one
    ReplaceKey(ReplaceKeyArguments),
    /// Delete the Machine of a host: the node is drained, then the host is cleaned and available again
    DrainAndRelease(DrainArguments),
    /// Serve a page on this machine that follows the fleet, and open the browser
    Ui(UiArguments),
    /// Write objects and Events without secrets into a file, for a report
    Support(SupportArguments),
    /// Print the completion of a shell
    Completion {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for reading.
    #[default]
    Text,
    /// More columns, nothing shortened.
    Wide,
    /// JSON document; with --watch, each line is a document.
    Json,
    /// YAML document; with --watch, a stream of documents.
    Yaml,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Form of the output.
    #[arg(long = "output", short, value_name = "FORMAT", default_value = "text", hide_default_value = true)]
    pub(crate) output: Format,
}

#[derive(Args, Debug)]
pub(crate) struct HostsArguments {
    /// Only hosts in one of these states.
    #[arg(long, value_delimiter = ',', value_name = "STATE")]
    pub(crate) state: Vec<HostState>,
    /// Only hosts of this MachineInventoryPool.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// Only hosts that need an action of an operator.
    #[arg(long)]
    pub(crate) attention: bool,
    /// Print each host again when it changes, no longer matches, or was deleted.
    #[arg(long, short)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct WhyArguments {
    /// KIND/NAME, or KIND NAME: Cluster, MachineDeployment, KubeadmControlPlane, Machine,
    /// BaremetalCluster, BaremetalMachine, MachineInventory, MachineInventoryPool, MachineRegistration,
    /// SeedImage, BareMetalHost, Metal3Machine, Metal3Cluster, Metal3Remediation, Metal3DataClaim,
    /// Metal3Data, IPClaim, IPAddressClaim, IPPool, and their short names.
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    pub(crate) object: Vec<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct TreeArguments {
    /// Name of the Cluster.
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: String,
    /// Draw the tree again after each change.
    #[arg(long, short)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct LogsArguments {
    /// Name of the MachineInventory.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// Wait for the end of the plan, and print each step when it begins. If the machine of the host
    /// is in deletion, wait for the clean plan first.
    #[arg(long, short)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct DescribeArguments {
    /// Name of the MachineInventory.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Change {
    /// Let the API server check the requests, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask.
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ApproveArguments {
    /// Names of MachineInventories.
    #[arg(value_name = "HOST", required_unless_present = "registration")]
    pub(crate) hosts: Vec<String>,
    /// All pending hosts of this MachineRegistration.
    #[arg(long, value_name = "NAME", conflicts_with = "hosts")]
    pub(crate) registration: Option<String>,
    /// Beginning of the identity (spec.tpmHash) that the console of the host shows; a host with another
    /// identity is refused.
    #[arg(long, value_name = "HASH", conflicts_with = "registration")]
    pub(crate) identity: Option<String>,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct ReleaseArguments {
    /// Name of the MachineInventory.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// Clean once more, for a Machine in deletion whose clean failed.
    #[arg(long, conflicts_with = "without_clean")]
    pub(crate) retry_clean: bool,
    /// Release the host without a clean, for a Machine in deletion whose host is powered off for good.
    #[arg(long)]
    pub(crate) without_clean: bool,
    #[command(flatten)]
    pub(crate) removal: Removal,
}

#[derive(Args, Debug)]
pub(crate) struct DrainArguments {
    /// Name of the MachineInventory.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) removal: Removal,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Removal {
    /// Reduce the replicas of the MachineDeployment by one, so that no other host replaces this one;
    /// refused if a topology sets the replicas.
    #[arg(long)]
    pub(crate) scale_down: bool,
    /// Wait until the host is available.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct CleanArguments {
    /// Name of the MachineInventory.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// The lost machine, as NAME or KIND/NAME. The host has to state that it carries its node.
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: String,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct ReinstallArguments {
    /// Name of the MachineInventory.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// The disk of the system, as /dev/disk/by-id/…; the default is the disk that the host reported.
    #[arg(long, value_name = "PATH")]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct InstallOnArguments {
    /// Name of the MachineInventory.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// The disk to install on, as /dev/disk/by-id/….
    #[arg(long, value_name = "PATH")]
    pub(crate) device: String,
    /// Another disk of the host that is erased as well, for example the other half of a mirror; may be
    /// repeated.
    #[arg(long, value_name = "PATH")]
    pub(crate) erase: Vec<String>,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct ReplaceKeyArguments {
    /// Name of the MachineInventory.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// The new key of a host without TPM, as its console prints it.
    #[arg(long, value_name = "SHA256")]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct UiArguments {
    /// Port on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
    /// Print the link without opening the browser.
    #[arg(long)]
    pub(crate) no_open: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SupportArguments {
    /// File of the bundle (tar, gzip).
    #[arg(long, short, value_name = "FILE", default_value = "baremetal-support.tar.gz")]
    pub(crate) file: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_of_the_connection_go_anywhere() {
        for line in
            ["-n site hosts --state failed,available", "hosts -n site", "why -n site machine m --context c"]
        {
            let words = std::iter::once("kubectl-baremetal").chain(line.split(' '));
            let arguments = Arguments::try_parse_from(words).unwrap();
            assert_eq!(arguments.connection.namespace.as_deref(), Some("site"), "{line}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for line in [
            "hosts -A -n site",
            "hosts --state nothing",
            "why",
            "approve",
            "approve h --registration r",
            "release h --retry-clean --without-clean",
            "clean h",
            "ui --port 65536",
            "ui --listen 0.0.0.0",
        ] {
            let words = std::iter::once("kubectl-baremetal").chain(line.split(' '));
            let error = Arguments::try_parse_from(words).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
