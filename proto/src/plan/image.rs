//! The OS image of a plan, and how it is reached.

use std::fmt;

use super::{PlanError, Secret};

/// Reference of an OS image as `elemental --system` takes it: one word, no
/// leading dash, so that it can never be read as an option.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Image(String);

impl Image {
    /// # Errors
    /// [`PlanError::Image`] when it is empty, longer than 1024 bytes, starts
    /// with a dash or holds white space or control characters.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if text.is_empty() || text.len() > 1024 || text.starts_with('-') || text.contains(odd) {
            return Err(PlanError::Image);
        }
        Ok(Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A system to write beside the running one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// Where it comes from.
    pub image: Image,
    /// `None` where the host pulls as it is.
    pub registry: Option<Box<RegistryAccess>>,
}

impl From<Image> for Upgrade {
    fn from(image: Image) -> Self {
        Self { image, registry: None }
    }
}

/// How the registry of an image is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryAccess {
    /// `config.json` of the Docker CLI.
    pub docker_config: Option<Secret>,
    /// PEM: trusted beside the authorities of the system.
    pub authorities: Option<String>,
    /// By the protocol of the registry; a URL may hold a password.
    pub https_proxy: Option<Secret>,
    /// As `https_proxy`.
    pub http_proxy: Option<Secret>,
    /// What is reached without a proxy.
    pub no_proxy: Option<String>,
}

/// Schemes of references that `elemental` knows.
pub const IMAGE_SCHEMES: [&str; 4] = ["oci:", "docker:", "file:", "dir:"];

/// The reference as `elemental --system` takes it: without a scheme it reads an
/// IP address with a port as one, and fails.
pub fn to_source(reference: &str) -> String {
    if IMAGE_SCHEMES.iter().any(|scheme| reference.starts_with(scheme)) {
        return reference.to_owned();
    }
    format!("oci:{reference}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_without_scheme_means_registry() {
        let cases = [
            ("port", "10.0.2.100:5000/os:v1", "oci:10.0.2.100:5000/os:v1"),
            ("name", "lab/os:v1", "oci:lab/os:v1"),
            ("registry", "oci:lab/os:v1", "oci:lab/os:v1"),
            ("directory", "dir:/run/rootfsbase", "dir:/run/rootfsbase"),
        ];
        for (name, given, want) in cases {
            assert_eq!(to_source(given), want, "{name}");
        }
    }
}
