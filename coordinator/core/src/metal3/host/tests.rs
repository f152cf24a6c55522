mod shown;

use super::*;
use crate::assignment::State;
use crate::samples;
use coordinator_api::hardware::{DiskStatus, HardwareStatus};
use coordinator_api::machine::Phase;
use coordinator_api::metal3::Consumer;
use coordinator_api::metal3::host::{BareMetalHostStatus, Image};
use coordinator_api::names::kind;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

fn host() -> BareMetalHost {
    serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {
            "name": "bmh-1", "namespace": "default", "uid": "uid-of-bmh-1",
            "annotations": { annotation::MACHINE_INVENTORY: "host-1" },
            "finalizers": [names::HOST_FINALIZER],
        },
        "spec": { "online": true },
    }))
    .unwrap()
}

fn owned(owner: &str) -> MachineInventory {
    let mut inventory = samples::inventory("host-1");
    inventory.annotations_mut().insert(annotation::OWNER_BARE_METAL_HOST.into(), owner.into());
    inventory
}

fn provisioning() -> BareMetalHost {
    let mut host = host();
    host.spec.image = Some(image_of("oci://registry.example/os:v1"));
    host
}

#[test]
fn a_host_takes_the_inventory_that_it_names() {
    let free = samples::inventory("host-1");
    let mut claimed = samples::inventory("host-1");
    claimed.annotations_mut().insert(annotation::OWNER_BAREMETAL_MACHINE.into(), "m-1".into());
    let mut foreign = host();
    foreign.metadata.annotations = None;
    let unnamed = foreign.clone();
    foreign.metadata.finalizers = None;
    let mut new = host();
    new.metadata.finalizers = None;
    let mut unheld = host();
    unheld.metadata.finalizers = Some(vec![finalizer::BAREMETAL_MACHINE.to_owned()]);
    let mut deleted = host();
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let mut driven = deleted.clone();
    driven.finalizers_mut().push(finalizer::BAREMETAL_MACHINE.into());
    let mut abandoned = owned("bmh-1");
    for (key, value) in [
        (annotation::OWNER_BAREMETAL_MACHINE, "bmh-1"),
        (annotation::OWNER_KIND, kind::BARE_METAL_HOST),
        (annotation::ABANDONED, "x"),
    ] {
        abandoned.annotations_mut().insert(key.into(), value.into());
    }
    let mut with_bmc = host();
    with_bmc.spec.bmc =
        Some(coordinator_api::metal3::host::Bmc { address: "redfish://x".into(), ..Default::default() });
    let mut with_raid = host();
    with_raid.spec.raid = Some(json!({}));
    let mut with_foreign_data = host();
    with_foreign_data.spec.user_data =
        serde_json::from_value(json!({ "name": "s", "namespace": "other" })).unwrap();
    for (name, host, inventory, want) in [
        ("another manager's", &foreign, Some(&free), "Ignore"),
        ("its annotation was removed", &unnamed, None, "InventoryUnnamed"),
        ("new", &new, Some(&free), "AddFinalizer"),
        ("held", &host(), Some(&free), "TakeInventory"),
        ("owner", &host(), Some(&owned("bmh-1")), "Drive"),
        ("owned by another", &host(), Some(&owned("bmh-2")), "InventoryTaken"),
        ("claimed by a machine", &host(), Some(&claimed), "InventoryTaken"),
        ("no inventory", &host(), None, "InventoryMissing"),
        ("with a BMC", &with_bmc, Some(&free), "FieldUnsupported"),
        ("with RAID", &with_raid, Some(&free), "FieldUnsupported"),
        ("with data of another namespace", &with_foreign_data, Some(&free), "FieldUnsupported"),
        ("deleted, owner", &deleted, Some(&owned("bmh-1")), "ReleaseInventory"),
        ("deleted, given back", &deleted, Some(&free), "RemoveFinalizer"),
        ("deleted, owned by another", &deleted, Some(&owned("bmh-2")), "RemoveFinalizer"),
        ("deleted, with a node", &driven, Some(&owned("bmh-1")), "Drive"),
        ("driven, its finalizer was lost", &unheld, Some(&owned("bmh-1")), "AddFinalizer"),
        ("it has abandoned the host", &host(), Some(&abandoned), "Drive"),
        ("deleted, it has abandoned the host", &deleted, Some(&abandoned), "ReleaseInventory"),
    ] {
        let record = inventory.map(samples::record);
        let step = match decide_step(host, record.as_ref()) {
            HostStep::Refuse(blocker) => blocker.problem.reason.as_str().to_owned(),
            step => format!("{step:?}"),
        };
        assert_eq!(step, want, "{name}");
    }
}

