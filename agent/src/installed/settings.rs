//! The settings that the coordinator announces on the stream. The host tries them before they
//! replace the former ones.

use std::path::PathBuf;
use std::time::Duration;

use proto::v1alpha1::CoordinatorSettings;
use tokio::time::Instant;

use crate::client::config::{self, Config};
use crate::ground::durable;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;

/// Number of failed connections by one of new and former settings before the other ones are tried.
const TRIES: u32 = 5;
/// Settings that failed are not tried again for this time.
const PAUSE: Duration = Duration::from_mins(10);

/// The current settings, and new ones that are tried.
pub(super) struct Settings {
    root: Root,
    current: Config,
    next: Option<Config>,
    failures: u32,
    failed: Option<(String, Instant)>,
}

impl Settings {
    /// Reads the settings by which the host attached last, and those that were announced since.
    pub(super) fn open(root: &Root) -> Result<Self, Failure> {
        let current = config::read(&root.state().config())?;
        let next = config::read_optional(&root.state().next_config())
            .inspect_err(
                |error| tracing::warn!(%error, "cannot read the announced settings of the coordinator"),
            )
            .ok()
            .flatten();
        Ok(Self { root: root.clone(), current, next, failures: 0, failed: None })
    }

    /// The settings for the next connection. The new and the former settings alternate while both
    /// fail, because the coordinator may be unreachable by either for a while.
    pub(super) fn config(&self) -> &Config {
        self.next.as_ref().filter(|_| self.tries_next()).unwrap_or(&self.current)
    }

    fn tries_next(&self) -> bool {
        (self.failures / TRIES).is_multiple_of(2)
    }

    /// Stores announced settings beside the current ones. Returns true if they differ.
    pub(super) fn accept(&mut self, announced: &CoordinatorSettings) -> Result<bool, Failure> {
        let next = self.current.moved_to(&announced.registration_url, &announced.authorities);
        let next = next.map_err(|failure| {
            let action = "correct --server-url of the coordinator, or the Secret of its CA";
            failure.with_next_action(action)
        })?;
        if next == *self.config() {
            return Ok(false);
        }
        let is_failed =
            |(checksum, at): &(String, Instant)| *checksum == next.checksum() && at.elapsed() < PAUSE;
        if self.failed.as_ref().is_some_and(is_failed) {
            return Err(Failure::refused(
                format!("the host did not attach by them {TRIES} times, and went back to the former ones"),
                "check that the host reaches the coordinator's URL, and that the certificate there is signed by the CA; they are tried again when the host attaches after ten minutes",
            ));
        }
        durable::write(&self.path(), next.render_yaml()?.as_bytes())?;
        (self.next, self.failures) = (Some(next), 0);
        Ok(true)
    }

    /// The host has attached by [`Settings::config`], so the other settings are removed.
    pub(super) fn record_attached(&mut self) -> Result<(), Failure> {
        let Some(next) = &self.next else { return Ok(()) };
        if !self.tries_next() {
            tracing::warn!(
                announced = next.address(),
                kept = self.current.address(),
                "coordinator not reached by its new settings, keeping the former ones"
            );
            self.failed = Some((next.checksum(), Instant::now()));
            self.next = None;
            return durable::remove(&self.path());
        }
        durable::write(&self.root.state().config(), next.render_yaml()?.as_bytes())?;
        durable::remove(&self.path())?;
        if let Some(next) = self.next.take() {
            self.current = next;
        }
        tracing::info!(coordinator = self.current.address(), "coordinator settings replaced");
        Ok(())
    }

    pub(super) fn record_failed(&mut self) {
        if self.next.is_some() {
            self.failures = self.failures.wrapping_add(1);
        }
    }

    fn path(&self) -> PathBuf {
        self.root.state().next_config()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

    fn url(host: &str) -> String {
        format!("https://{host}:8443/elemental/registration/token-of-{host}")
    }

    fn announced(host: &str) -> CoordinatorSettings {
        CoordinatorSettings { registration_url: url(host), authorities: PEM.repeat(2) }
    }

    fn installed() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        durable::create_directory(root.state().path()).unwrap();
        let ca = PEM.trim_end().replace('\n', "\n      ");
        let text = format!(
            "elemental:\n  registration:\n    url: {}\n    ca-cert: |\n      {ca}\n    emulate-tpm: true\n",
            url("old")
        );
        fs::write(root.state().config(), text).unwrap();
        (directory, root)
    }

    #[tokio::test(start_paused = true)]
    async fn new_settings_are_kept_after_host_attaches() {
        let (_directory, root) = installed();
        let mut settings = Settings::open(&root).unwrap();
        assert!(settings.accept(&announced("new")).unwrap());
        assert!(!settings.accept(&announced("new")).unwrap(), "they are tried already");
        // Power is lost: they are tried after it.
        let mut settings = Settings::open(&root).unwrap();
        assert_eq!(settings.config().host, "new");
        assert_eq!(config::read(&root.state().config()).unwrap().host, "old");
        settings.record_attached().unwrap();
        let kept = config::read(&root.state().config()).unwrap();
        assert_eq!(
            (kept.host.as_str(), kept.token.as_str(), kept.authority),
            ("new", "token-of-new", PEM.repeat(2))
        );
        assert!(!root.state().next_config().exists());
    }

    #[tokio::test(start_paused = true)]
    async fn failed_settings_are_refused_until_pause_ends() {
        let (_directory, root) = installed();
        let mut settings = Settings::open(&root).unwrap();
        settings.accept(&announced("nowhere")).unwrap();
        for turn in ["nowhere", "old", "nowhere", "old"] {
            for _ in 0..TRIES {
                assert_eq!(settings.config().host, turn);
                settings.record_failed();
            }
        }
        assert!(root.state().next_config().exists(), "neither is given up");
        for _ in 0..TRIES {
            settings.record_failed();
        }
        settings.record_attached().unwrap();
        assert_eq!(settings.config().host, "old");
        assert!(!root.state().next_config().exists());
        let refused = settings.accept(&announced("nowhere")).unwrap_err();
        assert!(refused.message.contains("went back"), "{refused}");
        assert!(settings.accept(&announced("elsewhere")).unwrap(), "others are tried at once");
        settings.record_attached().unwrap();
        tokio::time::advance(PAUSE).await;
        assert!(settings.accept(&announced("nowhere")).unwrap());
        let odd = CoordinatorSettings { registration_url: "http://x/".into(), ..announced("x") };
        assert!(settings.accept(&odd).unwrap_err().next_action.contains("--server-url"));
    }
}
