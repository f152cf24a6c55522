//! The events of which random sequences are made.

use fake_apiserver::{Outage, Refusal};
use proptest::prelude::*;

pub(super) const HOSTS: [&str; 2] = ["host-1", "host-2"];
/// So many exist at a time.
pub(super) const MACHINES: usize = 3;

#[derive(Clone, Debug)]
pub(super) enum Event {
    Apply { machine: usize },
    Delete { machine: usize },
    RestartCoordinator,
    Second { runs: bool },
    Host { host: usize, what: HostEvent },
    Pool { both: bool },
    Paused { is: bool },
    DeletePool,
    DeleteBootstrap { machine: usize },
    DeleteRegistration,
    Catalog { has_v2: bool },
    Server(ServerEvent),
    Pass { seconds: u64 },
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
}

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
    ]
}

fn server_event() -> impl Strategy<Value = ServerEvent> {
    let replica = prop_oneof![Just("coordinator"), Just("second")];
    prop_oneof![
        2 => (0..6_u64).prop_map(|seconds| ServerEvent::Lag { seconds }),
        1 => (replica, 0..6_u64).prop_map(|(replica, seconds)| ServerEvent::LagOf { replica, seconds }),
        2 => Just(ServerEvent::LoseResponse),
        2 => (refusal(), 1..6_usize).prop_map(|(refusal, times)| ServerEvent::Refuse { refusal, times }),
        1 => (1..6_usize).prop_map(|times| ServerEvent::SlowReads { times }),
        1 => prop_oneof![Just(Outage::Refused), Just(Outage::Hanging)]
            .prop_map(|kind| ServerEvent::Outage { kind }),
        1 => Just(ServerEvent::WatchesExpire),
    ]
}

pub(super) fn event() -> impl Strategy<Value = Event> {
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
        6 => prop_oneof![0..3_u64, 3..40_u64].prop_map(|seconds| Event::Pass { seconds }),
    ]
}