#[test]
fn only_images_that_hosts_can_install_are_taken() {
    const PINNED: &str =
        "r.example/os:1@sha256:abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcd";
    let hex = "ABCDEF".repeat(11)[..64].to_owned();
    let image = |url: &str| Image { url: url.into(), ..Image::default() };
    let checked = |checksum: &str, kind: &str| Image {
        checksum: Some(checksum.into()),
        checksum_type: (!kind.is_empty()).then(|| kind.into()),
        ..image("oci://r.example/os:1")
    };
    let both = |digest: &str| Image { url: format!("oci://r.example/os:1@{digest}"), ..checked(&hex, "") };
    let raw = Image { format: Some("raw".into()), ..image("https://x/os.raw") };
    let live = Image { format: Some("live-iso".into()), ..image("https://x/os.iso") };
    let unformatted = Image { format: Some(String::new()), ..image("oci://r.example/os:1") };
    let not_digest = "is not the SHA-256 digest";
    for (image, want) in [
        (image("oci://r.example/os:1"), "r.example/os:1"),
        (image("OCI://r.example/os@sha256:0"), "r.example/os@sha256:0"),
        (unformatted, "r.example/os:1"),
        (checked("", "sha256"), "r.example/os:1"),
        (checked(&hex, ""), PINNED),
        (checked(&hex, "sha256"), PINNED),
        (checked(&format!("sha256:{hex}"), "auto"), PINNED),
        (both(&format!("sha256:{}", hex.to_lowercase())), PINNED),
        (both("sha256:0"), "is not the digest that"),
        (both("sha512:0"), "is not the digest that"),
        (checked(&hex, "sha512"), not_digest),
        (checked(&hex[1..], "sha256"), not_digest),
        (checked("https://x/os.sha256", ""), not_digest),
        (image("https://x/os.raw"), "only oci://"),
        (image("oci"), "only oci://"),
        (image("oci://"), "correct spec.image.url"),
        (raw, "whole-disk images are not supported"),
        (live, "live-iso"),
    ] {
        match resolve_image(&image, IMAGE_URL, "do otherwise") {
            Ok(found) => assert_eq!(found.as_str(), want),
            Err(blocker) => {
                assert!(blocker.problem.text().contains(want), "{want}: {}", blocker.problem.text());
            }
        }
    }
}

#[test]
fn the_annotation_replaces_the_image_of_the_spec() {
    let mut host = host();
    host.annotations_mut().insert(names::OS_IMAGE.into(), "oci://registry.example/os:v2".into());
    assert_eq!(image::resolve_wanted(&host), None, "the spec says when it is to run");
    let whole_disk = Image { format: Some("raw".into()), ..image_of("https://x/os.raw") };
    host.spec.image = Some(whole_disk.clone());
    assert_eq!(record_image(&host).as_deref(), Some("oci://registry.example/os:v2"));
    let shown = image::wanted_image(&host).unwrap();
    assert_eq!(shown, image_of("oci://registry.example/os:v2"));
    host.annotations_mut().insert(names::OS_IMAGE.into(), "https://x/os.raw".into());
    let refused = image::resolve_wanted(&host).unwrap().unwrap_err().problem.text();
    assert!(refused.starts_with("the annotation baremetal.cluster.io/os-image: only oci://"), "{refused}");
    host.annotations_mut().remove(names::OS_IMAGE);
    let refused = image::resolve_wanted(&host).unwrap().unwrap_err().problem.text();
    assert!(refused.contains("annotation baremetal.cluster.io/os-image of the BareMetalHost"), "{refused}");
}

