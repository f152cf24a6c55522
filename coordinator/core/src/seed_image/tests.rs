use super::*;
use coordinator_api::conditions::{self, Type};
use coordinator_api::registration::{MachineRegistrationSpec, MachineRegistrationStatus};
use coordinator_api::seed_image::SeedImageSpec;

fn image() -> SeedImage {
    let spec = SeedImageSpec {
        base_image: Some("http://127.0.0.1/base.iso".into()),
        cleanup_after_minutes: 60,
        ..Default::default()
    };
    let mut image = SeedImage::new("seed", spec);
    image.metadata.generation = Some(1);
    image
}

/// The spec is edited: the API server increments the generation.
fn edit(image: &mut SeedImage, change: impl FnOnce(&mut SeedImageSpec)) {
    change(&mut image.spec);
    image.metadata.generation = image.metadata.generation.map(|generation| generation + 1);
}

fn ask(image: &mut SeedImage) {
    edit(image, |spec| spec.retrigger_build = true);
}

fn registration() -> MachineRegistration {
    let mut registration = MachineRegistration::new("r", MachineRegistrationSpec::default());
    let status = MachineRegistrationStatus { registration_url: Some("u".into()), ..Default::default() };
    registration.status = Some(status);
    registration
}

fn minute(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).unwrap()
}

fn download() -> Download {
    Download {
        server_url: "https://c:1".into(),
        token: "t".into(),
        file: "r.iso".into(),
        base: base("sha256:1"),
    }
}

fn completed(at: i64) -> SeedImage {
    let mut image = image();
    image.status = Some(seed_image_status(&image, &Progress::Completed(download()), minute(at)));
    image
}

fn base(digest: &str) -> BaseRecord {
    BaseRecord { digest: digest.into(), manifest: None }
}

#[test]
fn unbuildable_image_is_refused_with_next_action() {
    let mut raw = image();
    raw.spec.kind = SeedImageType::Raw;
    let mut empty = image();
    empty.spec.base_image = None;
    for image in [raw, empty] {
        let Decision::Refuse(why) = decide_build(&image, Some(&registration()), minute(0)) else { panic!() };
        let progress = Decision::Refuse(why).progress("r").unwrap();
        let status = seed_image_status(&image, &progress, minute(0));
        assert_eq!(status.state, Some(SeedImageState::Failed));
        assert!(status.conditions[0].message.contains(": "), "{why}");
    }
}

#[test]
fn conditions_name_how_far_the_build_is() {
    let ongoing = Progress::Started;
    let failed = Progress::Failed(Reason::BaseImageNotFound, "why".into());
    for (progress, ready, built) in [
        (Progress::Completed(download()), "True ResourcesSuccessfullyCreated", "True SeedImageBuildSuccess"),
        (ongoing, "True ResourcesSuccessfullyCreated", "False SeedImageBuildOngoing"),
        (failed, "False BaseImageNotFound", "False SeedImageBuildFailure"),
        (Progress::Refused("why"), "False SeedImageBuildFailure", "False SeedImageBuildFailure"),
        (Progress::NoRegistration("r".into()), "False RegistrationNotFound", "False RegistrationNotFound"),
        (Progress::Expired, "False SeedImageBuildDeadline", "False SeedImageBuildDeadline"),
    ] {
        let status = seed_image_status(&image(), &progress, minute(0));
        let shown = [Type::Ready, Type::SeedImageReady].map(|kind| {
            let found = conditions::find_condition(&status.conditions, kind).unwrap();
            format!("{} {}", found.status, found.reason)
        });
        assert_eq!(shown, [ready, built], "{progress:?}");
    }
}

#[test]
fn a_registration_is_waited_for() {
    assert_eq!(decide_build(&image(), None, minute(0)), Decision::AwaitRegistration);
    assert_eq!(decide_build(&image(), Some(&registration()), minute(0)), Decision::Begin);
}

