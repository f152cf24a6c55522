use super::*;
use crate::network::HostNetwork;
use crate::problem::Problem;
use crate::samples;
use coordinator_api::conditions::Reason;
use proto::plan::{Checksum, Image, Step};
use proto::v1alpha1::{Failure, FailureReason, StepDone, StepFailed, StepReport, step_report::Outcome};

fn rendered(inputs: &PlanInputs, generation: u64, claim: &str) -> (Plan, Secret) {
    render(inputs, Generation(generation), claim).unwrap()
}

fn text(bytes: &Secret) -> String {
    String::from_utf8(bytes.expose().to_vec()).unwrap()
}

#[test]
fn record_reads_back_whole() {
    let mut from_registry = samples::reprovision();
    if let PlanInputs::Reprovision(inputs) = &mut from_registry {
        inputs.registry = Some(Box::new(samples::registry_access()));
    }
    for (name, inputs) in
        [("reprovision", samples::reprovision()), ("registry", from_registry), ("clean", samples::clean())]
    {
        let (plan, bytes) = rendered(&inputs, 7, "a");
        assert_eq!(read_record(bytes.expose()), Ok(Some(plan)), "{name}");
    }
}

#[test]
fn plans_that_differ_have_different_names() {
    let base = rendered(&samples::clean(), 1, "a").0.id;
    let other_network = PlanInputs::Clean(Clean {
        network: HostNetwork { network_config: Some("version: 2\n".into()), ..HostNetwork::default() },
    });
    for (name, other) in [
        ("generation", rendered(&samples::clean(), 2, "a")),
        ("claim", rendered(&samples::clean(), 1, "b")),
        ("network", rendered(&other_network, 1, "a")),
        ("kind", rendered(&samples::reprovision(), 1, "a")),
    ] {
        assert_ne!(base, other.0.id, "{name}");
    }
}

#[test]
fn inputs_of_a_node_name_its_plan() {
    type Change = fn(&mut Reprovision);
    let cases: [(&str, Change); 13] = [
        ("image", |inputs| inputs.image = Image::parse("registry.example/os:other").unwrap()),
        ("user-data", |inputs| inputs.user_data = Secret::new(b"#cloud-config\n{}\n".to_vec())),
        ("hostname", |inputs| inputs.names.hostname.push('x')),
        ("machine", |inputs| inputs.names.machine.push('x')),
        ("namespace", |inputs| inputs.names.namespace.push('x')),
        ("uuid", |inputs| inputs.names.uuid.push('x')),
        ("providerID", |inputs| inputs.names.provider_id.push('x')),
        ("registry", |inputs| inputs.registry = Some(Box::new(samples::registry_access()))),
        ("meta-data", |inputs| drop(inputs.meta_data.insert("rack".into(), "7".into()))),
        ("network-config", |inputs| inputs.network.network_config = Some("version: 2\nbonds: {}\n".into())),
        ("connections", |inputs| {
            drop(inputs.network.connections.insert("eth9".into(), Secret::new(b"[connection]".to_vec())));
        }),
        ("network_data", |inputs| inputs.network.network_data = Some(Secret::new(b"{}".to_vec()))),
        ("proxy", |inputs| {
            let mut access = samples::registry_access();
            access.https_proxy = Some(Secret::new(b"http://other:3128".to_vec()));
            inputs.registry = Some(Box::new(access));
        }),
    ];
    let mut names = BTreeMap::from([(rendered(&samples::reprovision(), 1, "a").0.id, "unchanged")]);
    for (name, change) in cases {
        let PlanInputs::Reprovision(mut inputs) = samples::reprovision() else { panic!("no node") };
        change(&mut inputs);
        let id = rendered(&PlanInputs::Reprovision(inputs), 1, "a").0.id;
        assert_eq!(names.insert(id, name), None, "{name}");
    }
}

/// What is streamed are the bytes that were announced, or nothing.
#[test]
fn altered_record_is_refused() {
    let (plan, bytes) = rendered(&samples::reprovision(), 1, "a");
    let announced = plan.checksum.clone();
    let cases = [
        ("other instruction", text(&bytes).replace("exit 1", "exit 0")),
        ("other image", text(&bytes).replace("os:v1", "os:v2")),
        ("one byte more", format!("{}\n", text(&bytes))),
    ];
    for (name, altered) in cases {
        assert_ne!(altered, text(&bytes), "{name}");
        let read = read_record(altered.as_bytes()).unwrap().unwrap();
        let refused = verify_checksum(read, &announced);
        assert!(matches!(refused, Err(PlanRecordError::Checksum { .. })), "{name}: {refused:?}");
    }
    assert!(verify_checksum(plan, &announced).is_ok());
}

