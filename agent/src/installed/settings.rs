//! Where the coordinator is, as it announces it on the stream: tried before it
//! replaces what the host attached by.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use proto::v1alpha1::{CoordinatorSettings, Failure, FailureReason};
use tokio::time::Instant;

use crate::client::config::{self, Config, ConfigError};
use crate::ground::durable::{self, DurableError};
use crate::ground::error::{NextAction, describe_error};
use crate::ground::paths::Root;

/// Connections by one of new and former settings that fail before the other ones are
/// tried.
const TRIES: u32 = 5;
/// So long settings that failed are not tried again.
const PAUSE: Duration = Duration::from_mins(10);

/// Why settings are not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettingsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// They lead to no coordinator.
    #[error("the host did not attach by them {TRIES} times, and went back to the former ones")]
    Failed,
    /// They cannot be kept.
    #[error(transparent)]
    Keep(#[from] DurableError),
}

impl NextAction for SettingsError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Config(_) => Some("correct --server-url of the coordinator, or the Secret of its CA"),
            Self::Failed => Some(
                "check that the host reaches the coordinator's URL, and that the certificate there is signed by the CA; they are tried again when the host attaches after ten minutes",
            ),
            Self::Keep(error) => error.next_action(),
        }
    }
}

impl SettingsError {
    pub(super) fn to_failure(&self) -> Failure {
        Failure {
            reason: FailureReason::Refused.into(),
            message: describe_error(self),
            next_action: self.next_action().unwrap_or_default().to_owned(),
        }
    }
}

/// The settings in use, and those that are tried.
pub(super) struct Settings {
    root: Root,
    current: Config,
    next: Option<Config>,
    failures: u32,
    failed: Option<(String, Instant)>,
}

impl Settings {
    /// Those that the host attached by last, and those that were announced since.
    pub(super) fn open(root: &Root) -> Result<Self, ConfigError> {
        let current = config::read(&root.state().config())?;
        let next = match config::read(&root.state().next_config()) {
            Ok(next) => Some(next),
            Err(ConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(%error, "announced settings of the coordinator cannot be read");
                None
            }
        };
        Ok(Self { root: root.clone(), current, next, failures: 0, failed: None })
    }

    /// To connect by: in turns while neither leads to the coordinator, since it may be
    /// away for a while at either.
    pub(super) fn config(&self) -> &Config {
        self.next.as_ref().filter(|_| self.tries_next()).unwrap_or(&self.current)
    }

    fn tries_next(&self) -> bool {
        (self.failures / TRIES).is_multiple_of(2)
    }

    /// Keeps announced settings beside those in use; whether they differ.
    pub(super) fn accept(&mut self, announced: &CoordinatorSettings) -> Result<bool, SettingsError> {
        let next = self.current.moved_to(&announced.registration_url, &announced.authorities)?;
        if next == *self.config() {
            return Ok(false);
        }
        let is_failed =
            |(checksum, at): &(String, Instant)| *checksum == next.checksum() && at.elapsed() < PAUSE;
        if self.failed.as_ref().is_some_and(is_failed) {
            return Err(SettingsError::Failed);
        }
        durable::write(&self.path(), render(&next)?.as_bytes())?;
        (self.next, self.failures) = (Some(next), 0);
        Ok(true)
    }

    /// The coordinator was reached by [`Settings::config`]: the other settings go.
    pub(super) fn note_attached(&mut self) -> Result<(), SettingsError> {
        let Some(next) = &self.next else { return Ok(()) };
        if !self.tries_next() {
            tracing::warn!(
                announced = next.address(),
                kept = self.current.address(),
                "the coordinator is not reached by its new settings: back to the former ones"
            );
            self.failed = Some((next.checksum(), Instant::now()));
            self.next = None;
            return Ok(durable::remove(&self.path())?);
        }
        durable::write(&self.root.state().config(), render(next)?.as_bytes())?;
        durable::remove(&self.path())?;
        if let Some(next) = self.next.take() {
            self.current = next;
        }
        tracing::info!(coordinator = self.current.address(), "settings of the coordinator replaced");
        Ok(())
    }

    /// The coordinator was not reached.
    pub(super) fn note_failed(&mut self) {
        if self.next.is_some() {
            self.failures = self.failures.wrapping_add(1);
        }
    }

    fn path(&self) -> PathBuf {
        self.root.state().next_config()
    }
}

fn render(config: &Config) -> Result<String, ConfigError> {
    config.render_yaml().map_err(|source| ConfigError::Parse { path: PathBuf::from("config.yaml"), source })
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
        settings.note_attached().unwrap();
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
                settings.note_failed();
            }
        }
        assert!(root.state().next_config().exists(), "neither is given up");
        for _ in 0..TRIES {
            settings.note_failed();
        }
        settings.note_attached().unwrap();
        assert_eq!(settings.config().host, "old");
        assert!(!root.state().next_config().exists());
        let refused = settings.accept(&announced("nowhere")).unwrap_err();
        assert!(refused.to_failure().message.contains("went back"), "{refused}");
        assert!(settings.accept(&announced("elsewhere")).unwrap(), "others are tried at once");
        settings.note_attached().unwrap();
        tokio::time::advance(PAUSE).await;
        assert!(settings.accept(&announced("nowhere")).unwrap());
        let odd = CoordinatorSettings { registration_url: "http://x/".into(), ..announced("x") };
        assert!(matches!(settings.accept(&odd), Err(SettingsError::Config(_))));
    }
}
