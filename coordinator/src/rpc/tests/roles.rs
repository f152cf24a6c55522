//! Who may call what: every caller, times every call.

use std::time::Duration;

use coordinator_api::names::annotation;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use serde_json::json;
use strum::VariantArray as _;

use super::world::{Host, INVENTORIES, LIVE_BOOT, Link, World, refusal};
use super::{attached, installed, session};
use crate::ca::{Authority, Role};
use crate::rpc::identity::Call;

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
enum Caller {
    Anonymous,
    Live,
    Installed,
    Other,
    Expired,
    /// Its inventory was deleted.
    Deleted,
    Quarantined,
    /// It waits for an operator, and has a certificate of its own making.
    Pending,
    /// An operator shut it out.
    Revoked,
    /// The host has used a later key.
    FormerKey,
    /// Its certificate is signed by another authority.
    WrongAuthority,
    /// A relay between host and coordinator, which passes the proof of the host on.
    Relay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Accepted,
    Refused(Refusal),
    Expired,
    NoConnection,
}

/// What each call answers; a call without a row does not compile.
fn expect_answer(call: Call, caller: Caller) -> Answer {
    use Answer::{Accepted, Refused};
    let by_certificate = |live, installed| match caller {
        Caller::Anonymous | Caller::Relay => Refused(Refusal::RoleNotAllowed),
        Caller::Live => live,
        Caller::Installed | Caller::Other => installed,
        Caller::Expired => Answer::Expired,
        Caller::Deleted => Refused(Refusal::InventoryGone),
        Caller::Quarantined => Refused(Refusal::Quarantined),
        Caller::Pending => Refused(Refusal::ApprovalPending),
        Caller::Revoked => Refused(Refusal::Revoked),
        Caller::FormerKey => Refused(Refusal::KeyReplaced),
        Caller::WrongAuthority => Answer::NoConnection,
    };
    match call {
        Call::Begin if caller == Caller::WrongAuthority => Answer::NoConnection,
        Call::Begin => Accepted,
        Call::Complete => match caller {
            Caller::WrongAuthority => Answer::NoConnection,
            Caller::Relay => Refused(Refusal::BadProof),
            Caller::Quarantined => Refused(Refusal::Quarantined),
            Caller::Pending => Refused(Refusal::ApprovalPending),
            Caller::Revoked => Refused(Refusal::Revoked),
            Caller::FormerKey => Refused(Refusal::KeyReplaced),
            Caller::Anonymous
            | Caller::Live
            | Caller::Installed
            | Caller::Other
            | Caller::Expired
            | Caller::Deleted => Accepted,
        },
        // What is said on a stream needs one.
        Call::Attach | Call::Acknowledge | Call::Message | Call::ReportProgress | Call::ReadAgent => {
            by_certificate(Refused(Refusal::RoleNotAllowed), Accepted)
        }
        // No plan is announced.
        Call::ReportStep => by_certificate(Refused(Refusal::RoleNotAllowed), Refused(Refusal::StalePlan)),
        Call::ReportInstall | Call::ReportObserved | Call::RenewCertificate => {
            by_certificate(Accepted, Accepted)
        }
    }
}

/// A caller, and the certificate that it shows.
struct Prepared {
    host: Host,
    chain: Option<String>,
}

async fn annotated(world: &World, key: &str, value: &str, chain: String) -> Option<String> {
    world.annotate("m-a", key, value).await;
    Some(chain)
}

async fn prepare(world: &World, caller: Caller) -> Prepared {
    let (host, chain) = installed(world).await;
    let chain = match caller {
        Caller::Anonymous | Caller::Relay => None,
        Caller::Live => Some(host.certificate(&world.authority, Role::Live)),
        Caller::Installed => Some(chain),
        Caller::Other => {
            let other = Host::new("b");
            world.connect(None).await.register(&other, "token").await.unwrap();
            world.settled("m-b").await;
            let chain = other.certificate(&world.authority, Role::Installed);
            return Prepared { host: other, chain: Some(chain) };
        }
        Caller::Expired => {
            let later = jiff::Timestamp::now() + Duration::from_hours(25);
            *world.frozen.lock().unwrap() = Some(later);
            Some(chain)
        }
        Caller::Deleted => {
            world.fake.take_out(INVENTORIES, "fleet", "m-a");
            world.until(|| world.context().cached_inventory(&host.host_key()).is_none()).await;
            Some(chain)
        }
        Caller::Quarantined => annotated(world, "baremetal.cluster.io/quarantined", "b", chain).await,
        Caller::Pending => annotated(world, annotation::APPROVAL, "Pending", chain).await,
        Caller::Revoked => annotated(world, annotation::APPROVAL, "Revoked", chain).await,
        Caller::FormerKey => {
            world.fake.edit((INVENTORIES, "fleet", "m-a"), |inventory| {
                let later = jiff::Timestamp::now() + Duration::from_hours(1);
                let host = &mut inventory["status"]["host"];
                host["certifiedKey"] = json!({ "hash": "00", "since": later });
                host["install"]["state"] = json!("Installed");
            });
            world.settled("m-a").await;
            Some(chain)
        }
        Caller::WrongAuthority => {
            let other = Authority::generate(jiff::Timestamp::now()).unwrap();
            Some(host.certificate(&other, Role::Installed))
        }
    };
    Prepared { host, chain }
}

