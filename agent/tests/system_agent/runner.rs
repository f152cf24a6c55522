//! What the upstream system-agent does with a plan, in the root that this
//! thread is in.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_core::plan::PlanRecord;
use serde_json::Value;

use super::tree::COMMANDS;

/// The upstream part of a plan record.
pub(crate) struct Document {
    files: Vec<(String, u32, Vec<u8>)>,
    instructions: Vec<(String, Vec<String>)>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

impl Document {
    pub(crate) fn parse(record: &PlanRecord) -> Self {
        let document: Value = serde_json::from_slice(record.bytes.expose()).unwrap();
        let file = |file: &Value| {
            let mode = u32::from_str_radix(file["permissions"].as_str().unwrap(), 8).unwrap();
            (text(&file["path"]), mode, STANDARD.decode(file["content"].as_str().unwrap()).unwrap())
        };
        let instruction = |instruction: &Value| {
            let arguments = instruction["args"].as_array().unwrap();
            (text(&instruction["command"]), arguments.iter().map(text).collect())
        };
        Self {
            files: document["files"].as_array().unwrap().iter().map(file).collect(),
            instructions: document["instructions"].as_array().unwrap().iter().map(instruction).collect(),
        }
    }

    /// How many instructions there are.
    pub(crate) fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Every file, then the first `count` instructions.
    pub(crate) fn run(&self, count: usize) {
        for (path, mode, content) in &self.files {
            write_file(Path::new(path), *mode, content);
        }
        for (command, arguments) in self.instructions.iter().take(count) {
            let mut process = Command::new(command);
            process.args(arguments).env("PATH", format!("{COMMANDS}:/usr/sbin:/usr/bin:/sbin:/bin"));
            // It reads both streams to their end: what keeps them open holds it.
            let output = process.stdin(Stdio::null()).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
        }
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
