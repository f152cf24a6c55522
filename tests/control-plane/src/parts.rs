//! Where the binaries come from: a directory of ready ones, the cache, or a build from source.

mod build;
mod catalogue;
mod content;
mod definitions;
mod providers;

use std::path::{Path, PathBuf};

pub use build::Error;
pub use catalogue::{Module, Part};
pub use definitions::Definitions;
pub use providers::Provider;

/// Says one line about what takes long.
pub type Progress<'a> = &'a dyn Fn(&str);

/// Progress on standard error, past the capture of a test runner: a first build takes minutes, and
/// without output a test seems to hang.
pub fn to_stderr(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Finds the binaries. Each is searched in the directory of ready binaries, then in the cache;
/// a missing one is built once into the cache.
#[derive(Debug, Clone)]
pub struct Parts {
    ready: Option<PathBuf>,
    cache: PathBuf,
    sources: PathBuf,
    go: String,
    earlier: bool,
}

impl Parts {
    /// Reads `KUBEBUILDER_ASSETS`, `BAREMETAL_CACHE`, `XDG_CACHE_HOME`, `HOME` and `GO`.
    ///
    /// # Errors
    /// [`Error::NoCache`] when none of them names the cache.
    pub fn from_environment() -> Result<Self, Error> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = cache_directory(|name| variable(name).map(PathBuf::from));
        Ok(Self {
            ready: variable("KUBEBUILDER_ASSETS").map(PathBuf::from),
            cache: cache.ok_or(Error::NoCache)?.join("parts"),
            sources: Path::new(env!("CARGO_MANIFEST_DIR")).join("parts"),
            go: std::env::var("GO").unwrap_or_else(|_| "go".to_owned()),
            earlier: false,
        })
    }

    /// The same, but blind to the directory of ready binaries.
    pub fn without_ready(mut self) -> Self {
        self.ready = None;
        self
    }

    /// The same, but with the earlier release of what Kubernetes runs on hosts.
    pub fn earlier(mut self) -> Self {
        self.earlier = true;
        self
    }

    /// The module that `part` is built from.
    pub fn module(&self, part: Part) -> Module {
        match (part, part.module()) {
            (Part::Kubectl, module) => module,
            (_, Module::Kubernetes) if self.earlier => Module::EarlierKubernetes,
            (_, module) => module,
        }
    }

    /// The path of `part`, built first when it is nowhere.
    ///
    /// # Errors
    /// When it is missing and cannot be built; the message names the next action.
    pub fn path(&self, part: Part) -> Result<PathBuf, Error> {
        self.ensure(&[part], &to_stderr)?;
        Ok(self.find(part).unwrap_or_else(|| self.cached(part)))
    }

    /// The path of `part` if it is there.
    pub fn find(&self, part: Part) -> Option<PathBuf> {
        let ready = self.ready.iter().map(|ready| ready.join(part.name()));
        let mut places = ready.chain([self.cached(part)]);
        places.find(|path| path.is_file())
    }

    /// Builds every one of `parts` that is nowhere, one after the other.
    ///
    /// # Errors
    /// When one cannot be built.
    pub fn ensure(&self, parts: &[Part], progress: Progress<'_>) -> Result<(), Error> {
        let missing: Vec<Part> = parts.iter().copied().filter(|part| self.find(*part).is_none()).collect();
        for (index, part) in missing.iter().enumerate() {
            let at = format!("[{}/{}]", index + 1, missing.len());
            build::part(self, *part, &|line| progress(&format!("{at} {line}")))?;
        }
        Ok(())
    }

    /// The components of one of Cluster API's providers as one YAML stream: its own kustomization,
    /// rendered once and kept beside its binary.
    ///
    /// # Errors
    /// When they are missing and cannot be rendered.
    pub fn cluster_api_components(&self, provider: Provider) -> Result<PathBuf, Error> {
        let name = provider.components();
        let ready = self.ready.iter().map(|path| path.join(&name));
        let cached = self.directory(Module::ClusterApi).join(&name);
        let found = ready.chain([cached.clone()]).find(|path| path.is_file());
        if let Some(path) = found {
            return Ok(path);
        }
        build::components(self, provider, &cached)?;
        Ok(cached)
    }

    /// The definitions of `project` as one YAML stream.
    ///
    /// # Errors
    /// When its module cannot be downloaded.
    pub fn definitions(&self, project: Definitions) -> Result<String, Error> {
        build::definitions(self, project)
    }

    /// The cache directory of a module at the version of its `go.mod`. Where the module has sources of
    /// ours, it is one of their content too.
    pub fn directory(&self, module: Module) -> PathBuf {
        let name = format!("{}-{}", module.name(), module.version());
        match module {
            Module::ClusterApiSuite => {
                self.cache.join(format!("{name}-{}", content::hash(&self.sources.join(module.name()))))
            }
            _ => self.cache.join(name),
        }
    }

    fn cached(&self, part: Part) -> PathBuf {
        self.directory(self.module(part)).join(part.name())
    }
}