#[test]
fn registration_of_another_namespace_needs_a_grant() {
    for (own, listed, want) in [
        ("fleet", None, Decision::Begin),
        ("other", None, Decision::AwaitRegistration),
        ("other", Some(""), Decision::AwaitRegistration),
        ("other", Some("others, fleet"), Decision::AwaitRegistration),
        ("other", Some("third, other"), Decision::Begin),
    ] {
        let (mut image, mut registration) = (image(), registration());
        image.metadata.namespace = Some(own.into());
        registration.metadata.namespace = Some("fleet".into());
        if let Some(listed) = listed {
            let grant = (annotation::SEED_IMAGE_NAMESPACES.to_owned(), listed.to_owned());
            registration.metadata.annotations = Some([grant].into());
        }
        assert_eq!(decide_build(&image, Some(&registration), minute(0)), want, "{own} {listed:?}");
    }
    let mut open = completed(0);
    open.metadata.namespace = Some("other".into());
    assert!(!may_download(&open, Some(&registration()), "r.iso", minute(1)), "taken back");
}

#[test]
fn a_completed_image_says_where_it_is() {
    let status = completed(0).status.unwrap();
    assert_eq!(status.state, Some(SeedImageState::Completed));
    assert_eq!(status.download_url.as_deref(), Some("https://c:1/elemental/seedimage/t/r.iso"));
    assert_eq!(status.checksum_url.as_deref(), Some("https://c:1/elemental/seedimage/t/r.iso.sha256"));
}

#[test]
fn expired_download_closes_and_stays_closed() {
    let mut image = completed(0);
    let r = registration();
    assert_eq!(decide_build(&image, Some(&r), minute(59)), Decision::Build);
    assert_eq!(remaining_lifetime(&image, minute(59)), Some(Duration::from_mins(1)));
    assert_eq!(decide_build(&image, Some(&r), minute(60)), Decision::Expire);
    image.status = Some(seed_image_status(&image, &Progress::Expired, minute(60)));
    assert_eq!(image.status.as_ref().unwrap().download_url, None);
    assert_eq!(decide_build(&image, Some(&r), minute(61)), Decision::Expire);
    ask(&mut image);
    assert_eq!(decide_build(&image, Some(&r), minute(61)), Decision::Begin);
}

#[test]
fn zero_minutes_keep_a_download_open() {
    let mut image = completed(0);
    image.spec.cleanup_after_minutes = 0;
    assert_eq!(decide_build(&image, Some(&registration()), minute(100_000)), Decision::Build);
}

/// A decision and the status that follows; what `fetch` says becomes of the base.
fn look(image: &mut SeedImage, fetch: Result<&str, &str>, at: i64) -> Decision {
    let decision = decide_build(image, Some(&registration()), minute(at));
    let built = || match fetch {
        Ok(token) => {
            let new_token = || token.to_owned();
            let made = ("r.iso".to_owned(), base("sha256:1"));
            Progress::Completed(open_download(image, "https://c:1", made, new_token))
        }
        Err(why) => Progress::Failed(Reason::BaseImageNotFound, why.to_owned()),
    };
    let progress = decision.progress("r").unwrap_or_else(built);
    image.status = Some(seed_image_status(image, &progress, minute(at)));
    decision
}

fn link(image: &SeedImage) -> Option<&str> {
    image.status.as_ref()?.download_token.as_deref()
}

#[test]
fn retrigger_closes_old_link_before_opening_new() {
    let mut image = completed(0);
    ask(&mut image);
    assert!(is_asked(&image) && !is_answered(&image));
    assert_eq!(look(&mut image, Ok("new"), 5), Decision::Begin);
    assert_eq!((recorded_state(&image), link(&image)), (Some(SeedImageState::Started), None));
    assert_eq!(base_image(&image), Base::Fresh);
    // A crash here does the same again; so does a base that is not there.
    assert_eq!(look(&mut image, Err("no answer"), 6), Decision::Build);
    assert_eq!((recorded_state(&image), link(&image)), (Some(SeedImageState::Failed), None));
    assert!(is_asked(&image) && base_image(&image) == Base::Fresh, "tried until it is done");
    assert_eq!(look(&mut image, Ok("new"), 7), Decision::Build);
    assert_eq!((recorded_state(&image), link(&image)), (Some(SeedImageState::Completed), Some("new")));
    assert_eq!(remaining_lifetime(&image, minute(7)), Some(Duration::from_hours(1)), "the hour starts again");
}

