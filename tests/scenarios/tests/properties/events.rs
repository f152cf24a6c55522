//! The events of which random sequences are made.

use fake_apiserver::{Outage, Refusal};
use proptest::prelude::*;

pub(super) const HOSTS: [&str; 2] = ["host-1", "host-2"];
/// So many exist at a time.
pub(super) const MACHINES: usize = 3;
/// Claims of addresses that may exist at a time.
pub(super) const ADDRESSES: usize = 3;
/// Objects that an operator may edit.
pub(super) const OBJECTS: usize = HOSTS.len() * 2 + MACHINES + 3;

/// A sequence of events for machines of one family.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) family: Family,
    pub(super) events: Vec<Event>,
}

/// The API by which machines are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Baremetal,
    Metal3,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Apply {
        machine: usize,
    },
    Delete {
        machine: usize,
    },
    RestartCoordinator,
    Second {
        runs: bool,
    },
    Host {
        host: usize,
        what: HostEvent,
    },
    Pool {
        both: bool,
    },
    Paused {
        is: bool,
    },
    DeletePool,
    DeleteBootstrap {
        machine: usize,
    },
    DeleteRegistration,
    Catalog {
        has_v2: bool,
    },
    Server(ServerEvent),
    /// Claims of addresses exist beside machines of Metal3.
    Claim {
        address: usize,
    },
    Release {
        address: usize,
    },
    Edit {
        object: usize,
        edit: Edit,
    },
    Pass {
        seconds: u64,
    },
}

/// A change that an operator makes to an object of ours by mistake.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edit {
    LoseStatus,
    /// Of an object that is not in deletion.
    LoseFinalizers,
    LoseLabels,
    /// One of ours, which the operator puts back at the end.
    LoseAnnotation {
        number: usize,
    },
    ChangeAnnotation {
        number: usize,
    },
}

/// What fails on a host does so until it is mended.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostEvent {
    KillAgent,
    PowerCut,
    PowerOff { minutes: u64 },
    UpgradeFails,
    ImageSpoilt { version: u32 },
    CloudInitFails,
    CleanFails,
    PlanGarbled,
    Mended,
    Reboot,
    OperatorsPlan,
    Partition { seconds: u64 },
}

/// Of the API server.
#[derive(Clone, Copy, Debug)]
pub(super) enum ServerEvent {
    Lag { seconds: u64 },
    LagOf { replica: &'static str, seconds: u64 },
    LoseResponse,
    Refuse { refusal: Refusal, times: usize },
    SlowReads { times: usize },
    Outage { kind: Outage },
    WatchesExpire,
    LagOfKind { replica: &'static str, kind: &'static str, seconds: u64 },
    SilentWatch { replica: &'static str, kind: &'static str },
    Isolated { replica: &'static str, seconds: u64 },
}

/// Kinds whose watches may be late or silent.
const WATCHED: [&str; 8] = [
    "machineinventories",
    "baremetalmachines",
    "machineinventorypools",
    "metal3machines",
    "baremetalhosts",
    "machines",
    "secrets",
    "clusters",
];

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        Just(Refusal::Conflict),
        (1..20_u32).prop_map(|retry_after| Refusal::TooManyRequests { retry_after }),
        Just(Refusal::Forbidden),
        Just(Refusal::Internal),
        Just(Refusal::Unavailable),
        Just(Refusal::Timeout),
        Just(Refusal::Disconnected),
    ]
}

fn host_event() -> impl Strategy<Value = HostEvent> {
    prop_oneof![
        2 => Just(HostEvent::KillAgent),
        2 => Just(HostEvent::PowerCut),
        1 => (60..100_u64).prop_map(|minutes| HostEvent::PowerOff { minutes }),
        1 => Just(HostEvent::UpgradeFails),
        1 => (1..3_u32).prop_map(|version| HostEvent::ImageSpoilt { version }),
        1 => Just(HostEvent::CloudInitFails),
        1 => Just(HostEvent::CleanFails),
        1 => Just(HostEvent::PlanGarbled),
        2 => Just(HostEvent::Mended),
        1 => Just(HostEvent::Reboot),
        1 => Just(HostEvent::OperatorsPlan),
        1 => (5..400_u64).prop_map(|seconds| HostEvent::Partition { seconds }),
    ]
}

