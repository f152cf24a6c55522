//! User Mode Linux as the machine below a guest.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use guest::process::Process;
use guest::{AgentPort, Boot, End, Guest, LabError, Machine, console};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use tokio::io::BufReader;

use crate::arguments::hardware;
use crate::config::HostConfig;
use crate::firmware::find_system;

/// The exit code of a host that resets itself: the kernel then starts the program of its own name again, and that is
/// [`RESET`].
const RESET_CODE: i32 = 88;
const RESET: &str = "#!/bin/sh\nexit 88\n";
/// Runs the kernel ($2) under the name $1. It is the first process of a namespace of process ids: all processes of the
/// host end with it, also those that the kernel traces. The memory of the host is a file, in a file system of its own
/// that ends with it too.
const START: &str = "mount -t tmpfs -o size=100% memory memory && export TMPDIR=$PWD/memory HOME=$PWD/memory || exit 1\n\
    (exec -a \"$1\" \"$2\" \"${@:3}\")\nexit $?";

/// Kernel, firmware and boot loader of a host.
#[derive(Debug)]
pub struct Uml {
    config: HostConfig,
    is_cd_first: AtomicBool,
}

impl Uml {
    /// A machine with this hardware, not yet powered on.
    pub fn new(config: HostConfig) -> Arc<Self> {
        Arc::new(Self { config, is_cd_first: AtomicBool::new(false) })
    }

    /// Powers on a host with this hardware.
    pub async fn start(config: HostConfig) -> Result<Guest, LabError> {
        Guest::start(Self::new(config)).await
    }

    /// Sets whether the ISO is tried before the disk: seen at the next boot.
    pub fn set_cd_first(&self, is_first: bool) {
        self.is_cd_first.store(is_first, Ordering::SeqCst);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.config.directory.join(name)
    }

    fn make_files(&self) -> io::Result<()> {
        fs::create_dir_all(self.path("memory"))?;
        let disk = self.config.system_disk();
        if !disk.exists() {
            File::create_new(&disk)?.set_len(u64::from(self.config.disk_gib) << 30)?;
        }
        write_program(&self.path("reset"), RESET.as_bytes())
    }

    /// Runs firmware and boot loader. Returns the arguments that the boot loader has for the kernel.
    fn load_system(&self) -> Result<Vec<String>, LabError> {
        let disk = self.config.system_disk();
        wait_until_free(&disk).map_err(|source| LabError::Prepare { path: disk, source })?;
        let entry = find_system(&self.config, self.is_cd_first.load(Ordering::SeqCst))?;
        let failed = |source| LabError::Prepare { path: self.config.directory.clone(), source };
        write_program(&self.path("linux"), &entry.kernel).map_err(failed)?;
        fs::write(self.path("initrd"), &entry.initrd).map_err(failed)?;
        Ok(entry.arguments)
    }

    fn start_kernel(&self, arguments: Vec<String>) -> io::Result<Boot> {
        let (ours, line) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let agent = AgentPort::Line(BufReader::new(tokio::net::UnixStream::from_std(ours)?));
        let path = |name| self.path(name).display().to_string();
        let directory = format!("--wd={}", self.config.directory.display());
        let options = ["--pid", "--mount", "--fork", "--kill-child", &directory, "bash", "-c", START, "bash"];
        let mut list: Vec<String> = options.map(str::to_owned).to_vec();
        list.extend([path("reset"), path("linux"), format!("initrd={}", path("initrd"))]);
        list.extend(hardware(&self.config));
        list.extend(arguments);
        let console = File::options().create(true).append(true).open(self.path("console.log"))?;
        let (process, ended) =
            Process::start("unshare", &list, Stdio::from(std::os::fd::OwnedFd::from(line)), console)?;
        let console = self.path("console.log");
        let end = Box::pin(async move { judge_end(ended.await.ok().flatten(), &console) });
        Ok(Boot { process, agent, end })
    }
}

#[async_trait]
impl Machine for Uml {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn directory(&self) -> &Path {
        &self.config.directory
    }

    async fn prepare(&self) -> Result<(), LabError> {
        self.make_files().map_err(|source| LabError::Prepare { path: self.config.directory.clone(), source })
    }

    async fn boot(&self) -> Result<Boot, LabError> {
        let arguments = tokio::task::block_in_place(|| self.load_system())?;
        self.start_kernel(arguments).map_err(|source| LabError::Start { program: "unshare", source })
    }
}

/// Writes a new file: the former one may still be running.
fn write_program(path: &Path, content: &[u8]) -> io::Result<()> {
    if path.exists() {
        fs::remove_file(path)?;
    }
    fs::write(path, content)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

/// Waits for the former kernel, which may have been killed a moment ago: until its end it holds a lock on its disks.
fn wait_until_free(disk: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(disk)?;
    let lock = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).unwrap_or_default(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_OFD_SETLKW(&lock))?;
    Ok(())
}

/// How a boot ended, by the exit code of the kernel. A signal has none.
fn judge_end(code: Option<i32>, console: &Path) -> End {
    match code {
        Some(RESET_CODE) => End::Reset,
        Some(0) => End::PowerOff,
        Some(code) => End::Crash(format!("exit code {code}; {}", console::tail(console))),
        None => End::Crash(format!("killed; {}", console::tail(console))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_follows_from_the_exit_code() {
        let console = Path::new("/nowhere");
        assert_eq!(judge_end(Some(RESET_CODE), console), End::Reset);
        assert_eq!(judge_end(Some(0), console), End::PowerOff);
        assert!(matches!(judge_end(Some(1), console), End::Crash(said) if said.contains("exit code 1")));
        assert!(matches!(judge_end(None, console), End::Crash(_)));
        assert!(RESET.contains(&RESET_CODE.to_string()));
    }
}