/// A coordinator of another version wrote other scripts and unknown fields: the
/// typed plan is read all the same, and its checksum is of its own bytes.
#[test]
fn record_rendered_differently_is_read() {
    let (plan, bytes) = rendered(&samples::reprovision(), 3, "a");
    let mut document: serde_json::Value = serde_json::from_slice(bytes.expose()).unwrap();
    document["instructions"][0]["args"] = serde_json::json!(["-c", "true"]);
    document["later"] = serde_json::json!({ "unknown": 1 });
    document["baremetal.cluster.io/plan"]["later"] = serde_json::json!(true);
    let bytes = serde_json::to_vec(&document).unwrap();
    let read = read_record(&bytes).unwrap().unwrap();
    assert_eq!(read.steps, plan.steps);
    assert_eq!((read.checksum.clone(), read.id.clone()), (Checksum::of(&bytes), plan.id));
    assert!(verify_checksum(read, &Checksum::of(&bytes)).is_ok());
}

#[test]
fn documents_without_a_typed_plan_are_no_record() {
    type Want = fn(Result<Option<Plan>, PlanRecordError>) -> bool;
    let cases: [(&str, &str, Want); 7] = [
        ("empty plan", "{}", |read| read == Ok(None)),
        ("empty lists", r#"{"files":[],"instructions":[]}"#, |read| read == Ok(None)),
        ("upstream's plan", r#"{"instructions":[{"command":"true"}]}"#, |read| {
            read == Err(PlanRecordError::NotTyped)
        }),
        ("torn", r#"{"files":["#, |read| matches!(read, Err(PlanRecordError::Json { .. }))),
        (
            "unknown step",
            r#"{"baremetal.cluster.io/plan":{"id":"clean-1","generation":1,"type":"clean","steps":[{"step":"format-disk"}]}}"#,
            |read| matches!(read, Err(PlanRecordError::Json { .. })),
        ),
        (
            "generation zero",
            r#"{"baremetal.cluster.io/plan":{"id":"clean-1","generation":0,"type":"clean","steps":[{"step":"stop-kubelet"}]}}"#,
            |read| read == Err(PlanRecordError::Generation(0)),
        ),
        (
            "the last number",
            r#"{"baremetal.cluster.io/plan":{"id":"clean-1","generation":18446744073709551615,"type":"clean","steps":[{"step":"stop-kubelet"}]}}"#,
            |read| read == Err(PlanRecordError::Generation(u64::MAX)),
        ),
    ];
    for (name, bytes, want) in cases {
        let read = read_record(bytes.as_bytes());
        assert!(want(read.clone()), "{name}: {read:?}");
    }
}

#[test]
fn error_does_not_quote_secrets() {
    let (_, bytes) = rendered(&samples::reprovision(), 1, "a");
    let torn = &bytes.expose()[..bytes.expose().len() / 2];
    let error = read_record(torn).unwrap_err().to_string();
    assert!(!error.contains("canary") && error.contains("column"), "{error}");
}

#[test]
fn steps_follow_the_contract() {
    let names = |inputs: &PlanInputs| -> Vec<&str> {
        let (plan, _) = rendered(inputs, 1, "a");
        let names: Vec<_> = plan.steps.iter().map(Step::name).collect();
        assert_eq!(names, step_names(plan.kind));
        names
    };
    assert_eq!(
        names(&samples::reprovision()),
        [
            "request-cleanup",
            "clean-cloud-init",
            "write-seed",
            "write-node-identity",
            "upgrade-system",
            "sync-file-systems",
            "reboot",
            "verify-system"
        ]
    );
    assert_eq!(
        names(&samples::clean()),
        [
            "stop-kubelet",
            "remove-workload",
            "stop-containerd",
            "remove-node-identity",
            "write-seed",
            "remove-node-state",
            "sync-file-systems"
        ]
    );
}

#[test]
fn document_keeps_the_upstream_format() {
    let (plan, bytes) = rendered(&samples::reprovision(), 1, "a");
    let document: serde_json::Value = serde_json::from_slice(bytes.expose()).unwrap();
    let staging = format!("/var/lib/baremetal-agent/staging/{}", plan.id);
    for file in document["files"].as_array().unwrap() {
        assert!(file["path"].as_str().unwrap().starts_with(&staging), "{file}");
        assert_eq!(file["permissions"], "0600");
    }
    assert_eq!(document["files"][3]["path"], format!("{staging}/plan.json"));
    let [instruction] = &document["instructions"].as_array().unwrap()[..] else { panic!("{document}") };
    assert_eq!((&instruction["name"], &instruction["command"]), (&"run-plan".into(), &"/bin/sh".into()));
    assert_eq!(instruction["saveOutput"], true);
}

#[test]
fn stored_plan_keeps_its_generation() {
    let (_, bytes) = rendered(&samples::clean(), 9, "a");
    let spoiled = text(&bytes).replace("\"steps\":", "\"other\":");
    let secret = |text: &str| Secret::new(text.as_bytes().to_vec());
    for (name, stored, want) in [
        ("missing", StoredPlan::parse(None), 0),
        ("empty", StoredPlan::parse(Some(&secret("{}"))), 0),
        ("record", StoredPlan::parse(Some(&bytes)), 9),
        ("spoiled", StoredPlan::parse(Some(&secret(&spoiled))), 9),
        ("garbage", StoredPlan::parse(Some(&secret("?"))), 0),
        (
            "number without successor",
            StoredPlan::parse(Some(&secret(&spoiled.replace(":9,", ":18446744073709551615,")))),
            0,
        ),
    ] {
        assert_eq!(stored.generation(), Generation(want), "{name}: {stored:?}");
    }
}

#[test]
fn report_ends_its_own_plan_only() {
    let (plan, _) = rendered(&samples::clean(), 4, "a");
    let last = u32::try_from(plan.steps.len() - 1).unwrap();
    let done = || Some(Outcome::Done(StepDone::default()));
    let failed = || {
        let failure = Failure {
            reason: FailureReason::NoSpace.into(),
            message: "the disk is full".into(),
            next_action: "free space".into(),
        };
        Some(Outcome::Failed(StepFailed { failure: Some(failure), output: String::new() }))
    };
    let report = |step, outcome| StepReport {
        plan_id: plan.id.to_string(),
        generation: plan.generation.0,
        step,
        outcome,
    };
    let problem = Problem::new(Reason::NoSpace, "step stop-kubelet: the disk is full", "free space");
    let other_plan = StepReport { plan_id: "clean-2".into(), ..report(last, done()) };
    let older = StepReport { generation: 3, ..report(last, done()) };
    for (name, report, want) in [
        ("a step", report(0, done()), Progress::InFlight),
        ("the last step", report(last, done()), Progress::Ended(PlanEnd::Applied)),
        ("a failed step", report(0, failed()), Progress::Ended(PlanEnd::Failed(problem))),
        ("another plan", other_plan, Progress::Stale),
        ("an older plan", older, Progress::Stale),
        ("a step that is not there", report(last + 1, done()), Progress::Stale),
        ("no outcome", report(0, None), Progress::Stale),
    ] {
        assert_eq!(read_progress(&plan, &report), want, "{name}");
    }
}

#[test]
fn reasons_cover_all_failures_of_the_contract() {
    let known = (0..100).filter(|number| FailureReason::try_from(*number).is_ok()).count();
    assert_eq!(failure_reasons().count(), known, "a number is left out before another");
    assert!(failure_reasons().any(|reason| reason == Reason::NetworkReverted));
}

/// Every optional part of a plan that becomes a node.
fn full_reprovision() -> PlanInputs {
    let PlanInputs::Reprovision(mut inputs) = samples::reprovision() else { panic!("another kind") };
    inputs.registry = Some(Box::new(samples::registry_access()));
    let keyfile = Secret::new(b"[connection]\n".to_vec());
    inputs.network.connections = [("eno1".to_owned(), keyfile)].into();
    inputs.network.network_data = Some(Secret::new(b"{}".to_vec()));
    PlanInputs::Reprovision(inputs)
}

fn custom_plan() -> (Plan, Secret) {
    use coordinator_api::names::{annotation, plan_secret};
    use kube::ResourceExt as _;
    let plan = r#"{"files":[{"path":"/srv/x","content":"Y2FuYXJ5"}],"instructions":[{"command":"true"}]}"#;
    let mut secret = k8s_openapi::api::core::v1::Secret {
        type_: Some(plan_secret::TYPE.into()),
        data: Some([(plan_secret::PLAN.to_owned(), k8s_openapi::ByteString(plan.into()))].into()),
        ..Default::default()
    };
    secret.annotations_mut().insert(annotation::PLAN_TYPE.into(), "custom".into());
    custom::read_custom(Some(&secret), "host-1").unwrap().render(Generation(5)).unwrap()
}

/// A record that one release stores is read by another: every step is written with the same bytes.
#[test]
fn typed_part_keeps_its_bytes() {
    let golden = include_str!("golden.txt");
    let mut found = String::new();
    for (_, bytes) in [
        rendered(&samples::reprovision(), 3, "BaremetalMachine/worker-1"),
        rendered(&full_reprovision(), 4, "BaremetalMachine/worker-1"),
        rendered(&samples::clean(), 5, "a"),
        custom_plan(),
    ] {
        let text = text(&bytes);
        let (_, typed) = text.split_once(r#""baremetal.cluster.io/plan":"#).unwrap();
        found.push_str(typed.strip_suffix('}').unwrap());
        found.push('\n');
    }
    assert_eq!(found, golden, "{found}");
}
