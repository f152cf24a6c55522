//! The platform of a base image.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::hardware::name_architecture;

/// Operating system and architecture of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Platform {
    /// `linux/amd64`
    Amd64,
    /// `linux/arm64`
    Arm64,
}

impl Platform {
    /// The platform of an architecture by its name in the kernel and in Rust.
    pub fn of_architecture(name: &str) -> Option<Self> {
        name_architecture(name).and_then(Self::of_image)
    }

    /// Parses `spec.targetPlatform`, with the architecture's name in images or in `elemental`.
    pub fn parse(text: &str) -> Option<Self> {
        let architecture = text.strip_prefix("linux/")?;
        Self::of_image(architecture).or_else(|| Self::of_architecture(architecture))
    }

    fn of_image(architecture: &str) -> Option<Self> {
        [Self::Amd64, Self::Arm64].into_iter().find(|platform| platform.architecture() == architecture)
    }

    /// Name of the architecture in images.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "linux/{}", self.architecture())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_has_the_names_of_its_architecture() {
        for (kernel, image, platform) in
            [("x86_64", "amd64", Platform::Amd64), ("aarch64", "arm64", Platform::Arm64)]
        {
            assert_eq!(Platform::of_architecture(kernel), Some(platform));
            assert_eq!(platform.to_string(), format!("linux/{image}"));
            for name in [kernel, image] {
                assert_eq!(Platform::parse(&format!("linux/{name}")), Some(platform), "{name}");
            }
        }
        for text in ["linux/riscv64", "windows/amd64", "amd64", ""] {
            assert_eq!(Platform::parse(text), None, "{text}");
        }
        assert_eq!(Platform::of_architecture("amd64"), None);
    }
}
