//! Runs a plan as the upstream system-agent does, on a host below a root.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use agent::ground::paths::Root;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::plan::{Checksum, Secret};
use serde_json::Value;

/// The upstream part of a plan record.
pub(crate) struct Document {
    checksum: String,
    files: Vec<(String, u32, Vec<u8>)>,
    instruction: Value,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

impl Document {
    pub(crate) fn parse(bytes: &Secret) -> Self {
        let document: Value = serde_json::from_slice(bytes.expose()).unwrap();
        let file = |file: &Value| {
            let mode = u32::from_str_radix(file["permissions"].as_str().unwrap(), 8).unwrap();
            (text(&file["path"]), mode, STANDARD.decode(file["content"].as_str().unwrap()).unwrap())
        };
        let [instruction] = &document["instructions"].as_array().unwrap()[..] else {
            panic!("{}", document["instructions"])
        };
        Self {
            checksum: Checksum::of(bytes.expose()).to_string(),
            files: document["files"].as_array().unwrap().iter().map(file).collect(),
            instruction: instruction.clone(),
        }
    }

    /// Every file, then the instruction. The paths of the host in the script are those below `root`.
    pub(crate) fn run(&self, root: &Root) -> Output {
        for (path, mode, content) in &self.files {
            write_file(&root.join(path), *mode, content);
        }
        assert_eq!(self.instruction["name"], "run-plan");
        assert_eq!(self.instruction["saveOutput"], true, "the output becomes applied-output");
        let below = root.join("/").display().to_string();
        let script =
            ["/usr/bin/", "/var/lib/"].iter().fold(text(&self.instruction["args"][1]), |script, path| {
                script.replace(path, &format!("{}{path}", below.trim_end_matches('/')))
            });
        let arguments = self.instruction["args"].as_array().unwrap().iter().map(text).enumerate();
        let mut process = Command::new(text(&self.instruction["command"]));
        process.args(arguments.map(|(index, argument)| if index == 1 { script.clone() } else { argument }));
        let directory = format!("/var/lib/rancher/agent/work/20260101-000000/{}_0", self.checksum);
        process.env("CATTLE_AGENT_EXECUTION_PWD", directory).env("CATTLE_AGENT_ATTEMPT_NUMBER", "1");
        process.stdin(Stdio::null()).output().unwrap()
    }
}

/// In place, neither atomic nor flushed.
fn write_file(path: &Path, mode: u32, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(mode).open(path).unwrap();
    file.write_all(content).unwrap();
    file.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
}

/// Puts a program in the place of the agent of the image, which prints how it was called.
pub(crate) fn put_agent(root: &Root, path: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // The install is a process of its own: a process that another test starts has a copy of the
    // files that are open here, and no kernel runs a program that is open for writing.
    let mut install = Command::new("install");
    install.args(["-m", "0755", "/dev/stdin"]).arg(&path).stdin(Stdio::piped());
    let mut child = install.spawn().unwrap();
    let program = b"#!/bin/sh\necho \"$CATTLE_AGENT_EXECUTION_PWD $*\"\n";
    child.stdin.take().unwrap().write_all(program).unwrap();
    assert!(child.wait().unwrap().success(), "{}", path.display());
}