/// `${BAREMETAL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cluster-api-provider-baremetal}`.
fn cache_directory(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    variable("BAREMETAL_CACHE").or_else(|| {
        variable("XDG_CACHE_HOME")
            .or_else(|| variable("HOME").map(|home| home.join(".cache")))
            .map(|cache| cache.join("cluster-api-provider-baremetal"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_nearest_variable_says() {
        let home = ("HOME", "/h");
        let cache = ("XDG_CACHE_HOME", "/c");
        let own = ("BAREMETAL_CACHE", "/b");
        let ours = "cluster-api-provider-baremetal";
        let cases = [
            ("nothing set", vec![], None),
            ("home", vec![home], Some(format!("/h/.cache/{ours}"))),
            ("cache home", vec![home, cache], Some(format!("/c/{ours}"))),
            ("our own", vec![home, cache, own], Some("/b".to_owned())),
        ];
        for (name, given, want) in cases {
            let variable = |key: &str| {
                let found = given.iter().find(|(name, _)| *name == key);
                found.map(|(_, value)| PathBuf::from(value))
            };
            assert_eq!(cache_directory(variable), want.map(PathBuf::from), "{name}");
        }
    }

    #[test]
    fn a_ready_binary_wins_part_by_part() {
        let ready = tempfile::tempdir().unwrap();
        let cache = tempfile::tempdir().unwrap();
        let parts = Parts {
            ready: Some(ready.path().to_owned()),
            cache: cache.path().to_owned(),
            sources: PathBuf::new(),
            go: "go".to_owned(),
            earlier: false,
        };
        let kubernetes = parts.directory(Module::Kubernetes);
        std::fs::create_dir(&kubernetes).unwrap();
        for path in [ready.path().join("kubectl"), kubernetes.join("kubectl"), kubernetes.join("kubelet")] {
            std::fs::write(path, "").unwrap();
        }
        let found = [Part::Kubectl, Part::Kubelet, Part::Etcd].map(|part| parts.find(part));
        assert_eq!(found, [Some(ready.path().join("kubectl")), Some(kubernetes.join("kubelet")), None]);
    }

    #[test]
    fn earlier_release_is_of_what_hosts_run() {
        let newest = Parts::from_environment().unwrap().without_ready();
        let earlier = newest.clone().earlier();
        let differs = |part: &Part| newest.cached(*part) != earlier.cached(*part);
        let found: Vec<Part> = Part::ALL.into_iter().filter(differs).collect();
        let hosts = [
            Part::KubeApiserver,
            Part::KubeControllerManager,
            Part::KubeScheduler,
            Part::Kubeadm,
            Part::Kubelet,
            Part::Pause,
        ];
        assert_eq!(found, hosts);
        let versions = [Module::EarlierKubernetes, Module::Kubernetes].map(Module::version);
        let minor = |version: &str| version.rsplit_once('.').map(|(minor, _)| minor.to_owned());
        assert!(versions[0] < versions[1] && minor(versions[0]) == minor(versions[1]), "{versions:?}");
    }
}
