use super::*;
use proto::v1alpha1::{StepDone, StepFailed, StepStarted};

fn names() -> Names {
    Names {
        hostname: "worker-1".into(),
        machine: "pool-a-x7".into(),
        namespace: "default".into(),
        uuid: "6f1f9a52-0000-4000-8000-000000000001".into(),
        provider_id: "baremetal:///host-1".into(),
    }
}

fn reprovision() -> Job {
    Job::Reprovision(Reprovision {
        image: Image::parse("registry.example/os:v1").unwrap(),
        user_data: Secret::new(b"#cloud-config\nruncmd: [canary]\n".to_vec()),
        network_config: Some("version: 2\n".into()),
        names: names(),
    })
}

fn clean() -> Job {
    Job::Clean(Clean { network_config: None })
}

#[test]
fn what_is_written_is_read_back_whole() {
    for (name, job) in [("reprovision", reprovision()), ("clean", clean())] {
        let stored = write(&job, Generation(7), "uid-1").unwrap();
        assert_eq!(parse(stored.bytes.expose(), Generation(99)), Ok(Some(stored)), "{name}");
    }
}

#[test]
fn plans_that_differ_in_anything_have_different_names() {
    let base = write(&clean(), Generation(1), "a").unwrap().plan.id;
    let other_network = Job::Clean(Clean { network_config: Some("version: 2\n".into()) });
    for (name, other) in [
        ("generation", write(&clean(), Generation(2), "a")),
        ("owner", write(&clean(), Generation(1), "b")),
        ("network", write(&other_network, Generation(1), "a")),
        ("kind", write(&reprovision(), Generation(1), "a")),
    ] {
        assert_ne!(base, other.unwrap().plan.id, "{name}");
    }
}

#[test]
fn an_altered_plan_is_refused() {
    let stored = write(&reprovision(), Generation(1), "a").unwrap();
    let text = String::from_utf8(stored.bytes.expose().to_vec()).unwrap();
    let cases = [
        ("other instruction", text.replace("elemental upgrade", "elemental install")),
        ("other image", text.replace("os:v1", "os:v2")),
        ("one byte more", format!("{text}\n")),
        ("one step less", text.replace("\"sync-file-systems\"", "\"other\"")),
    ];
    for (name, altered) in cases {
        assert_ne!(altered, text, "{name}");
        assert_eq!(parse(altered.as_bytes(), Generation(1)), Err(PlanError::Altered), "{name}");
    }
}

#[test]
fn garbage_is_an_error_that_shows_no_content() {
    for garbage in ["", "canary", "{\"files\": \"canary\"}", "[1, canary]"] {
        let error = parse(garbage.as_bytes(), Generation(1)).unwrap_err();
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[test]
fn the_empty_plan_is_no_plan() {
    assert_eq!(parse(b"{}", Generation(1)), Ok(None));
    assert_eq!(checksum(b"{}"), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
}

#[test]
fn a_foreign_plan_is_custom_through_and_through() {
    let bytes = br#"{"files":[{"content":"aGk=","path":"/etc/motd","permissions":"0644"}],"instructions":[{"name":"x","command":"true","saveOutput":true}]}"#;
    let stored = parse(bytes, Generation(4)).unwrap().unwrap();
    assert_eq!(
        (stored.plan.kind, stored.plan.generation, stored.plan.steps.len()),
        (Kind::Custom, Generation(4), 2)
    );
}

#[test]
fn a_reprovision_cleans_cloud_init_before_it_seeds_and_proves_itself_last() {
    let plan = write(&reprovision(), Generation(1), "a").unwrap().plan;
    let names: Vec<_> = plan.steps.iter().map(Step::name).collect();
    assert_eq!(
        names,
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
}

#[test]
fn a_clean_leaves_a_seed_without_user_data() {
    let plan = write(&clean(), Generation(1), "a").unwrap().plan;
    let seed = plan.steps.iter().find_map(|step| match step {
        Step::WriteSeed(seed) => Some(seed.clone()),
        _ => None,
    });
    assert_eq!(seed.unwrap().user_data, None);
}

#[test]
fn what_does_not_prove_itself_still_says_whose_it_was_and_its_number() {
    let stored = write(&reprovision(), Generation(5), "uid-1").unwrap();
    let text = String::from_utf8(stored.bytes.expose().to_vec()).unwrap();
    let altered = text.replace("elemental upgrade", "elemental  upgrade");
    for (name, bytes, owner, generation, is_usable) in [
        ("ours", text.as_str(), "uid-1", 5, true),
        ("rendered otherwise", &altered, "uid-1", 5, false),
        ("empty", "{}", "", 0, true),
        ("garbage", "{", "", 0, false),
        ("nothing", "", "", 0, false),
    ] {
        let found = find(bytes.as_bytes());
        assert_eq!((found.owner.as_str(), found.generation.0), (owner, generation), "{name}");
        assert_eq!(found.unusable.is_none(), is_usable, "{name}");
        assert_eq!(found.stored.is_some(), name == "ours", "{name}");
    }
}

#[test]
fn only_the_last_step_applies_a_plan() {
    let plan = write(&clean(), Generation(3), "a").unwrap().plan;
    let report = |step: u32, outcome| StepReport {
        plan_id: plan.id.to_string(),
        generation: 3,
        step,
        outcome: Some(outcome),
    };
    let done = || Outcome::Done(StepDone::default());
    let failed = Outcome::Failed(StepFailed { message: "no: do this".into(), ..Default::default() });
    let last = u32::try_from(plan.steps.len()).unwrap() - 1;
    let mut stale = report(last, done());
    stale.generation = 2;
    for (name, report, want) in [
        ("first", report(0, done()), Judgement::Progress),
        ("started", report(last, Outcome::Started(StepStarted {})), Judgement::Progress),
        ("last", report(last, done()), Judgement::Applied),
        ("beyond", report(last + 1, done()), Judgement::Stale),
        ("older", stale, Judgement::Stale),
        ("failed", report(0, failed), Judgement::Failed { message: "step stop-kubelet: no: do this".into() }),
    ] {
        assert_eq!(judge(&plan, &report), want, "{name}");
    }
}

#[test]
fn every_script_is_one_that_a_shell_reads() {
    for job in [reprovision(), clean()] {
        let stored = write(&job, Generation(1), "a").unwrap();
        for step in &stored.plan.steps {
            let Some(arguments) = script::arguments(step, &stored.plan.id) else { continue };
            let read = std::process::Command::new("/bin/sh").args(["-n", "-c", &arguments[1]]).status();
            assert!(read.unwrap().success(), "{}", step.name());
        }
    }
}