fn image_of(url: &str) -> Image {
    Image { url: url.into(), ..Image::default() }
}

#[test]
fn the_demand_follows_image_and_deletion() {
    const DIGEST: &str = "5555555555555555555555555555555555555555555555555555555555555555";
    let v1 = || Some(image_of("oci://registry.example/os:v1"));
    let checked = Some(Image { checksum: Some(DIGEST.into()), ..v1().unwrap() });
    let pinned = format!("oci://registry.example/os:v1@sha256:{DIGEST}");
    let deleted = Some(Time(Timestamp::UNIX_EPOCH));
    let unreadable = Some(image_of("https://x/os.raw"));
    for (what, image, recorded, annotated, deleted, want) in [
        ("no image", None, "", "", None, false),
        ("no image, annotated", None, "", "oci://registry.example/os:v1", None, false),
        ("new", v1(), "", "", None, true),
        ("the same image", v1(), "oci://registry.example/os:v1", "", None, true),
        ("the scheme otherwise", v1(), "OCI://registry.example/os:v1", "", None, true),
        ("the same checksum", checked.clone(), &pinned, "", None, true),
        ("a checksum was added", checked.clone(), "oci://registry.example/os:v1", "", None, true),
        ("a checksum was removed", v1(), &pinned, "", None, true),
        ("another checksum", checked, "oci://registry.example/os:v1@sha256:00", "", None, true),
        ("the URL names a digest", Some(image_of(&pinned)), "oci://registry.example/os:v1", "", None, false),
        ("the URL names another tag", v1(), &pinned.replace(":v1", ":v0"), "", None, false),
        ("the former node goes first", v1(), "oci://registry.example/os:v0", "", None, false),
        ("kept by the annotation", v1(), "oci://r/os:v0", "oci://r/os:v0", None, true),
        ("the annotation changed", v1(), "oci://registry.example/os:v1", "oci://r/os:v2", None, false),
        ("it cannot be written", unreadable, "oci://registry.example/os:v1", "", None, true),
        ("deleted", v1(), "", "", deleted, false),
    ] {
        let mut host = host();
        host.spec.image = image;
        host.metadata.deletion_timestamp = deleted;
        for (key, value) in [(names::PROVISIONED_IMAGE, recorded), (names::OS_IMAGE, annotated)] {
            if !value.is_empty() {
                host.annotations_mut().insert(key.into(), value.into());
            }
        }
        let demand = read_demand(&host, Some(&owned("bmh-1")), None);
        assert_eq!(matches!(demand.want, Want::Node(_)), want, "{what}");
    }
}

#[test]
fn provider_id_names_machine_using_host() {
    let mut host = host();
    assert_eq!(provider_id(&host), "metal3://uid-of-bmh-1");
    host.spec.consumer_ref =
        Some(Consumer { kind: "Metal3Machine".into(), name: "m-1".into(), ..Consumer::default() });
    assert_eq!(provider_id(&host), "metal3://default/bmh-1/m-1");
    let demand = read_demand(&provisioning(), Some(&owned("bmh-1")), None);
    let Want::Node(node) = demand.want else { panic!("no node") };
    let names = node.names.unwrap();
    assert_eq!((names.uuid.as_str(), names.hostname.as_str()), ("uid-of-bmh-1", "bmh-1"));
}

#[test]
fn a_paused_host_is_left_alone() {
    for key in names::HOST_PAUSES {
        let mut host = provisioning();
        host.annotations_mut().insert(key.into(), String::new());
        let hold = read_demand(&host, Some(&owned("bmh-1")), None).hold.unwrap();
        assert!(hold.problem.text().contains(key), "{}", hold.problem.text());
    }
}

