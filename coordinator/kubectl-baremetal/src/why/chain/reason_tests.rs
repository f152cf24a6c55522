//! Reasons that ask for an action: `why` ends at their object, and tells cause and action.

#![allow(clippy::enum_glob_use, reason = "the tables name many variants")]

use coordinator_api::conditions::Type;
use coordinator_api::seed_image::{SeedImage, SeedImageSpec};
use coordinator_core::seed_image::{Progress, seed_image_status};
use serde_json::{Value, json};

use super::*;
use crate::samples::{
    attached, clean_plan, condition, fleet, held_by, id, machine_with, now, object, ready, set_plan,
};

/// The objects beside the one that is explained: a free host, and its pool.
fn others() -> Vec<Object> {
    let spec = json!({ "clusterName": "other", "machineInventories": [{ "name": "h" }] });
    let pool = json!({ "spec": spec, "status": { "conditions": [ready()] } });
    vec![object(Kind::MachineInventory, "h", attached()), object(Kind::MachineInventoryPool, "workers", pool)]
}

fn explain(kind: Kind, body: Value) -> Chain {
    let mut objects = others();
    objects.push(object(kind, "asked", body));
    let fleet = fleet(objects);
    follow_causes(&fleet, fleet.get(&id(kind, "asked")).unwrap(), now())
}

/// The chain is the object alone, with the entry of the reason.
fn check_entry(kind: Kind, reason: Reason, chain: &Chain) {
    let entry = reason.explanation();
    let [link] = &chain.links[..] else { panic!("{reason:?} of {kind:?}: {chain:#?}") };
    assert_eq!(link.finding.reason, reason.as_str(), "{kind:?}: {chain:#?}");
    assert_eq!(chain.attention(), entry.attention, "{reason:?} of {kind:?}: {chain:#?}");
    assert_eq!(chain.action, entry.action.replace("NAME", "asked"), "{reason:?} of {kind:?}");
    if entry.attention == Attention::Act {
        assert_eq!(chain.cause, Some(entry.cause), "{reason:?} of {kind:?}");
        assert_eq!(link.finding.message, "told", "{reason:?} of {kind:?}");
    }
}

#[test]
fn bases_of_seed_images_are_explained() {
    use Reason::*;
    for reason in [
        BaseImageInvalid,
        BaseImageHostUnknown,
        BaseImageUnreachable,
        BaseImageUntrusted,
        BaseImageUnauthorized,
        BaseImageSecretInvalid,
        BaseImageNotFound,
        BaseImageDigestMismatch,
        BaseImageWithoutISO,
        BaseImageWithSeveralISOs,
        BaseImagePlatformMismatch,
        BaseImageTooLarge,
        BaseImageTimedOut,
        BaseImageFetcherUnavailable,
    ] {
        let chain = explain_image(&Progress::Failed(reason, "told".to_owned()));
        check_entry(Kind::SeedImage, reason, &chain);
    }
    check_entry(Kind::SeedImage, SeedImageBuildFailure, &explain_image(&Progress::Refused("told")));
}

#[test]
fn expired_seed_image_has_its_own_action() {
    let chain = explain_image(&Progress::Expired);
    let last = &chain.last().unwrap().finding;
    assert_eq!(last.reason, Reason::SeedImageBuildDeadline.as_str());
    assert_eq!(chain.action, Reason::SeedImageBuildDeadline.explanation().action);
}

/// The chain of a `SeedImage` whose status shows this progress.
fn explain_image(progress: &Progress) -> Chain {
    let mut image = SeedImage::new("asked", SeedImageSpec::default());
    image.status = Some(seed_image_status(&image, progress, now()));
    explain(Kind::SeedImage, json!({ "status": image.status }))
}

