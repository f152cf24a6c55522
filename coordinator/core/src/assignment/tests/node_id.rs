use super::super::*;
use crate::samples;
use coordinator_api::inventory::PlanState;
use proto::plan::Step;

const NEW: &str = "metal3://default/host-1/worker-1";
const LEGACY: &str = "metal3://uid-of-host-1";

/// A machine of Metal3, whose bootstrap data is not edited.
fn demand() -> Demand {
    let mut demand = samples::demand();
    if let Want::Node(node) = &mut demand.want {
        node.other_ids = vec![LEGACY.to_owned()];
        node.names.as_mut().unwrap().provider_id = NEW.to_owned();
    }
    demand
}

fn data(value: &str) -> Secret {
    let text = format!(
        "## template: jinja\n#cloud-config\nwrite_files:\n- path: /run/kubeadm.yaml\n  content: |\n    apiVersion: kubeadm.k8s.io/v1beta4\n    kind: JoinConfiguration\n    nodeRegistration:\n      kubeletExtraArgs:\n      - name: provider-id\n        value: {value}\n"
    );
    Secret::new(text.into_bytes())
}

fn decide(data: Secret, meta_data: Option<&str>) -> Outcome {
    let mut inventory = samples::inventory("host-1");
    samples::claim(&mut inventory, AllocationState::Allocated, 0);
    let mut demand = demand();
    if let Want::Node(node) = &mut demand.want {
        node.meta_data_secret = meta_data.map(|_| "meta".to_owned());
    }
    let given = |text: &str| SecretRead::Read(Secret::new(text.as_bytes().to_vec()));
    let secrets = Secrets {
        bootstrap: SecretRead::Read(data),
        meta_data: meta_data.map(given).unwrap_or_default(),
        plan: Some(StoredPlan::Empty),
        ..Secrets::default()
    };
    let record = samples::record(&inventory);
    let host = Some(Host { record: &record, spec: &inventory.spec });
    decide_outcome(&Situation { demand: &demand, host, secrets: &secrets, now: Timestamp::UNIX_EPOCH })
}

#[test]
fn kubelet_has_what_the_bootstrap_data_gives_it() {
    let without = samples::bootstrap();
    for (what, data, meta_data, want) in [
        ("nothing", without, None, Ok(NEW)),
        ("legacy", data("metal3://{{ ds.meta_data.uuid }}"), None, Ok(LEGACY)),
        ("new", data("metal3://{{ ds.meta_data.providerid }}"), None, Ok(NEW)),
        (
            "new, rendered by the template",
            data("metal3://{{ ds.meta_data.providerid }}"),
            Some("providerid: default/host-1/worker-1"),
            Ok(NEW),
        ),
        ("the proposed form", data("metal3://default/host-1?owner=worker-1"), None, Err("?owner=worker-1")),
        ("another host", data("metal3://default/host-2/worker-1"), None, Err("host-2")),
        ("another expression", data("metal3://{{ v1.instance_id }}"), None, Err("v1.instance_id")),
        ("another value", data("metal3://{{ ds.meta_data.uuid }}"), Some("uuid: other"), Err("uuid")),
    ] {
        let outcome = decide(data, meta_data);
        match (&outcome.effect, want) {
            (Some(Effect::Assign(assignment)), Ok(want)) => {
                let plan = &assignment.plan;
                let identity = plan.steps.iter().find_map(|step| match step {
                    Step::WriteNodeIdentity(identity) => Some(identity.provider_id.as_str()),
                    _ => None,
                });
                assert_eq!(identity, Some(want), "{what}");
                let seed = plan.steps.iter().find_map(|step| match step {
                    Step::WriteSeed(seed) => Some(seed.meta_data.as_str()),
                    _ => None,
                });
                assert!(seed.unwrap().contains("providerid: default/host-1/worker-1"), "{what}: {seed:?}");
            }
            (None, Err(part)) => {
                let blocker = outcome.state.unwrap().blocker.unwrap();
                assert_eq!(blocker.problem.reason, Reason::NodeProviderIDUnsupported, "{what}");
                assert!(blocker.problem.text().contains(part), "{what}: {}", blocker.problem.text());
            }
            (effect, _) => panic!("{what}: {effect:?}"),
        }
    }
}

#[test]
fn provider_id_is_what_the_host_carries() {
    for (carried, want) in [(LEGACY, LEGACY), (NEW, NEW), ("metal3://of-another-host", NEW)] {
        let mut inventory = samples::inventory("host-1");
        samples::claim(&mut inventory, AllocationState::Reprovisioning, 0);
        samples::announce(&mut inventory, PlanType::Reprovision, 1, Some(PlanState::Applied));
        let host = inventory.status.as_mut().unwrap().host.as_mut().unwrap();
        host.carried.as_mut().unwrap().node.as_mut().unwrap().provider_id = carried.to_owned();
        let record = samples::record(&inventory);
        let host = Some(Host { record: &record, spec: &inventory.spec });
        let (demand, secrets) = (demand(), Secrets::default());
        let situation = Situation { demand: &demand, host, secrets: &secrets, now: Timestamp::UNIX_EPOCH };
        let provided = match decide_outcome(&situation).effect {
            Some(Effect::SetProviderId(id)) => id.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(provided, want);
    }
}