#[test]
fn the_state_is_that_of_the_baremetal_operator() {
    let state = |phase| State { phase: Some(phase), ..State::default() };
    let mut uninstalled = owned("bmh-1");
    samples::host_status(&mut uninstalled).carried = None;
    let taken = owned("bmh-2");
    let mut deleted = host();
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let failed = |phase| {
        let blocker = Blocker::needs_operator(
            Type::PlanApplied,
            Problem::of_cause(Reason::PlanFailed, "it failed: repair it"),
        );
        State { phase, blocker: Some(blocker), ..State::default() }
    };
    for (name, host, inventory, phase, want) in [
        ("no inventory", &host(), None, None, "registering"),
        ("not its own", &host(), Some(&taken), None, "registering"),
        ("not installed", &host(), Some(&uninstalled), None, "inspecting"),
        ("free", &host(), Some(&owned("bmh-1")), None, "available"),
        ("claimed", &provisioning(), Some(&owned("bmh-1")), Some(Phase::Allocated), "provisioning"),
        ("written", &provisioning(), Some(&owned("bmh-1")), Some(Phase::Reprovisioning), "provisioning"),
        ("failed", &provisioning(), Some(&owned("bmh-1")), Some(Phase::Failed), "provisioning"),
        ("runs", &provisioning(), Some(&owned("bmh-1")), Some(Phase::Running), "provisioned"),
        ("cleaned", &host(), Some(&owned("bmh-1")), Some(Phase::Preparing), "deprovisioning"),
        ("clean failed", &host(), Some(&owned("bmh-1")), Some(Phase::Failed), "deprovisioning"),
        ("deleted", &deleted, Some(&owned("bmh-1")), None, "deleting"),
    ] {
        let state = phase.map(state);
        let status = project_status(host, state.as_ref(), &[], inventory, Timestamp::UNIX_EPOCH);
        assert_eq!(status.provisioning.state, want, "{name}");
        assert_eq!(status.operational_status, "OK", "{name}: {}", status.error_message);
        assert_eq!(status.error_type, None, "{name}");
        let mut host = host.clone();
        host.status = Some(status);
        let error = match want {
            "registering" => "registration error",
            "inspecting" => "inspection error",
            _ => "provisioning error",
        };
        let failed = failed(state.and_then(|state| state.phase));
        let status = project_status(&host, Some(&failed), &[], inventory, Timestamp::UNIX_EPOCH);
        assert_eq!(
            (status.provisioning.state.as_str(), status.error_type.as_deref()),
            (want, Some(error)),
            "{name}"
        );
        assert_eq!((status.operational_status.as_str(), status.error_count), ("error", 1), "{name}");
    }
}

#[test]
fn host_without_a_connection_is_not_off() {
    let powered_on = |host: &BareMetalHost, inventory: Option<&MachineInventory>| {
        project_status(host, None, &[], inventory, Timestamp::UNIX_EPOCH).powered_on
    };
    let mut host = host();
    assert!(!powered_on(&host, None), "it has not registered");
    let mut away = owned("bmh-1");
    away.status.as_mut().unwrap().host.as_mut().unwrap().session = None;
    for inventory in [owned("bmh-1"), away] {
        assert!(powered_on(&host, Some(&inventory)), "its node may run");
    }
    host.status = Some(BareMetalHostStatus { powered_on: true, ..BareMetalHostStatus::default() });
    assert!(powered_on(&host, None), "its inventory is gone, and its node may run");
}

#[test]
fn a_host_without_its_annotation_keeps_its_state() {
    let mut host = provisioning();
    let show = |host: &BareMetalHost, inventory| {
        project_status(host, None, &[], inventory, Timestamp::UNIX_EPOCH).provisioning.state
    };
    host.status = Some(BareMetalHostStatus::default());
    host.status.as_mut().unwrap().provisioning.state = "provisioned".into();
    assert_eq!(show(&host, None), "registering", "its inventory is gone");
    host.metadata.annotations = None;
    assert_eq!(show(&host, None), "provisioned");
}

