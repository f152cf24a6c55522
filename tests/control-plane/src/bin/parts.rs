//! Builds the Kubernetes parts ahead of time and prints where they are.
//!
//! - `parts` builds all that are missing, but for what a single target needs; the last line of its
//!   output is the list of directories, as `PATH` wants it.
//! - `parts path NAME…` builds each named binary, a manager with its components, and prints its path.
//! - `parts directory MODULE` builds all binaries of a module and prints its directory in the cache.
//!
//! Progress goes to standard error.

use std::process::ExitCode;

use control_plane::parts::{Error, Module, Part, Parts, Provider, to_stderr};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [] | ["build"] => build(),
        ["path", names @ ..] if !names.is_empty() => paths(names),
        ["directory", name] => directory(name),
        _ => Err("usage: parts | parts path NAME… | parts directory MODULE".to_owned()),
    };
    match result {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("parts: {message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<String, String> {
    let parts = Parts::from_environment().map_err(|error| explain(&error))?;
    let common = Part::ALL.into_iter().filter(|part| part.module() != Module::ClusterApiSuite);
    let common: Vec<Part> = common.collect();
    parts.ensure(&common, &to_stderr).map_err(|error| explain(&error))?;
    for provider in Provider::ALL {
        parts.cluster_api_components(provider).map_err(|error| explain(&error))?;
    }
    let mut directories: Vec<String> = Vec::new();
    for part in common {
        let path = parts.path(part).map_err(|error| explain(&error))?;
        let directory = path.parent().map(|path| path.display().to_string());
        directories.extend(directory.filter(|directory| !directories.contains(directory)));
    }
    Ok(directories.join(":"))
}

fn paths(names: &[&str]) -> Result<String, String> {
    let known = |name: &&str| {
        let mut parts = Part::ALL.into_iter();
        let part = parts.find(|part| part.name() == *name);
        part.ok_or_else(|| format!("no part {name}; there are {}", part_names()))
    };
    let wanted = names.iter().map(known).collect::<Result<Vec<Part>, _>>()?;
    let parts = Parts::from_environment().map_err(|error| explain(&error))?;
    parts.ensure(&wanted, &to_stderr).map_err(|error| explain(&error))?;
    // A manager is started with its components, also where no module can be downloaded any more.
    for provider in Provider::ALL.into_iter().filter(|provider| wanted.contains(&provider.part())) {
        parts.cluster_api_components(provider).map_err(|error| explain(&error))?;
    }
    let paths = wanted.into_iter().map(|part| parts.path(part));
    let paths = paths.map(|path| path.map(|path| path.display().to_string()));
    let lines = paths.collect::<Result<Vec<String>, _>>();
    Ok(lines.map_err(|error| explain(&error))?.join("\n"))
}

fn directory(name: &str) -> Result<String, String> {
    let known = Module::ALL.into_iter().find(|module| module.name() == name);
    let module = known.ok_or_else(|| format!("no module {name}; there are {}", module_names()))?;
    let mut parts = Parts::from_environment().map_err(|error| explain(&error))?.without_ready();
    if module == Module::EarlierKubernetes {
        parts = parts.earlier();
    }
    let wanted: Vec<Part> = Part::ALL.into_iter().filter(|part| parts.module(*part) == module).collect();
    parts.ensure(&wanted, &to_stderr).map_err(|error| explain(&error))?;
    Ok(parts.directory(module).display().to_string())
}

fn part_names() -> String {
    Part::ALL.map(Part::name).join(", ")
}

fn module_names() -> String {
    Module::ALL.map(Module::name).join(", ")
}

fn explain(error: &Error) -> String {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        message = format!("{message}: {error}");
        source = error.source();
    }
    message
}
