//! The content of the host, for Hello. The coordinator rebuilds its status from it, and assigns a
//! host to a machine only if the host states that it carries no node.

use proto::plan::NodeIdentity;
use proto::v1alpha1::{self as wire, Carried, CarriedNode, InstallDone};

use crate::ground::paths::Root;
use crate::host::credentials;
use crate::plan::executor::{LostJournal, NewestPlan};
use crate::state::duty;
use crate::state::install_record::InstallRecord;
use crate::state::node_identity;

/// Reads the content from the state directory and the node's own directories.
pub(super) fn observe_carried(root: &Root, newest: &NewestPlan) -> Carried {
    let (plan, lost_journal) = match newest {
        NewestPlan::None => (None, None),
        NewestPlan::Known(plan) => (Some(plan.clone()), None),
        NewestPlan::Unknown(LostJournal { message, checksum }) => {
            (None, Some(wire::LostJournal { message: message.clone(), checksum: checksum.clone() }))
        }
    };
    Carried {
        plan,
        lost_journal,
        node: observe_node(root, newest),
        installed: read_installed(root),
        load_balancer_generation: duty::kept_generation(root),
    }
}

fn observe_node(root: &Root, newest: &NewestPlan) -> Option<CarriedNode> {
    match node_identity::read(root) {
        Ok(Some(identity)) => {
            let NodeIdentity { uuid, provider_id, owner } = identity;
            return Some(CarriedNode { provider_id, uuid, owner });
        }
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(
                %error,
                "cannot read the node identity, Hello states a node"
            );
            return Some(CarriedNode::default());
        }
    }
    // If the journal is damaged, a plan may have begun to write a node. A host that states no node
    // is assigned to the next machine and wiped, so an unknown state counts as a node.
    let unknown = matches!(newest, NewestPlan::Unknown(_));
    (unknown || credentials::are_in_system(root)).then(CarriedNode::default)
}

/// A damaged record still proves an install.
fn read_installed(root: &Root) -> Option<InstallDone> {
    let record = InstallRecord::read(&root.state()).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the install record");
        Some(InstallRecord::default())
    });
    record.map(InstallDone::from)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proto::v1alpha1::CarriedPlan;

    use super::*;

    fn put(root: &Root, path: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    #[test]
    fn the_node_is_stated_from_identity_or_credentials() {
        type Prepare = fn(&Root);
        let ours = CarriedNode {
            provider_id: "baremetal:///h".into(),
            uuid: "u".into(),
            owner: "BaremetalMachine/m".into(),
        };
        let unnamed = Some(CarriedNode::default());
        let identity: Prepare = |root| {
            let identity = NodeIdentity {
                uuid: "u".into(),
                provider_id: "baremetal:///h".into(),
                owner: "BaremetalMachine/m".into(),
            };
            node_identity::remember(root, &identity).unwrap();
        };
        let lost = NewestPlan::Unknown(LostJournal { message: "damaged".into(), checksum: "00".into() });
        let cases: [(&str, Prepare, NewestPlan, Option<CarriedNode>); 8] = [
            ("nothing", |_| (), NewestPlan::None, None),
            ("identity", identity, NewestPlan::None, Some(ours.clone())),
            ("identity, journal lost", identity, lost.clone(), Some(ours)),
            ("journal lost", |_| (), lost, unnamed.clone()),
            (
                "damaged identity",
                |root| put(root, "/var/lib/baremetal-agent/node-identity.json"),
                NewestPlan::None,
                unnamed.clone(),
            ),
            (
                "kubelet.conf",
                |root| put(root, "/etc/kubernetes/kubelet.conf"),
                NewestPlan::None,
                unnamed.clone(),
            ),
            (
                "manifests",
                |root| put(root, "/etc/kubernetes/manifests/etcd.yaml"),
                NewestPlan::None,
                unnamed.clone(),
            ),
            (
                "empty manifests",
                |root| fs::create_dir_all(root.join("/etc/kubernetes/manifests")).unwrap(),
                NewestPlan::None,
                None,
            ),
        ];
        for (name, prepare, newest, want) in cases {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            prepare(&root);
            assert_eq!(observe_carried(&root, &newest).node, want, "{name}");
        }
    }

    #[test]
    fn credentials_and_no_images_tell_a_node() {
        for (path, want) in [
            ("/var/lib/rancher/rke2/agent/client-kubelet.crt", true),
            ("/var/lib/rancher/k3s/server/token", true),
            ("/var/lib/k0s/kubelet.conf", true),
            ("/var/lib/rancher/rke2/agent/images/x.tar.zst", false),
            ("/var/lib/rancher/k3s/agent/images/x.tar.zst", false),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            put(&root, path);
            assert_eq!(observe_carried(&root, &NewestPlan::None).node.is_some(), want, "{path}");
        }
    }

    #[test]
    fn plan_and_install_record_are_stated() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let plan = CarriedPlan { id: "clean-1".into(), generation: 3, ..CarriedPlan::default() };
        assert_eq!(observe_carried(&root, &NewestPlan::None), Carried::default());
        assert_eq!(observe_carried(&root, &NewestPlan::Known(plan.clone())).plan, Some(plan));
        fs::create_dir_all(root.state().path()).unwrap();
        for (text, device) in [(r#"{"device":"/dev/vda","image":"os:v1"}"#, "/dev/vda"), ("torn", "")] {
            fs::write(root.state().install_record(), text).unwrap();
            let installed = observe_carried(&root, &NewestPlan::None).installed.unwrap();
            assert_eq!(installed.device, device, "{text}");
        }
    }
}
