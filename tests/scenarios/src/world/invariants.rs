//! What every scenario ends with: a look at what must never have been.

use std::path::PathBuf;
use std::time::Duration;

use fake_apiserver::{Entry, Verb};
use memchr::memmem;

use super::World;
use crate::BOOTSTRAP_CANARY;

/// The longest time until the last change: a host that lost its replica attaches again, and one that
/// stays away becomes unreachable.
const SETTLING: Duration = Duration::from_mins(10);
/// Pause between two looks at objects that must not change.
const BETWEEN_LOOKS: Duration = Duration::from_secs(30);

impl World {
    /// Asserts that the invariants held at all times, that hosts did what their plans say and no
    /// more, that no token of a registration reached a host, and that no secret is in public text.
    pub async fn check_invariants(self) {
        self.check_invariants_except(&[]).await;
    }

    /// As [`World::check_invariants`], where the scenario itself causes violations: in their
    /// order, words of each.
    pub async fn check_invariants_except(mut self, caused: &[&str]) {
        self.is_checked = true;
        self.advance_time(Duration::from_secs(30)).await;
        self.finish_deletions();
        let mut violations: Vec<_> = self.violations().iter().map(ToString::to_string).collect();
        violations.extend(self.list_given_tokens());
        let is_caused = violations.len() == caused.len()
            && violations.iter().zip(caused).all(|(violation, words)| violation.contains(words));
        assert!(is_caused, "{violations:#?} instead of {caused:?}\n{}", self.dump());
        let deleted = self.list_deleted_inventories();
        assert!(deleted.is_empty(), "{deleted:#?}");
        let wrong: Vec<_> = self.hosts.keys().flat_map(|host| self.history.judge_host(host)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", self.dump());
        let public = self.public_text();
        let shown: Vec<_> = public.lines().filter(|line| line.contains(BOOTSTRAP_CANARY)).collect();
        assert!(shown.is_empty(), "a secret was shown: {shown:#?}");
    }

    /// Places of the tokens of registrations, each of which would let a host admit other ones (decision 73).
    fn list_given_tokens(&self) -> Vec<String> {
        let on_disk = self.hosts.keys().filter_map(|host| {
            let found = self.history.search_disk(host, |bytes| self.tokens.has_token(bytes));
            (!found.is_empty()).then(|| format!("{host} holds a token of a registration in {found:?}"))
        });
        self.tokens.list_sent().into_iter().chain(on_disk).collect()
    }

    /// Files of the host's disk that hold the text.
    pub fn find_on_disk(&self, host: &str, text: &str) -> Vec<PathBuf> {
        self.history.search_disk(host, |bytes| memmem::find(bytes, text.as_bytes()).is_some())
    }

    /// Asserts that nothing is written any more: four looks find every `resourceVersion` unchanged.
    pub async fn check_quiet(&self) {
        self.advance_time(SETTLING).await;
        self.wait_idle().await;
        let first = self.list_versions();
        for look in 2..=4 {
            self.advance_time(BETWEEN_LOOKS).await;
            let now = self.list_versions();
            let changed: Vec<_> = now.iter().filter(|object| !first.contains(object)).collect();
            assert!(changed.is_empty(), "look {look} finds changes: {changed:#?}\n{}", self.dump());
        }
    }

    /// Every object and its `resourceVersion`, without the Leases that each replica renews.
    fn list_versions(&self) -> Vec<String> {
        let objects = self.fake.look_everywhere().into_iter();
        let lasting = objects.filter(|((resource, ..), _)| !resource.starts_with("leases"));
        lasting
            .map(|((resource, _, name), object)| {
                format!("{resource}/{name} {}", object["metadata"]["resourceVersion"])
            })
            .collect()
    }

    /// Coordinators delete no inventory.
    fn list_deleted_inventories(&self) -> Vec<String> {
        let is_ours = |entry: &Entry| {
            entry.request.user != "operator"
                && entry.request.verb == Verb::Delete
                && entry.request.resource == "machineinventories"
        };
        let entries = self.fake.journal().entries().into_iter().filter(is_ours);
        entries.map(|entry| entry.request.to_string()).collect()
    }

    /// Faults may find no request, because a scenario draws them.
    pub fn allow_unmet_faults(&mut self) {
        self.allows_unmet_faults = true;
    }

    /// Planned disturbances that never happened.
    fn list_unmet(&self) -> Vec<String> {
        let stops = self.count_unmet_stops();
        let of_coordinator = (stops > 0).then(|| format!("{stops} stops of the coordinator"));
        let hosts = self.hosts.iter().filter(|(_, host)| host.has_pending_fault());
        let of_hosts = hosts.map(|(name, _)| format!("a fault of {name}"));
        let of_servers =
            [&self.fake, &self.workload].into_iter().flat_map(|server| server.faults().list_unmet());
        of_coordinator.into_iter().chain(of_hosts).chain(of_servers).collect()
    }

    /// Ends what is no scenario: objects or requests were collected, and nothing is judged.
    pub fn skip_invariants(mut self) {
        self.is_checked = true;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert!(
            self.is_checked,
            "this scenario ended without a look at the invariants: end it with check_invariants"
        );
        let unmet = self.list_unmet();
        assert!(self.allows_unmet_faults || unmet.is_empty(), "planned, and never met: {unmet:#?}");
    }
}