#[test]
fn retrigger_that_stays_set_runs_once() {
    let mut image = completed(0);
    ask(&mut image);
    look(&mut image, Ok("new"), 1);
    look(&mut image, Ok("new"), 1);
    for at in [2, 3] {
        assert!(is_answered(&image) && base_image(&image) == Base::Kept);
        assert_eq!(look(&mut image, Ok("newer"), at), Decision::Build);
        assert_eq!(link(&image), Some("new"));
    }
    assert_eq!(look(&mut image, Ok("newer"), 61), Decision::Expire);
    assert!(is_answered(&image));
    assert_eq!(look(&mut image, Ok("newer"), 62), Decision::Expire, "closed stays closed");
    edit(&mut image, |spec| spec.cleanup_after_minutes = 0);
    assert!(is_asked(&image), "a change of the spec beside it is a new wish");
}

#[test]
fn link_stays_until_retrigger_is_set_again() {
    let mut image = completed(0);
    ask(&mut image);
    look(&mut image, Ok("new"), 1);
    look(&mut image, Ok("new"), 1);
    edit(&mut image, |spec| spec.retrigger_build = false);
    // Asked again before the taking back was even looked at.
    let mut at_once = image.clone();
    ask(&mut at_once);
    assert_eq!(look(&mut at_once, Ok("newest"), 2), Decision::Begin);
    assert_eq!(look(&mut image, Ok("newer"), 2), Decision::Build);
    assert_eq!(link(&image), Some("new"));
    ask(&mut image);
    assert_eq!(look(&mut image, Ok("newest"), 3), Decision::Begin);
    assert_eq!(link(&image), None);
}

#[test]
fn download_requires_current_file_named_in_status() {
    let ready = registration();
    let open = completed(0);
    let mut asked = completed(0);
    ask(&mut asked);
    let mut started = open.clone();
    started.status = Some(seed_image_status(&started, &Progress::Started, minute(0)));
    for (name, image, registration, file, at, want) in [
        ("open", &open, Some(&ready), "r.iso", 1, true),
        ("another name", &open, Some(&ready), "s.iso", 1, false),
        ("no name", &open, Some(&ready), "", 1, false),
        ("its time is over", &open, Some(&ready), "r.iso", 60, false),
        ("its registration is gone", &open, None, "r.iso", 1, false),
        ("retriggered", &asked, Some(&ready), "r.iso", 1, false),
        ("being made", &started, Some(&ready), "r.iso", 1, false),
    ] {
        assert_eq!(may_download(image, registration, file, minute(at)), want, "{name}");
    }
}

#[test]
fn corrected_failed_build_shows_new_start() {
    let mut image = completed(0);
    look(&mut image, Err("no answer"), 1);
    assert_eq!(look(&mut image, Err("no answer"), 2), Decision::Build, "tried again in silence");
    edit(&mut image, |spec| spec.base_image = Some("http://127.0.0.1/other.iso".into()));
    assert_eq!(look(&mut image, Ok("new"), 3), Decision::Begin);
    assert_eq!(look(&mut image, Ok("new"), 3), Decision::Build);
}

/// `curl` of the next section reads the link.
#[test]
fn first_cluster_guide_waits_for_the_link() {
    let guide = include_str!("../../../../docs/first-cluster.md");
    let wait = guide.lines().find(|line| line.starts_with("kubectl wait seedimage/lab")).unwrap();
    let (_, rest) = wait.split_once("--for=condition=").unwrap();
    let condition = rest.split(' ').next().unwrap();
    for progress in [
        Progress::Refused("no ISO"),
        Progress::NoRegistration("r".into()),
        Progress::Started,
        Progress::Failed(Reason::BaseImageNotFound, "no such image".into()),
        Progress::AwaitReplicas(base("sha256:1"), vec!["b".into()]),
        Progress::Completed(download()),
        Progress::Expired,
    ] {
        let status = seed_image_status(&image(), &progress, minute(0));
        let is_true = status.conditions.iter().any(|one| one.type_ == condition && one.status == "True");
        assert_eq!(is_true, status.download_url.is_some(), "{condition} at {progress:?}");
    }
}

