//! The version of this agent. The version string is part of the executable, so that a coordinator
//! can read it from the file that it serves.

use proto::agent_mark::AgentMark;
use semver::Version;

#[cfg(target_arch = "x86_64")]
macro_rules! architecture {
    () => {
        "x86_64"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! architecture {
    () => {
        "aarch64"
    };
}

const MARK: &str = concat!("baremetal-agent-version:", env!("CARGO_PKG_VERSION"), ":", architecture!(), ";");

pub fn own_version() -> Version {
    // `black_box` keeps the compiler from computing the version, so that the string stays in the
    // executable.
    let mark = AgentMark::find(std::hint::black_box(MARK).as_bytes());
    mark.and_then(|mark| Version::parse(&mark.version).ok()).unwrap_or(Version::new(0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_package() {
        assert_eq!(own_version().to_string(), env!("CARGO_PKG_VERSION"));
        let mark = AgentMark::find(MARK.as_bytes()).unwrap();
        assert_eq!(mark.architecture, std::env::consts::ARCH);
    }
}