async fn call_once(
    world: &World,
    caller: Caller,
    call: Call,
    Prepared { host, chain }: &Prepared,
) -> Result<(), tonic::Status> {
    let shown = chain.as_deref().map(|chain| (host, chain));
    // TLS 1.3 reports a refused certificate after the client's handshake.
    let mut link = match world.try_connect(&world.authority, 0, shown).await {
        Ok(link) => link,
        Err(error) => return Err(tonic::Status::unavailable(error.to_string())),
    };
    match call {
        Call::Begin => link.begin(host, "token").await.map(drop),
        Call::Complete => {
            let mut signer = world.connect(None).await;
            let nonce = link.begin(host, "token").await?;
            if caller == Caller::Relay {
                signer.begin(host, "token").await?;
                return link.complete(host.complete(&nonce, &signer.exporter)).await.map(drop);
            }
            link.complete(host.complete(&nonce, &link.exporter)).await.map(drop)
        }
        Call::Attach | Call::Acknowledge | Call::Message | Call::ReportProgress => {
            attach_once(world, host, &mut link).await
        }
        Call::ReportStep => link.report_step(wire::StepReport::default()).await,
        Call::ReportInstall => link.report_install(Host::started()).await.map(drop),
        Call::ReportObserved => link.report_observed(Host::network("192.0.2.7/24")).await,
        Call::RenewCertificate => link.renew(host, LIVE_BOOT).await.map(drop),
        Call::ReadAgent => {
            let part = link.read_agent().await?;
            assert_eq!(part, super::world::AGENT);
            Ok(())
        }
    }
}

/// A stream is accepted when its session is stored.
async fn attach_once(world: &World, host: &Host, link: &mut Link) -> Result<(), tonic::Status> {
    let mut stream = link.attach(Host::hello("boot-1")).await?;
    let is_stored = || {
        let inventory = world.inventory(&host.inventory_name()).unwrap_or_default();
        inventory["status"]["host"]["session"]["bootId"] == "boot-1"
    };
    tokio::select! {
        ended = stream.message() => ended.map(drop),
        () = world.until(is_stored) => Ok(()),
    }
}

fn classify(result: Result<(), tonic::Status>) -> Answer {
    match result {
        Ok(()) => Answer::Accepted,
        Err(status) => match (refusal(&status), status.code()) {
            (Some(refusal), _) => Answer::Refused(refusal),
            (None, tonic::Code::Unauthenticated) => Answer::Expired,
            (None, _) => Answer::NoConnection,
        },
    }
}

// Fault: a host without certificate, of another role, of another host, expired, deleted, quarantined, not approved,
// shut out, with a former key, with the certificate of another CA or with a relayed handshake makes every call.
// Shown: host console: `RoleNotAllowed`, `InventoryGone`, `Quarantined`, `ApprovalPending`, `Revoked`, `KeyReplaced` or
// `BadProof`; a host reports of itself alone.
#[tokio::test]
async fn every_caller_may_call_what_its_row_says() {
    for caller in Caller::VARIANTS.iter().copied() {
        let world = World::start().await;
        let prepared = prepare(&world, caller).await;
        let before = world.inventory("m-a");
        // A registration recreates what was deleted: it comes last.
        for call in Call::VARIANTS.iter().rev().copied() {
            let got = classify(call_once(&world, caller, call, &prepared).await);
            assert_eq!(got, expect_answer(call, caller), "{caller:?} calls {call:?}");
        }
        if caller == Caller::Other {
            assert_eq!(world.inventory("m-a"), before, "a host reaches no inventory but its own");
            assert!(session(&world).is_null());
        }
    }
}

// Fault: a live system asks for plans.
// Shown: host console: `RoleNotAllowed`.
#[tokio::test]
async fn live_system_may_not_attach() {
    let world = World::start().await;
    let host = Host::new("a");
    let done = world.connect(None).await.register(&host, "token").await.unwrap();
    let mut anonymous = world.connect(None).await;
    let refused = anonymous.report_install(Host::started()).await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::RoleNotAllowed));
    let mut live = world.connect(Some((&host, &done.certificate_chain))).await;
    let refused = live.attach(Host::hello("boot-1")).await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::RoleNotAllowed));
    let refused = live.report_step(wire::StepReport::default()).await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::RoleNotAllowed));
}