fn server_event() -> impl Strategy<Value = ServerEvent> {
    let replica = prop_oneof![Just("coordinator"), Just("second")];
    let kind = prop::sample::select(&WATCHED[..]);
    let late = (replica.clone(), kind.clone(), 1..40_u64);
    prop_oneof![
        2 => (0..6_u64).prop_map(|seconds| ServerEvent::Lag { seconds }),
        1 => (replica.clone(), 0..6_u64).prop_map(|(replica, seconds)| ServerEvent::LagOf { replica, seconds }),
        2 => Just(ServerEvent::LoseResponse),
        2 => (refusal(), 1..6_usize).prop_map(|(refusal, times)| ServerEvent::Refuse { refusal, times }),
        1 => (1..6_usize).prop_map(|times| ServerEvent::SlowReads { times }),
        1 => prop_oneof![Just(Outage::Refused), Just(Outage::Hanging)]
            .prop_map(|kind| ServerEvent::Outage { kind }),
        1 => Just(ServerEvent::WatchesExpire),
        2 => late.prop_map(|(replica, kind, seconds)| ServerEvent::LagOfKind { replica, kind, seconds }),
        1 => (replica.clone(), kind)
            .prop_map(|(replica, kind)| ServerEvent::SilentWatch { replica, kind }),
        1 => (replica, 5..60_u64).prop_map(|(replica, seconds)| ServerEvent::Isolated { replica, seconds }),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        1 => Just(Edit::LoseStatus),
        1 => Just(Edit::LoseFinalizers),
        1 => Just(Edit::LoseLabels),
        6 => (0..12_usize).prop_map(|number| Edit::LoseAnnotation { number }),
        6 => (0..12_usize).prop_map(|number| Edit::ChangeAnnotation { number }),
    ]
}

pub(super) fn story() -> impl Strategy<Value = Story> {
    let family = prop_oneof![3 => Just(Family::Baremetal), 2 => Just(Family::Metal3)];
    (family, prop::collection::vec(event(), 4..24)).prop_map(|(family, events)| Story { family, events })
}

fn event() -> impl Strategy<Value = Event> {
    let machine = 0..MACHINES;
    let host = 0..HOSTS.len();
    prop_oneof![
        5 => machine.clone().prop_map(|machine| Event::Apply { machine }),
        4 => machine.clone().prop_map(|machine| Event::Delete { machine }),
        2 => Just(Event::RestartCoordinator),
        3 => any::<bool>().prop_map(|runs| Event::Second { runs }),
        12 => (host, host_event()).prop_map(|(host, what)| Event::Host { host, what }),
        1 => any::<bool>().prop_map(|both| Event::Pool { both }),
        1 => any::<bool>().prop_map(|is| Event::Paused { is }),
        1 => Just(Event::DeletePool),
        1 => machine.prop_map(|machine| Event::DeleteBootstrap { machine }),
        1 => Just(Event::DeleteRegistration),
        1 => any::<bool>().prop_map(|has_v2| Event::Catalog { has_v2 }),
        10 => server_event().prop_map(Event::Server),
        2 => (0..ADDRESSES).prop_map(|address| Event::Claim { address }),
        1 => (0..ADDRESSES).prop_map(|address| Event::Release { address }),
        8 => (0..OBJECTS, edit()).prop_map(|(object, edit)| Event::Edit { object, edit }),
        6 => prop_oneof![0..3_u64, 3..40_u64].prop_map(|seconds| Event::Pass { seconds }),
    ]
}