#[test]
fn conditions_of_machines_are_explained() {
    use Reason::*;
    check_conditions(&[
        (Kind::BaremetalMachine, Type::InventoryAllocated, &[PoolOfOtherCluster, InventoryMissing]),
        (Kind::BaremetalMachine, Type::BootstrapReady, &[NetworkInvalid]),
        (Kind::BaremetalMachine, Type::BootstrapFilesKept, &[BootstrapFilesNotKept]),
        (Kind::BaremetalMachine, Type::ImageResolved, &[VersionMissing]),
        (
            Kind::BaremetalMachine,
            Type::PlanApplied,
            &[HostCarriesNoNode, CleanupMissing, InputOutputFailed, PathsNotKept, PlanFailed],
        ),
        (Kind::BaremetalMachine, Type::NodeLinked, &[NodeProviderIDUnsupported, KubeconfigInvalid]),
        (Kind::Metal3Machine, Type::AssociateBareMetalHost, &[SelectorInvalid]),
        (Kind::Metal3Machine, Type::LabelsSynced, &[LabelPrefixInvalid]),
    ]);
}

#[test]
fn conditions_of_what_machines_need_are_explained() {
    use Reason::*;
    check_conditions(&[
        (Kind::MachineInventory, Type::CoordinatorKnown, &[SettingsRefused]),
        (Kind::MachineInventory, Type::StateWritable, &[StateUnwritable]),
        (Kind::MachineInventory, Type::JournalReadable, &[JournalLost]),
        (Kind::MachineInventory, Type::LabelsStale, &[LabelsKept]),
        (Kind::MachineInventoryPool, Type::MembersValid, &[HostnameShared, MemberNotReady, SelectorInvalid]),
        (Kind::MachineInventoryPool, Type::AdmissionOpen, &[TokenAdmitsMembers]),
        (Kind::MachineRegistration, Type::FieldsIgnored, &[FieldWithoutEffect]),
        (Kind::SeedImage, Type::BaseImageInCatalog, &[BaseImageUnlisted]),
        (Kind::BaremetalCluster, Type::EndpointReady, &[EndpointMissing]),
        (Kind::BaremetalCluster, Type::LoadBalancerReady, &[HolderMissing, MemberFailed]),
        (Kind::BaremetalCluster, Type::NetworkDeviceReady, &[NetworkDeviceIsSlave]),
        (Kind::BaremetalCluster, Type::NetworkConfigValid, &[AddressMissing, AddressTaken, RouterIdShared]),
        (Kind::BareMetalHost, Type::InventoryAllocated, &[InventoryTaken, InventoryUnnamed]),
        (Kind::IPPool, Type::Ready, &[PoolInvalid]),
        (Kind::IPAddressClaim, Type::Ready, &[AllocationFailed]),
        (Kind::Metal3Remediation, Type::Ready, &[RemediationHostMissing]),
    ]);
}

/// Of objects that have a reason in this condition, and are otherwise as they should be.
fn check_conditions(rows: &[(Kind, Type, &[Reason])]) {
    for (kind, type_, reasons) in rows {
        let status = if type_.is_bad_when_true() { "True" } else { "False" };
        for reason in *reasons {
            let problem = condition(type_.as_str(), status, reason.as_str(), "told");
            let ready = (*type_ != Type::Ready).then(ready);
            let conditions: Vec<_> = ready.into_iter().chain([problem]).collect();
            let body = match kind {
                Kind::BaremetalMachine => machine_with(&conditions),
                _ => json!({ "status": { "conditions": conditions } }),
            };
            check_entry(*kind, *reason, &explain(*kind, body));
        }
    }
}

#[test]
fn failed_plans_are_explained_by_the_host() {
    for reason in [Reason::PlanFailed, Reason::CleanupMissing, Reason::InputOutputFailed] {
        let mut body = held_by("m");
        let (message, action) = ("step write-seed: told", "look at the disk");
        let failure =
            json!({ "state": "Failed", "reason": reason.as_str(), "message": message, "nextAction": action });
        set_plan(&mut body, &clean_plan(), &failure);
        let chain = explain(Kind::MachineInventory, body);
        let last = chain.last().unwrap();
        let found = (chain.attention(), last.finding.reason.as_str(), last.finding.told_cause());
        assert_eq!(found, (Attention::Act, reason.as_str(), "step write-seed: told".to_owned()));
        assert!(chain.action.starts_with("look at the disk, then "), "{reason:?}: {}", chain.action);
        assert_eq!(chain.cause, Some(reason.explanation().cause), "{reason:?}");
    }
}