/// The word of the live system alone never makes a host an installed one.
// Fault: a live system claims to be installed.
// Shown: host console: `RoleNotAllowed`, because it gets no certificate for plans.
#[tokio::test]
async fn installed_role_needs_the_install_and_another_boot() {
    use wire::install_report::Outcome;
    let world = World::start().await;
    let host = Host::new("a");
    let done = world.connect(None).await.register(&host, "token").await.unwrap();
    let mut live = world.connect(Some((&host, &done.certificate_chain))).await;
    let live_boot = Outcome::LiveBootAfterInstall(wire::LiveBootAfterInstall { device: "/dev/sda".into() });
    let live_boot = wire::InstallReport { outcome: Some(live_boot) };
    for (name, report, boot_id, want) in [
        ("nothing is reported", None, "boot-1", Role::Live),
        ("the install is running", Some(Host::started()), "boot-1", Role::Live),
        ("a live system that found a disk", Some(live_boot), "boot-1", Role::Live),
        ("the live system itself", Some(Host::installed()), LIVE_BOOT, Role::Live),
        ("no boot id", None, "", Role::Live),
        ("the installed system", None, "boot-1", Role::Installed),
    ] {
        if let Some(report) = report {
            live.report_install(report).await.unwrap();
        }
        world.settled("m-a").await;
        let chain = live.renew(&host, boot_id).await.unwrap();
        assert_eq!(Host::peer(&chain).role, want, "{name}");
        let answer =
            world.connect(Some((&host, &chain))).await.report_step(wire::StepReport::default()).await;
        let of_role = if want == Role::Live { Refusal::RoleNotAllowed } else { Refusal::StalePlan };
        assert_eq!(refusal(&answer.unwrap_err()), Some(of_role), "{name}");
    }
    // The key that replaces the one shown: nothing is refused before it was used.
    let next = Host::peer(&live.renew(&Host::new("b"), "boot-1").await.unwrap());
    assert_eq!((next.key, next.role), (host.host_key(), Role::Installed), "for another key");
    let long = live.renew(&host, &"x".repeat(65)).await.unwrap_err();
    assert_eq!(refusal(&long), Some(Refusal::BadRequest), "no kernel's boot id");
}

#[tokio::test]
async fn renewals_need_the_quote_of_their_tpm() {
    let world = World::start().await;
    let (host, _chain, mut link, _stream) = attached(&world).await;
    for (proves_renewals, want) in [(false, None), (true, Some(Refusal::BadProof))] {
        world.fake.edit((INVENTORIES, "fleet", "m-a"), |inventory| {
            let live = json!({ "attestationKey": "00", "resetCount": 1, "provesRenewals": proves_renewals });
            inventory["status"]["host"]["liveTPM"] = live;
        });
        world.settled("m-a").await;
        for key in [&host, &Host::new("b")] {
            let refused = link.renew(key, "boot-1").await.err();
            assert_eq!(refused.as_ref().and_then(refusal), want, "provesRenewals: {proves_renewals}");
        }
    }
    world.fake.edit((INVENTORIES, "fleet", "m-a"), |inventory| {
        let host = inventory["status"]["host"].take();
        let known = json!({ "certifiedKey": host["certifiedKey"], "liveTPM": host["liveTPM"] });
        inventory["metadata"]["annotations"][annotation::HOST_IDENTITY] = json!(known.to_string());
    });
    world.settled("m-a").await;
    let refused = link.renew(&host, "boot-1").await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::BadProof), "the status was lost");
}

/// An inventory whose status was lost in a restore, or is older than the field.
#[tokio::test]
async fn installed_host_without_recorded_live_boot_stays_installed() {
    let world = World::start().await;
    let (host, _chain, _link, _stream) = attached(&world).await;
    let live = host.certificate(&world.authority, Role::Live);
    for (name, boot_id, is_lost, want) in [
        ("it had attached, and does not state its boot", "", false, Role::Installed),
        ("status lost, as reported now", "boot-1", true, Role::Installed),
        ("status lost, boot unknown", "", true, Role::Live),
    ] {
        world.fake.edit((INVENTORIES, "fleet", "m-a"), |inventory| {
            let host = &mut inventory["status"]["host"];
            host["liveBootID"] = json!(null);
            if is_lost {
                host["carried"] = json!(null);
                host["install"] = json!(null);
            }
        });
        world.settled("m-a").await;
        let mut link = world.connect(Some((&host, &live))).await;
        if is_lost {
            link.report_install(Host::installed()).await.unwrap();
            world.settled("m-a").await;
        }
        let chain = link.renew(&host, boot_id).await.unwrap();
        assert_eq!(Host::peer(&chain).role, want, "{name}");
    }
}

#[tokio::test]
async fn live_boot_of_an_installed_host_earns_nothing() {
    let world = World::start().await;
    let (host, _chain, _link, _stream) = attached(&world).await;
    let again = world.connect(None).await.register(&host, "token").await.unwrap();
    assert!(matches!(again.next, Some(wire::complete_response::Next::BootDisk(_))));
    world.settled("m-a").await;
    let mut live = world.connect(Some((&host, &again.certificate_chain))).await;
    assert_eq!(Host::peer(&live.renew(&host, LIVE_BOOT).await.unwrap()).role, Role::Live);
    assert_eq!(Host::peer(&live.renew(&host, "boot-2").await.unwrap()).role, Role::Installed);
}
