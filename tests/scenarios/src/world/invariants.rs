//! What every scenario ends with: a look at what must never have been.

use std::time::Duration;

use super::World;
use crate::BOOTSTRAP_CANARY;

impl World {
    /// Asserts that the invariants held at all times, that hosts did what their plans say and no
    /// more, and that no secret is in public text.
    pub async fn check_invariants(self) {
        self.check_invariants_except(&[]).await;
    }

    /// As [`World::check_invariants`], where the scenario itself causes violations: in their
    /// order, words of each.
    pub async fn check_invariants_except(mut self, caused: &[&str]) {
        self.is_checked = true;
        self.advance_time(Duration::from_secs(30)).await;
        self.finish_deletions();
        let violations: Vec<_> = self.violations().iter().map(ToString::to_string).collect();
        let is_caused = violations.len() == caused.len()
            && violations.iter().zip(caused).all(|(violation, words)| violation.contains(words));
        assert!(is_caused, "{violations:#?} instead of {caused:?}\n{}", self.dump());
        let wrong: Vec<_> = self.hosts.keys().flat_map(|host| self.history.judge_host(host)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", self.dump());
        let public = self.public_text();
        let shown: Vec<_> = public.lines().filter(|line| line.contains(BOOTSTRAP_CANARY)).collect();
        assert!(shown.is_empty(), "a secret was shown: {shown:#?}");
    }

    /// Ends what is no scenario: objects or requests were collected, and nothing is judged.
    pub fn skip_invariants(mut self) {
        self.is_checked = true;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        assert!(
            self.is_checked || std::thread::panicking(),
            "this scenario ended without a look at the invariants: end it with check_invariants"
        );
    }
}