#[test]
fn host_is_kept_no_longer_than_cluster() {
    let mut kept = host();
    let consumer = json!({ "kind": "Cluster", "name": "c1", "namespace": "default" });
    kept.spec.consumer_ref = serde_json::from_value(consumer).unwrap();
    kept.labels_mut().insert(names::NODE_REUSE.into(), "md-workers".into());
    let mut foreign = kept.clone();
    foreign.metadata.annotations = None;
    let mut unlabelled = kept.clone();
    unlabelled.metadata.labels = None;
    let cluster = samples::cluster();
    let mut deleted = samples::cluster();
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let until = |seconds| {
        let mut kept = kept.clone();
        let end = Timestamp::from_second(seconds).unwrap();
        kept.annotations_mut().insert(names::KEPT_UNTIL.into(), end.to_string());
        (kept, end)
    };
    let ((late, end), (over, _)) = (until(1), until(0));
    for (what, host, cluster, want) in [
        ("its Cluster is there", &kept, Some(&cluster), Some(Ok(None))),
        ("a successor may come", &late, Some(&cluster), Some(Ok(Some(end)))),
        (
            "no successor came",
            &over,
            Some(&cluster),
            Some(Err("no successor of its machine took it in time")),
        ),
        ("its Cluster is in deletion", &late, Some(&deleted), Some(Err("Cluster c1 is deleted"))),
        ("its Cluster is gone", &kept, None, Some(Err("Cluster c1 is deleted"))),
        ("of another manager", &foreign, None, None),
        ("not kept", &unlabelled, None, None),
        ("free", &host(), None, None),
    ] {
        match (decide_kept(host, cluster, Timestamp::UNIX_EPOCH), want) {
            (Some(KeptStep::Free { change, cause }), Some(Err(want))) => {
                assert!(cause.starts_with(want), "{what}: {cause}");
                assert_eq!(change["spec"], json!({ "consumerRef": null }), "{what}");
            }
            (Some(KeptStep::Keep(end)), Some(Ok(want))) => assert_eq!(end, want, "{what}"),
            (step, want) => assert!(step.is_none() && want.is_none(), "{what}: {step:?}"),
        }
    }
}

#[test]
fn leftover_node_belongs_to_metal3_machine() {
    let mut host = provisioning();
    let mut cluster = samples::cluster();
    let leftover = |host: &BareMetalHost, cluster: &Cluster| {
        read_demand(host, Some(&owned("bmh-1")), Some(cluster)).left_node.map(|left| left.cluster)
    };
    assert_eq!(leftover(&host, &cluster), None, "no machine uses the host");
    host.spec.consumer_ref =
        Some(Consumer { kind: "Metal3Machine".into(), name: "m-1".into(), ..Consumer::default() });
    assert_eq!(leftover(&host, &cluster).as_deref(), Some("c1"));
    cluster.spec.control_plane_ref = serde_json::from_value(json!({ "kind": "K", "name": "c1" })).unwrap();
    assert_eq!(leftover(&host, &cluster), None, "no Node has joined");
    let initialized = json!({ "initialization": { "controlPlaneInitialized": true } });
    cluster.status = serde_json::from_value(initialized).unwrap();
    assert_eq!(leftover(&host, &cluster).as_deref(), Some("c1"), "Cluster API cannot find it yet");
    let demand = read_demand(&host, Some(&owned("bmh-1")), Some(&cluster));
    let left = demand.left_node.unwrap();
    assert_eq!(left.provider_id.unwrap().as_str(), "metal3://default/bmh-1/m-1");
    assert_eq!(left.uuid, host.uid(), "its Node has the label of the BareMetalHost");
    host.annotations_mut().insert(names::PROVIDER_ID.into(), "metal3://default/bmh-1/m-1".into());
    assert_eq!(leftover(&host, &cluster), None, "Cluster API deletes it");
}

#[test]
fn copy_of_status_is_stale_after_pause() {
    let mut host = host();
    assert_eq!(forget_saved_status(&host, || false), None);
    host.annotations_mut().insert(names::SAVED_STATUS.into(), "{}".into());
    assert_eq!(forget_saved_status(&host, || true), None);
    let change = json!({ "metadata": { "annotations": { names::SAVED_STATUS: null } } });
    assert_eq!(forget_saved_status(&host, || false), Some(change));
}
