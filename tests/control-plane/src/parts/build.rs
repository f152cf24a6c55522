//! Building a part from its Go module.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::Deserialize;

use super::{Definitions, Module, Part, Parts, Progress, Provider};
use crate::process::tail;

/// A part is missing and could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No variable names the cache.
    #[error("no place for built binaries: set HOME or BAREMETAL_CACHE")]
    NoCache,
    /// The Go toolchain is missing.
    #[error(
        "{part} is not built yet and {go:?} does not run: install Go {wanted} or a later 1.26 and put it into PATH, \
         name it by GO=/path/to/go, or name a directory of ready binaries by KUBEBUILDER_ASSETS"
    )]
    NoGo {
        /// What was to be built.
        part: &'static str,
        /// The command that was tried.
        go: String,
        /// The oldest version that will do.
        wanted: &'static str,
        /// Why it does not run.
        source: io::Error,
    },
    /// The Go toolchain is of the wrong version.
    #[error(
        "{part} is not built yet and {go:?} is {found}, but it takes Go {wanted} or a later 1.26 \
         (1.27 encodes JSON differently, which breaks the API server's OpenAPI): name another by GO=/path/to/go, \
         or name a directory of ready binaries by KUBEBUILDER_ASSETS"
    )]
    WrongGo {
        /// What was to be built.
        part: &'static str,
        /// The command that was tried.
        go: String,
        /// The version that it reports.
        found: String,
        /// The oldest version that will do.
        wanted: &'static str,
    },
    /// A file of the cache could not be made.
    #[error("write {}", path.display())]
    Cache { path: PathBuf, source: io::Error },
    /// A file of a module could not be read.
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A command did not run.
    #[error("run {command}")]
    Run { command: String, source: io::Error },
    #[error("{command} failed; its output ends with:\n{tail}")]
    Failed {
        command: String,
        /// The end of its output.
        tail: String,
    },
}

/// Builds `part` into the cache. A second process that wants it meanwhile waits and finds it.
pub(super) fn part(parts: &Parts, part: Part, progress: Progress<'_>) -> Result<(), Error> {
    let directory = parts.directory(parts.module(part));
    fs::create_dir_all(&directory).map_err(|source| cache(&directory, source))?;
    let _lock = lock(&directory, part, progress)?;
    if parts.find(part).is_some() {
        return Ok(());
    }
    check_go(parts, parts.module(part), part.name())?;
    progress(&format!("building {} ({})…", part.name(), about(part.seconds())));
    let started = Instant::now();
    let unfinished = directory.join(format!(".{}.unfinished", part.name()));
    let log = directory.join(format!("{}.log", part.name()));
    match part {
        Part::Pause => cc_build(parts, part, &unfinished)?,
        _ => go_build(parts, part, &unfinished, &log)?,
    }
    // The name appears only with the whole file behind it: an interrupted build leaves no half
    // binary that a later run would start.
    let path = directory.join(part.name());
    fs::rename(&unfinished, &path).map_err(|source| cache(&path, source))?;
    let seconds = started.elapsed().as_secs();
    progress(&format!("built {} in {seconds} s", part.name()));
    Ok(())
}

fn go_build(parts: &Parts, part: Part, output: &Path, log: &Path) -> Result<(), Error> {
    let module = parts.module(part);
    let written = File::create(log).map_err(|source| cache(log, source))?;
    let errors = written.try_clone().map_err(|source| cache(log, source))?;
    let mut command = go(parts, module.name());
    command
        .args(["build", "-trimpath", "-buildvcs=false", "-tags", module.tags()])
        .args(["-ldflags", &module.linker_flags(), "-o"])
        .arg(output)
        .arg(part.package())
        .stdout(written)
        .stderr(errors);
    let status = command
        .status()
        .map_err(|source| Error::Run { command: format!("go build {}", part.package()), source })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed { command: format!("go build {}", part.package()), tail: tail(log) })
}

/// The C compiler is there: Rust links by it.
fn cc_build(parts: &Parts, part: Part, output: &Path) -> Result<(), Error> {
    let module = parts.module(part);
    let source = source_directory(parts, module.name(), module.path())?.join("build/pause/linux/pause.c");
    let mut command = Command::new("cc");
    command.args(["-static", "-Os", "-s", "-DVERSION=lab", "-o"]).arg(output).arg(source);
    stdout(command, "cc").map(drop)
}

/// Where Go keeps the files of the module `path`, which `module` of the parts requires.
fn source_directory(parts: &Parts, module: &str, path: &str) -> Result<PathBuf, Error> {
    #[derive(Deserialize)]
    struct Download {
        #[serde(rename = "Dir")]
        directory: PathBuf,
    }
    let mut download = go(parts, module);
    download.args(["mod", "download", "-json", path]);
    let answer = stdout(download, "go mod download")?;
    let found: Download = serde_json::from_slice(&answer)
        .map_err(|error| Error::Failed { command: "go mod download".to_owned(), tail: error.to_string() })?;
    Ok(found.directory)
}

