//! Failures of seed ISOs, and if a retry helps.

use std::io;
use std::path::PathBuf;

use coordinator_api::conditions::Reason;

use super::config::ConfigError;
use super::layout::LayoutError;
use crate::base_image::BaseImageError;
use crate::telemetry::chain;

/// A failure to make a seed ISO.
#[derive(Debug, thiserror::Error)]
pub enum SeedIsoError {
    #[error(transparent)]
    Base(#[from] BaseImageError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No file can be added to the base image.
    #[error("{0}: use an Elemental live ISO")]
    Layout(LayoutError),
    /// The agent's file cannot be read.
    #[error("cannot read the agent of --agent-path {path}", path = path.display())]
    Agent { path: PathBuf, source: io::Error },
    /// The base image cannot be read back.
    #[error("cannot read the base image {path}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
}

impl From<LayoutError> for SeedIsoError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl SeedIsoError {
    /// A retry is useless until the configuration changes.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Layout(_)
            | Self::Config(ConfigError::Yaml(_) | ConfigError::TooLarge | ConfigError::TooManyHosts(_)) => {
                true
            }
            Self::Base(error) => error.is_terminal(),
            Self::Config(ConfigError::NotReady) | Self::Agent { .. } | Self::Read { .. } => false,
        }
    }

    /// Text for the status of the `SeedImage`.
    pub fn status_text(&self) -> String {
        let neutral = if let Self::Base(error) = self { error.neutral_text() } else { None };
        neutral.map_or_else(|| chain(self), str::to_owned)
    }

    pub fn reason(&self) -> Reason {
        match self {
            Self::Base(error) => error.reason(),
            Self::Layout(_) => Reason::BaseImageInvalid,
            Self::Config(_) | Self::Agent { .. } | Self::Read { .. } => Reason::SeedImageBuildFailure,
        }
    }

    /// A retry would download the whole base and fail again.
    pub fn is_fetched_in_vain(&self) -> bool {
        matches!(self, Self::Base(error) if error.is_fetched_in_vain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_without_room_is_an_invalid_base() {
        let error = SeedIsoError::from(LayoutError::NotIso);
        assert_eq!((error.reason(), error.is_terminal()), (Reason::BaseImageInvalid, true));
        let error = SeedIsoError::from(ConfigError::NotReady);
        assert_eq!((error.reason(), error.is_terminal()), (Reason::SeedImageBuildFailure, false));
    }
}
