//! The plans under test: those that the coordinator renders, and one that it
//! did not write.

use coordinator_core::network::HostNetwork;
use coordinator_core::plan::{self, Clean, Names, PlanInputs, Reprovision};
use proto::plan::{
    Checksum, CustomFile, CustomInstruction, Generation, Image, Kind, Plan, PlanId, Secret, Step,
};

/// The network of [`unreachable`].
pub(crate) const UNREACHABLE: &str = "version: 2\nethernets: {}\n";
/// The image of every reprovision.
pub(crate) const IMAGE: &str = "oci:lab/os:v2";

pub(crate) fn reprovision(generation: u64) -> Plan {
    reprovision_with(network("version: 2\n"), generation)
}

/// A reprovision with a network that reaches no coordinator.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn unreachable(generation: u64) -> Plan {
    reprovision_with(network(UNREACHABLE), generation)
}

fn reprovision_with(network: HostNetwork, generation: u64) -> Plan {
    let inputs = Reprovision {
        image: Image::parse(IMAGE).unwrap(),
        registry: None,
        user_data: Secret::new(b"#cloud-config\n".to_vec()),
        network,
        names: Names {
            hostname: "node-1".into(),
            machine: "machine-1".into(),
            namespace: "fleet".into(),
            uuid: "u-1".into(),
            provider_id: "baremetal:///host-1".into(),
        },
        meta_data: std::collections::BTreeMap::new(),
    };
    render(&PlanInputs::Reprovision(inputs), generation)
}

pub(crate) fn clean(generation: u64) -> Plan {
    render(&PlanInputs::Clean(Clean { network: network("version: 2\n") }), generation)
}

fn network(text: &str) -> HostNetwork {
    HostNetwork { network_config: Some(text.into()), ..HostNetwork::default() }
}

fn render(inputs: &PlanInputs, generation: u64) -> Plan {
    plan::render(inputs, Generation(generation), "claim").unwrap().0
}

/// One file and two instructions.
pub(crate) fn custom(generation: u64) -> Plan {
    let instruction = |name: &str| {
        Step::RunCustomInstruction(CustomInstruction {
            name: name.into(),
            command: "/bin/true".into(),
            args: vec![],
            env: vec![],
            save_output: true,
        })
    };
    let file = CustomFile {
        path: "/srv/file".into(),
        content: Secret::new(b"content".to_vec()),
        permissions: "0600".into(),
        directory: false,
        uid: 0,
        gid: 0,
        delete: false,
    };
    let plan = Plan {
        id: PlanId::parse("custom-1").unwrap(),
        generation: Generation(generation),
        checksum: Checksum::of(b"custom"),
        kind: Kind::Custom,
        steps: vec![Step::WriteCustomFile(file), instruction("first"), instruction("second")],
    };
    plan.check().unwrap()
}
