//! The OS image of a plan, and the access to its registry.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::PlanError;
use super::content::{Content, Inline, ReplaceContents, Stored};

/// Reference of an OS image as `elemental --system` takes it: a word without leading dash, so that
/// it can never be read as an option.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Image(String);

impl Image {
    /// # Errors
    /// [`PlanError::Image`] when the text is empty, longer than 1024 bytes, starts with a dash or
    /// holds white space or control characters.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        Self::try_from(text.to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Image {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        let is_odd = text.contains(|c: char| c.is_whitespace() || c.is_control());
        if text.is_empty() || text.len() > 1024 || text.starts_with('-') || is_odd {
            return Err(PlanError::Image);
        }
        Ok(Self(text))
    }
}

impl fmt::Display for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A system to write beside the running one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "C: Stored")]
pub struct Upgrade<C: Content = Inline> {
    /// The source of the system.
    pub image: Image,
    /// `None` if the host pulls without further settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<Box<RegistryAccess<C>>>,
}

impl From<Image> for Upgrade {
    fn from(image: Image) -> Self {
        Self { image, registry: None }
    }
}

impl<C: Content> Upgrade<C> {
    pub(super) fn replace_contents<D: Content, R: ReplaceContents<C, D>>(
        &self,
        replace: &mut R,
    ) -> Result<Upgrade<D>, R::Error> {
        let registry = self.registry.as_ref().map(|access| access.replace_contents(replace)).transpose()?;
        Ok(Upgrade { image: self.image.clone(), registry: registry.map(Box::new) })
    }
}

/// The access to the registry of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "C: Stored")]
pub struct RegistryAccess<C: Content = Inline> {
    /// `config.json` of the Docker CLI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker_config: Option<C::Secret>,
    /// PEM; trusted beside the authorities of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities: Option<C::Text>,
    /// The proxy for a registry with HTTPS; the URL may hold a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<C::Secret>,
    /// The proxy for a registry with HTTP; the URL may hold a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<C::Secret>,
    /// Names and addresses that are reached without a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<C::Text>,
}

impl<C: Content> Default for RegistryAccess<C> {
    fn default() -> Self {
        Self { docker_config: None, authorities: None, https_proxy: None, http_proxy: None, no_proxy: None }
    }
}

impl<C: Content> RegistryAccess<C> {
    fn replace_contents<D: Content, R: ReplaceContents<C, D>>(
        &self,
        replace: &mut R,
    ) -> Result<RegistryAccess<D>, R::Error> {
        let [config, https, http] =
            [&self.docker_config, &self.https_proxy, &self.http_proxy].map(Option::as_ref);
        let [authorities, no_proxy] = [&self.authorities, &self.no_proxy].map(Option::as_ref);
        Ok(RegistryAccess {
            docker_config: config.map(|file| replace.replace_secret("config.json", file)).transpose()?,
            authorities: authorities.map(|pem| replace.replace_text("authorities.pem", pem)).transpose()?,
            https_proxy: https.map(|url| replace.replace_secret("https-proxy", url)).transpose()?,
            http_proxy: http.map(|url| replace.replace_secret("http-proxy", url)).transpose()?,
            no_proxy: no_proxy.map(|list| replace.replace_text("no-proxy", list)).transpose()?,
        })
    }
}

/// Schemes of references that `elemental` knows.
pub const IMAGE_SCHEMES: [&str; 4] = ["oci:", "docker:", "file:", "dir:"];

/// The reference as `elemental --system` takes it. The scheme is needed, because `elemental` reads an
/// IP address with a port as a scheme, and fails.
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