fn replica(name: &str, digests: &[&str]) -> ReplicaBases {
    let digests = digests.iter().map(|digest| (*digest).to_owned()).collect();
    ReplicaBases { replica: name.into(), digests }
}

#[test]
fn download_opens_once_every_replica_has_base() {
    let open = completed(0);
    let mut of_earlier_version = completed(0);
    of_earlier_version.status.as_mut().unwrap().base_digest = None;
    let mut retriggered = completed(0);
    ask(&mut retriggered);
    retriggered.status = Some(seed_image_status(&retriggered, &Progress::Started, minute(0)));
    let (none, has, has_other) =
        (replica("b", &[]), replica("c", &["sha256:0", "sha256:1"]), replica("a", &["sha256:2"]));
    let all = [none.clone(), has.clone(), has_other.clone()];
    for (name, image, digest, others, want) in [
        ("the only replica", &image(), "sha256:1", &[][..], &[][..]),
        ("all have it", &image(), "sha256:1", &[has], &[]),
        ("two lack it", &image(), "sha256:1", &all, &["a", "b"]),
        ("open, and a replica starts", &open, "sha256:1", &all, &[]),
        ("open with another base", &open, "sha256:2", &all, &["b", "c"]),
        ("open since an earlier version", &of_earlier_version, "sha256:1", &all, &[]),
        ("retriggered", &retriggered, "sha256:1", &[none, has_other], &["a", "b"]),
    ] {
        assert_eq!(find_waiting(image, &base(digest), others), want, "{name}");
    }
}

#[test]
fn retriggered_base_is_fetched_once_for_all_replicas() {
    let (mut image, registration) = (completed(0), registration());
    ask(&mut image);
    assert_eq!(base_to_hold(&image, Some(&registration), minute(1)), None, "not decided on this spec");
    assert_eq!(look(&mut image, Ok("new"), 1), Decision::Begin);
    assert_eq!(
        (base_image(&image), base_to_hold(&image, Some(&registration), minute(1))),
        (Base::Fresh, None)
    );
    let waiting = Progress::AwaitReplicas(base("sha256:2"), vec!["a".into(), "b".into()]);
    image.status = Some(seed_image_status(&image, &waiting, minute(2)));
    assert_eq!(decide_build(&image, Some(&registration), minute(2)), Decision::Build);
    assert_eq!((base_image(&image), recorded_base(&image)), (Base::Kept, Some(base("sha256:2"))));
    assert_eq!(base_to_hold(&image, Some(&registration), minute(2)), Some(base("sha256:2")));
    assert!(is_asked(&image) && link(&image).is_none());
    let status = image.status.as_ref().unwrap();
    assert_eq!(status.state, Some(SeedImageState::Started));
    assert!(status.conditions[1].message.contains("fetched by a, b of the coordinator"), "{status:?}");
    look(&mut image, Ok("new"), 3);
    assert!(is_answered(&image) && link(&image) == Some("new"));
    assert_eq!(base_to_hold(&image, None, minute(3)), None, "its registration is gone");
    assert_eq!(base_to_hold(&image, Some(&registration), minute(63)), None, "its time is over");
}

#[test]
fn fields_without_effect_warn_beside_ready() {
    use serde_json::json;
    let container = json!({ "name": "build", "image": "x" });
    for (name, container, size, want) in [
        ("none", None, None, ""),
        ("upstream's defaults", Some(json!(null)), Some(json!(6_442_450_944_u64)), ""),
        ("its default as text", None, Some(json!("6Gi")), ""),
        ("a container", Some(container.clone()), None, "spec.buildContainer has no effect; next: remove it"),
        ("both", Some(container), Some(json!("8Gi")), "spec.buildContainer has no effect; next: remove it"),
    ] {
        let mut image = completed(0);
        edit(&mut image, |spec| (spec.build_container, spec.size) = (container, size));
        look(&mut image, Ok("new"), 1);
        let conditions = &image.status.as_ref().unwrap().conditions;
        let found = conditions.iter().find(|condition| condition.type_ == "FieldsIgnored").unwrap();
        assert_eq!((&*found.message, found.status == "True"), (want, !want.is_empty()), "{name}");
        assert!(conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True"), "{name}");
    }
}