/// Renders a provider's kustomization from the module's own files.
pub(super) fn components(parts: &Parts, provider: Provider, output: &Path) -> Result<(), Error> {
    let kubectl = parts.path(Part::Kubectl)?;
    let directory = parts.directory(Module::ClusterApi);
    fs::create_dir_all(&directory).map_err(|source| cache(&directory, source))?;
    let _lock = lock(&directory, provider.part(), &super::to_stderr)?;
    let module = Module::ClusterApi;
    check_go(parts, module, provider.part().name())?;
    let source = source_directory(parts, module.name(), module.path())?;
    let mut kustomize = Command::new(kubectl);
    kustomize.arg("kustomize").arg(source.join(provider.kustomization()));
    let rendered = stdout(kustomize, "kubectl kustomize")?;
    let unfinished = output.with_extension("unfinished");
    fs::write(&unfinished, rendered).map_err(|source| cache(&unfinished, source))?;
    fs::rename(&unfinished, output).map_err(|source| cache(output, source))
}

/// Reads the definitions of a project from its module, which is only downloaded.
pub(super) fn definitions(parts: &Parts, project: Definitions) -> Result<String, Error> {
    // Any toolchain that builds the API server downloads modules.
    check_go(parts, Module::Kubernetes, project.path())?;
    let source = source_directory(parts, "definitions", project.path())?;
    let read = |file: &&str| {
        let path = source.join(file);
        fs::read_to_string(&path).map_err(|error| Error::Read { path, source: error })
    };
    let texts = project.files().iter().map(read).collect::<Result<Vec<String>, Error>>()?;
    Ok(project.remove_markers(&texts.join("\n---\n")))
}

fn stdout(mut command: Command, name: &str) -> Result<Vec<u8>, Error> {
    let output = command.output().map_err(|source| Error::Run { command: name.to_owned(), source })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::Failed {
        command: name.to_owned(),
        tail: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// The Go command in the module's directory. No other toolchain is fetched unless the user asked
/// for that, and nothing of the surroundings changes what is built.
fn go(parts: &Parts, module: &str) -> Command {
    let mut command = Command::new(&parts.go);
    command
        .current_dir(parts.sources.join(module))
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env_remove("GOFLAGS")
        .env_remove("GOOS")
        .env_remove("GOARCH");
    if std::env::var_os("GOTOOLCHAIN").is_none() {
        command.env("GOTOOLCHAIN", "local");
    }
    command
}

fn check_go(parts: &Parts, module: Module, part: &'static str) -> Result<(), Error> {
    let wanted = module.go_version();
    let output = go(parts, module.name())
        .args(["env", "GOVERSION"])
        .output()
        .map_err(|source| Error::NoGo { part, go: parts.go.clone(), wanted, source })?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if will_do(&found, wanted) {
        return Ok(());
    }
    Err(Error::WrongGo { part, go: parts.go.clone(), found, wanted })
}

/// Whether the toolchain that calls itself `found` is of the minor version of `wanted`, and not
/// older.
fn will_do(found: &str, wanted: &str) -> bool {
    let (found, wanted) = (parse_version(found), parse_version(wanted));
    matches!((found, wanted), (Some(found), Some(wanted)) if found[..2] == wanted[..2] && found >= wanted)
}

/// `go1.26.8`, `1.26.0` or `go1.26.8 X:something`.
fn parse_version(text: &str) -> Option<[u32; 3]> {
    let word = text.split_whitespace().next()?.trim_start_matches("go");
    let mut numbers = word.split('.').map(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    Some([major, minor, numbers.next().flatten().unwrap_or(0)])
}

fn lock(directory: &Path, part: Part, progress: Progress<'_>) -> Result<File, Error> {
    let path = directory.join(".lock");
    let lock = File::create(&path).map_err(|source| cache(&path, source))?;
    if let Err(TryLockError::WouldBlock) = lock.try_lock() {
        progress(&format!("waiting for another run that builds {}…", part.name()));
    }
    lock.lock().map_err(|source| cache(&path, source))?;
    Ok(lock)
}

fn cache(path: &Path, source: io::Error) -> Error {
    Error::Cache { path: path.to_owned(), source }
}

fn about(seconds: u64) -> String {
    if seconds < 60 { format!("about {seconds} s") } else { format!("about {} min", seconds.div_ceil(60)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchain_has_same_minor_version_and_is_recent() {
        let cases = [
            ("the same", "go1.26.0", "1.26.0", true),
            ("a later patch", "go1.26.8", "1.26.0", true),
            ("an earlier patch", "go1.26.2", "1.26.8", false),
            ("Debian 12's", "go1.19.8", "1.26.0", false),
            ("a later minor", "go1.27.1", "1.26.0", false),
            ("with experiments", "go1.26.8 X:nojsonv2", "1.26.0", true),
            ("no output", "", "1.26.0", false),
        ];
        for (name, found, wanted, want) in cases {
            assert_eq!(will_do(found, wanted), want, "{name}");
        }
    }

    #[test]
    fn a_missing_toolchain_names_the_next_action() {
        let cache = tempfile::tempdir().unwrap();
        let parts = Parts {
            ready: None,
            cache: cache.path().to_owned(),
            sources: Path::new(env!("CARGO_MANIFEST_DIR")).join("parts"),
            go: "/nowhere/go".to_owned(),
            earlier: false,
        };
        let error = parts.path(Part::Kubectl).unwrap_err();
        assert!(matches!(error, Error::NoGo { .. }), "{error:?}");
        let message = error.to_string();
        for word in ["kubectl", "install Go 1.26", "GO=", "KUBEBUILDER_ASSETS"] {
            assert!(message.contains(word), "{word}: {message}");
        }
    }
}
